"""The dashboards are drawn by Grafana's own components, from the answers of the real servers, in a real browser.

GRAFANA_UI names the folder in which `npm install` was run for scripts/servers/grafana_ui/package.json (0.4 GB). With
GRAFANA_PICTURES the pictures are kept in the folder that it names. Logs, traces, heatmaps and state timelines are no
parts of `@grafana/ui`: their panels are empty here.
"""

from __future__ import annotations

import functools
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, Route

from tests.stack.artificial_run import NAME as WITH_GPUS
from tests.stack.grafana_panels import answered
from tests.stack.many_runs import send
from tests.stack.models_at_work import MEASURED, measure
from tests.stack.processes import HERE, JOB, eventually, quantize, started
from tests.stack.world import stores
from tests.unit.stack.dashboards import FILES

pytestmark = [pytest.mark.servers, pytest.mark.slow]

PAGE = (
    "http://localhost:1/dashboard"  # a page of no origin has no localStorage, which Grafana reads
)
TODAY = "resnet50 today"
VIEWS: dict[str, dict[str, str]] = {
    "runs": {}, "run": {"run": TODAY}, "run of GPUs": {"run": WITH_GPUS}, "inference": {"run": MEASURED},
    "compare": {"run": TODAY, "baseline": "resnet50 yesterday"}, "cost": {"run": TODAY},
}  # fmt: skip
"""What is chosen in each dashboard."""
LOADED = ("svg", "png", "woff2", "ttf")
HIGHEST = 6000
"""Pixels that the longest page is high: what is out of sight is not drawn."""
OUTSIDE = """() => [...document.querySelectorAll('[data-title]')]
    .filter((each) => each.getBoundingClientRect().right > innerWidth).map((each) => each.dataset.title)"""


@dataclass(frozen=True)
class Bundle:
    """The drawing program and its style."""

    script: str
    style: str


@pytest.fixture(scope="module")
def bundle(tmp_path_factory: pytest.TempPathFactory) -> Bundle:
    if not (folder := os.environ.get("GRAFANA_UI")):
        pytest.skip("GRAFANA_UI names no folder with the packages of scripts/servers/grafana_ui")
    modules, out = Path(folder) / "node_modules", tmp_path_factory.mktemp("bundle") / "drawn.js"
    subprocess.run(
        [modules / ".bin" / "esbuild", HERE / "grafana" / "draw_panels.jsx", "--bundle", f"--outfile={out}",
         "--format=iife", '--define:process.env.NODE_ENV="production"', "--define:global=window", "--log-level=error",
         *(f"--loader:.{kind}=dataurl" for kind in LOADED)],
        env={**os.environ, "NODE_PATH": str(modules)}, check=True,
    )  # fmt: skip
    return Bundle(out.read_text(), out.with_suffix(".css").read_text())


@pytest.fixture(scope="module")
def inputs(
    bundle: Bundle, binaries: dict[str, str], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[dict[str, dict[str, Any]]]:
    """Yields what each dashboard is drawn from: 30 runs that are made up, two of Quark, one that sees GPUs, measured models."""
    folder = tmp_path_factory.mktemp("drawn")
    with stores(binaries, folder) as (empty, made):
        send(made.grpc, 30)
        measure(made.environment, folder)
        of_gpus = (sys.executable, HERE / "artificial_run.py", MEASURED)
        assert started(made, *of_gpus, OTEL_SERVICE_NAME="artificial").wait() == 0
        for name in ("resnet50 yesterday", TODAY):
            assert quantize(made, folder, "good", OTEL_QUANT_RUN_NAME=name).wait() == 0
        ended = f'quant_run_end_seconds{{job="{JOB}", quant_run_name=~"resnet50.*"}}'
        eventually(lambda: len(empty.metric(ended)) == 2, "both runs in Prometheus")
        began = empty.metric(f'quant_run_start_seconds{{quant_run_name="{TODAY}"}}')[0]
        world = replace(empty, began=time.time() - 240, good=began["metric"]["quant_run_trace_id"])
        found = {}
        for name, chosen in VIEWS.items():
            file = next(file for file in FILES if file.stem == name.split()[0])
            ask = functools.partial(world.ask, process=world.processes(file, **chosen), **chosen)
            found[name] = {
                "panels": answered(file, ask),
                "variables": {"job": ".+", "run": TODAY, "instance": ".+", **chosen},
                "from": round(world.began * 1000), "to": round(time.time() * 1000),
            }  # fmt: skip
        yield found


@pytest.mark.parametrize("theme", ["light", "dark"])
@pytest.mark.parametrize("width", [1300, 800])
@pytest.mark.parametrize("name", VIEWS)
def test_every_panel_is_drawn_within_the_page(
    bundle: Bundle, inputs: dict[str, dict[str, Any]], browser: Browser, name: str, width: int, theme: str
) -> None:  # fmt: skip
    def blank(route: Route) -> None:
        is_page = route.request.url == PAGE
        body = "<!doctype html><body><div id=root></div></body>"
        route.fulfill(status=200 if is_page else 404, content_type="text/html", body=body)

    errors: list[str] = []
    context = browser.new_context(viewport={"width": width, "height": HIGHEST})
    page = context.new_page()
    page.on("pageerror", lambda error: errors.append(str(error)))
    page.route("**/*", blank)
    page.goto(PAGE)
    page.evaluate("input => { window.input = input }", {**inputs[name], "theme": theme})
    page.add_style_tag(content=bundle.style)
    page.add_script_tag(content=bundle.script)
    page.wait_for_function("document.body.dataset.drawn", timeout=120_000)
    if pictures := os.environ.get("GRAFANA_PICTURES"):
        page.locator("#root").evaluate("root => { root.style.height = document.body.style.height }")
        page.locator("#root").screenshot(
            path=Path(pictures) / f"grafana-{name.replace(' ', '-')}-{theme}-{width}.png"
        )
    drawn = page.evaluate(
        "[...document.querySelectorAll('[data-title]')].map((each) => each.dataset.title)"
    )
    outside = page.evaluate(OUTSIDE)
    context.close()
    assert errors == []
    titles = [one["panel"]["title"] for one in inputs[name]["panels"]]
    assert drawn == titles
    assert outside == []
