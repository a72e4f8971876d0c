"""Pages in a real browser: what a person sees, hovers and types."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

from otel_quant.cli import main
from otel_quant.diagnosis.stack_trees import Stacks
from otel_quant.format.curve import CurveFile, read_curve
from otel_quant.format.event_file import as_json, process_file, stacks_as_lists
from otel_quant.inference.results import (
    Finding,
    InferenceResult,
    Latency,
    MemoryUse,
    ModelResult,
    Ran,
    RanKernel,
)
from otel_quant.recordings.compared_runs import compared_run
from otel_quant.recordings.model import RecordedRun, Recording
from otel_quant.recordings.reader import read
from otel_quant.recordings.side_by_side import Side, side_by_side
from otel_quant.schema import semconv
from otel_quant.schema.code_lines import Amounts, Place
from otel_quant.schema.readings import Count, Counts
from otel_quant.views import compare, inference
from otel_quant.views.html import page_text
from otel_quant.views.report import render
from otel_quant.views.text import NO_BREAK
from tests.fixtures import recorded as built
from tests.fixtures.browser import PHONE, WIDE, Open
from tests.fixtures.onnx_builder import model_of_text
from tests.fixtures.recorded import RecordedFolder


def hostile(folder: Path) -> Recording:
    name = "</script><img src=x onerror=alert(1)>"
    whole = built.killed(folder)
    steps = tuple(replace(step, name=name) for step in whole.runs[0].steps)
    return replace(whole, runs=(replace(whole.runs[0], steps=steps),), problems=(name,))


def long_names(folder: Path) -> Recording:
    whole = built.good(folder)
    steps = tuple(replace(step, name="x" * 5000) for step in whole.runs[0].steps)
    return replace(whole, runs=(replace(whole.runs[0], steps=steps),))


def with_stacks(folder: Path) -> Recording:
    """The lines of two steps; the program's own function has a hostile name."""
    whole = built.good(folder, seconds=10.0)
    run, stacks = whole.runs[0], Stacks()
    main = Place("/a/quantize.py", "</script><img src=x onerror=alert(1)>", 12, "")
    load = Place("/a/quantize.py", "Reader.get_next", 30, "")
    collect = Place("onnxruntime/quantization/calibrate.py", "collect_data", 698, "onnxruntime")
    merge = Place("onnxruntime/quantization/calibrate.py", "merge", 983, "onnxruntime")
    first, second = run.steps[:2]
    stacks.add(first.index, (main,), Amounts(1_000_000_000, 1, 1, 0, 0))
    stacks.add(second.index, (main, collect, merge), Amounts(4_000_000_000, 1, 1, 300_000_000, 0))
    stacks.add(second.index, (main, collect), Amounts(2_000_000_000, 1, 1, 0, 0))
    stacks.add(second.index, (main, collect, load), Amounts(1_000_000_000, 1, 1, 100_000_000, 0))
    path = process_file(folder, "stacks", run.process, run.id)
    path.write_text(as_json({"schema": 1, "run": run.id, **stacks_as_lists(stacks.steps)}))
    return whole


@pytest.mark.parametrize(
    ("make", "options"),
    [
        (built.good, {}),
        (built.good, PHONE),
        (built.good, {"color_scheme": "dark"}),
        (built.failed, {}),
        (built.killed, PHONE),
        (built.ranks, PHONE),
        (built.nothing, {}),
        (hostile, {}),
        (long_names, PHONE),
        (with_stacks, {}),
        (with_stacks, PHONE),
        (with_stacks, {"color_scheme": "dark"}),
    ],
    ids=lambda each: getattr(each, "__name__", str(each)),
)
def test_a_report_has_no_error_makes_no_request_and_fits_its_window(
    make: Callable[[Path], Recording], options: dict[str, Any], opened: Open, tmp_path: Path
) -> None:
    page = opened(render(make(tmp_path)), **options)
    charts = page.page.locator("figure.chart").count()
    assert page.page.locator("figure.chart.live canvas").count() == charts
    assert bool(charts) == (make.__name__ not in ("nothing", "ranks"))
    page.is_well()
    page.page.set_viewport_size(WIDE if options == PHONE else PHONE["viewport"])
    page.is_well()


def test_the_lines_of_steps_are_folded_at_libraries_opened_searched_and_zoomed(
    opened: Open, tmp_path: Path
) -> None:
    whole = with_stacks(tmp_path)
    first, second = (step.name for step in whole.runs[0].steps[:2])
    page = opened(render(whole)).page
    boxes = page.locator(".flame .plot button")
    said = page.locator(".flame .reading")
    main = "</script><img src=x onerror=alert(1)> (/a/quantize.py:12)"
    load = "Reader.get_next (/a/quantize.py:30)"
    merge = "merge (onnxruntime/quantization/calibrate.py:983)"
    collect = "collect_data (onnxruntime/quantization/calibrate.py:698)"
    # Of the others of its steps no line was seen.
    rest = ["Model Quantization", "Calibration", "Collecting ranges", "unseen lines", first, main]
    assert boxes.all_inner_texts() == ["the run", second, main, "onnxruntime", load, *rest]
    page.locator(".flame [type=checkbox]").uncheck()
    assert boxes.all_inner_texts() == ["the run", second, main, collect, merge, load, *rest]
    boxes.nth(3).hover()
    assert said.inner_text() == f"{collect}: 7.00 s, 57.9 % of the run, 2.00 s of its own"
    page.mouse.move(0, 0)  # a box that comes to lie below the pointer is read
    page.locator(".flame [type=search]").fill("get_next")
    assert said.inner_text() == "8.3 % is at lines with “get_next”"
    assert page.locator(".flame .found").all_inner_texts() == [load]
    page.locator(".flame select").select_option("memory growth")
    page.locator(".flame [type=search]").fill("")
    assert boxes.all_inner_texts() == ["the run", second, main, collect, merge, load]
    boxes.nth(4).focus()
    assert said.inner_text() == f"{merge}: 300 MB, 75.0 % of the run"
    page.keyboard.press("ArrowRight")
    assert said.inner_text() == f"{load}: 100 MB, 25.0 % of the run"
    page.keyboard.press("Enter")
    assert boxes.all_inner_texts() == [load]
    page.keyboard.press("Escape")
    assert boxes.count() == 6


def test_a_step_of_the_table_opens_its_lines(opened: Open, tmp_path: Path) -> None:
    whole = with_stacks(tmp_path)
    second = whole.runs[0].steps[1].name
    page = opened(render(whole)).page
    page.locator("#steps a", has_text=second).press("Enter")
    boxes = page.locator(".flame .plot button")
    assert boxes.first.inner_text() == second
    assert boxes.first.evaluate("each => each === document.activeElement")
    tables = page.locator(".flame .lines table")
    assert tables.locator("caption").all_inner_texts() == [
        f"Lines with the most time of their own, {second}",
        f"Lines with the most memory growth of their own, {second}",
    ]
    assert [row.split("\t") for row in tables.nth(1).locator("tr").all_inner_texts()] == [
        ["merge (onnxruntime/quantization/calibrate.py:983)", "300 MB", "75.0 %"],
        ["Reader.get_next (/a/quantize.py:30)", "100 MB", "25.0 %"],
    ]
    boxes.first.press("Escape")
    assert tables.count() == 0


def test_a_comparison_draws_differences_and_leaves_out_noise(opened: Open, tmp_path: Path) -> None:
    main = Place("/a/quantize.py", "main", 12, "")
    load = Place("/a/quantize.py", "load", 30, "")
    collect = Place("onnxruntime/quantization/calibrate.py", "collect", 698, "onnxruntime")
    sides = []
    for name, pairs in (("base", ((1, 4), (2, 5))), ("new", ((9, 5), (8, 4.5)))):
        runs = []
        for number, (loading, collecting) in enumerate(pairs):
            folder = tmp_path / f"{name}{number}"
            folder.mkdir()
            whole, stacks = built.good(folder), Stacks()
            run = whole.runs[0]
            for line, took in ((load, loading), (collect, collecting)):
                stacks.add(run.steps[1].index, (main, line), Amounts(round(took * 1e9)))
            path = process_file(folder, "stacks", run.process, run.id)
            path.write_text(as_json({"schema": 1, "run": run.id, **stacks_as_lists(stacks.steps)}))
            runs.append(compared_run(folder.name, whole))
        sides.append(Side(name, tuple(runs)))
    shown = opened(page_text(compare.document(side_by_side(sides), None, with_curves=True)))
    looks = {
        box.get_attribute("title"): box.get_attribute("class")
        for box in shown.page.locator(".flame .plot button").all()
    }
    assert looks["load (/a/quantize.py:30): new 8.50 s, base 1.50 s, +7.00 s"] == "more"
    assert looks["onnxruntime: new 4.75 s, base 4.50 s, no clear difference"] == "same"
    shown.is_well()


def test_lines_that_a_library_calls_from_two_places_are_added_up(
    opened: Open, tmp_path: Path
) -> None:
    whole, stacks = built.good(tmp_path), Stacks()
    run = whole.runs[0]
    load = Place("/a/quantize.py", "load", 30, "")
    for line, seconds in ((698, 1000), (701, 4000)):
        collect = Place("onnxruntime/quantization/calibrate.py", "collect", line, "onnxruntime")
        stacks.add(run.steps[0].index, (collect, load), Amounts(seconds * 1_000_000_000))
    path = process_file(tmp_path, "stacks", run.process, run.id)
    path.write_text(as_json({"schema": 1, "run": run.id, **stacks_as_lists(stacks.steps)}))
    page = opened(render(whole)).page
    boxes, said = page.locator(".flame .plot button"), page.locator(".flame .reading")
    boxes.nth(3).hover()
    assert said.inner_text() == "load (/a/quantize.py:30): 5000 s, 89.7 % of the run"
    page.locator(".flame select").select_option("memory growth")
    assert boxes.count() == 0  # none was seen to grow


def stairs(folder: Path) -> Recording:
    """Twenty readings, a second apart, each with a memory of its own."""
    writer = CurveFile(folder / "curve.launcher.jsonl", built.BEGAN_NS, 0, 1.0)
    for second in range(20):
        writer.add(
            round((second + 0.5) * 1e9),
            {
                "memory": (second + 1) * 100 * built.MB,
                "gpu.0.used": (second + 1) * 200 * built.MB,
                "gpu.0.process_used": (second + 1) * 150 * built.MB, "cache": second * built.MB,
            },
            {
                "disk.read": second * (second + 1) // 2 * built.MB,
                "disk.write": second * 7 * built.MB, "cpu": second * 1.5,
            },
        )  # fmt: skip
    writer.close()
    steps = (
        built.step(0, "Loading", 0.0, 5.0),
        built.step(1, "Quantizing", 5.0, 19.0),
        built.step(2, "Calibration", 6.0, 12.0, parent=1, counts=Counts(sample=Count(4, 4)),
                   progress=((7.0, 1), (8.0, 2), (9.0, 3), (11.0, 4))),
        replace(built.step(3, "Export", 12.0, 15.0, parent=1), state="failed", error="ValueError"),
    )  # fmt: skip
    run = RecordedRun(
        id="1", process="7", start=0.0, end=20.0, state="ended", steps=steps,
        attributes={
            semconv.MEMORY_LIMIT: 2000 * built.MB,
            semconv.GPU_MEMORY_LIMIT: 8000 * built.MB, semconv.GPU_COUNT: 1,
        },
    )  # fmt: skip
    curve = read_curve(folder / "curve.launcher.jsonl")
    return Recording(
        path=folder, began_ns=built.BEGAN_NS, state="ended", duration=20.0, runs=(run,),
        curves={"launcher": curve},
    )  # fmt: skip


HOVERED = [
    ("memory", 2.5, "2.50 s · Loading · memory 300 MB (15.0 % of 2.00 GB), lowest 300 MB"),
    ("memory", 9.5, "9.50 s · Quantizing > Calibration · memory 1.00 GB (50.0 % of 2.00 GB), lowest 1.00 GB"),
    ("memory", 13.5, "13.50 s · Quantizing > Export (failed) · memory 1.40 GB (70.0 % of 2.00 GB), lowest 1.40 GB"),
    ("memory", 19.5, "19.50 s · no step · memory 2.00 GB (100.0 % of 2.00 GB), lowest 2.00 GB"),
    ("gpu-0", 9.5, "9.50 s · Calibration · this program 1.50 GB (18.8 % of 8.00 GB), all programs 2.00 GB"),
    ("disk", 9.5, "9.50 s · Calibration · written 7.00 MB/s, read 7.50 MB/s"),
    ("cpu", 9.5, "9.50 s · Calibration · cores in use 1.50 cores"),
    ("cache", 9.5, "9.50 s · Calibration · caches 9.00 MB"),
]  # fmt: skip
"""Charts, seconds, and what is read there."""


def test_the_hovered_value_is_the_recorded_value(opened: Open, tmp_path: Path) -> None:
    page = opened(render(stairs(tmp_path)))
    found = [(chart, at, page.hover(chart, at / 20)) for chart, at, _ in HOVERED]
    assert found == HOVERED


def test_one_hover_reads_every_chart_and_a_drag_zooms_all_until_a_double_click(
    opened: Open, tmp_path: Path
) -> None:
    page = opened(render(stairs(tmp_path)))
    page.hover("memory", 9.5 / 20)
    assert page.reading("cpu") == "9.50 s · Calibration · cores in use 1.50 cores"
    page.page.mouse.move(5, 5)
    assert page.reading("memory") == ("Highest 2.00 GB at 19.5 s, 100.0 % of the limit of 2.00 GB.")
    page.hover("memory", 0.5)
    page.page.mouse.down()
    page.hover("memory", 0.75)
    page.page.mouse.up()
    assert page.hover("cpu", 0.1).startswith("10.50 s")
    page.page.locator("#chart-memory .u-over").dblclick()
    assert page.hover("cpu", 2.5 / 20).startswith("2.50 s")


def test_a_chart_is_read_and_zoomed_by_keyboard(opened: Open, tmp_path: Path) -> None:
    page = opened(render(stairs(tmp_path)))
    chart = page.page.locator("#chart-memory .plot")
    chart.focus()
    for key, second in (
        ("Home", "0.50"), ("ArrowRight", "1.50"), ("Shift+ArrowRight", "11.50"),
        ("ArrowLeft", "10.50"), ("End", "19.50"),
    ):  # fmt: skip
        page.page.keyboard.press(key)
        page.wait_for(
            f"document.querySelector('#reading-memory').textContent.startsWith('{second} s')"
        )
    page.page.keyboard.press("+")
    assert page.hover("cpu", 0.05).startswith("10.50 s")
    page.page.keyboard.press("Escape")
    assert page.hover("cpu", 2.5 / 20).startswith("2.50 s")
    assert chart.get_attribute("aria-describedby") == "reading-memory keys"
    assert page.page.locator("#reading-memory").get_attribute("aria-live") == "polite"


def test_tables_are_sorted_by_keyboard_and_back(opened: Open, tmp_path: Path) -> None:
    page = opened(render(built.good(tmp_path)))
    as_it_was, times = page.cells("steps", 1), page.cells("steps", 4)
    heading = page.page.locator("#steps thead th:nth-child(4)")
    heading.get_by_role("button").focus()
    for direction, expected in (
        ("descending", sorted(times, key=lambda text: -float(text.replace(",", "")))),
        ("ascending", sorted(times, key=lambda text: float(text.replace(",", "")))),
        (None, times),
    ):
        page.page.keyboard.press("Enter")
        assert heading.get_attribute("aria-sort") == direction
        assert page.cells("steps", 4) == expected
    assert page.cells("steps", 1) == as_it_was
    page.page.locator("#steps thead th:nth-child(1) button").press("Space")
    assert page.cells("steps", 1) == sorted(as_it_was)
    assert page.page.locator("#steps th[aria-sort]").count() == 1


def test_values_are_sorted_by_unit_and_unknown_ones_are_last(opened: Open) -> None:
    variants = tuple(
        ModelResult(name, kind="torch", memory=MemoryUse(peak, None))
        for name, peak in (
            ("small", 900_000),
            ("unknown", None),
            ("large", 3 * 10**9),
            ("middle", 5 * 10**6),
        )
    )
    failed = ModelResult("failed", "its first call failed: ValueError: no weights")
    result = InferenceResult(
        (failed, *variants), "", {}, 0.25, 2, baseline="small", command="otel-quant bench"
    )
    page = opened(page_text(inference.document(result)))
    known = ["large", "middle", "small"]
    for in_order in (known, known[::-1]):
        page.page.locator("#bench-models thead button", has_text="peak memory").press("Enter")
        assert page.cells("bench-models", 1) == [*in_order, "failed", "unknown"]


def test_a_phone_shows_two_models_of_a_hundred_nodes_in_ten_windows_and_cuts_no_caption(
    opened: Open,
) -> None:
    types = ("float32 1x64x112x112", "float32 64x64x3x3")
    kernels = tuple(
        RanKernel(
            f"k{i}", "Conv", f"/layer{i}/conv/Conv", 1, "CPU", 100 - i, 0.01, 1, types, types, 9
        )
        for i in range(100)
    )
    ran, latency = Ran(9, 6000.0, kernels), Latency(0.006, noise=0.01, ratio=1.3, is_apart=True)
    models = tuple(
        ModelResult(f"{name}.onnx", latency=latency, ran=ran) for name in ("float", "int8")
    )
    result = InferenceResult(models, "1.31.1", {}, 0.25, 2)
    page = opened(page_text(inference.document(result)), **PHONE)
    page.is_well()
    assert page.page.evaluate("document.documentElement.scrollHeight") < 10 * 800
    for caption in page.page.locator("caption").all_inner_texts():
        assert len(caption) < 40, caption


@pytest.mark.parametrize("color_scheme", ["light", "dark"])
def test_layers_with_verdicts_and_reasons_fit_a_window_of_800_pixels(
    opened: Open, color_scheme: str
) -> None:
    reason = "a Relu or Clip stands between it and the QuantizeLinear behind, whose range does not make it superfluous"
    names = [f"/layers/layers.{i}/layers.{i}.1/layers/layers.3/Conv" for i in range(3)]
    models = []
    for name, factor in (("mobilenet.onnx", 1), ("mobilenet-int8.onnx", 9)):
        kernels = tuple(
            RanKernel(f"k{node}", "Conv" if factor == 1 else "FusedConv", node, 1, "CPU", 20.0 * factor, 0.3, 1, ("float32 8",), ("float32 8",), 9)
            for node in names
        )  # fmt: skip
        findings = tuple(
            Finding("in_float", node, f"Conv `{node}` ran in float: {reason}", "", 180.0, 0.3, (f"k{node}",), "")
            for node in names
        ) if factor > 1 else ()  # fmt: skip
        latency = Latency(0.006 * factor, noise=0.01, ratio=1.0 * factor, is_apart=factor > 1)
        ran = Ran(9, 600.0 * factor, kernels)
        models.append(
            ModelResult(name, latency=latency, ran=ran, findings=findings, is_quantized=factor > 1)
        )
    html = page_text(inference.document(InferenceResult(tuple(models), "1.32.0", {}, 0.25, 2)))
    page = opened(html, color_scheme=color_scheme, viewport={"width": 800, "height": 900}).page
    row = page.locator("#inference-layers-1 tbody tr").first.inner_text()
    assert "costs more than it gains" in row
    assert reason in row
    wider = "[...document.querySelectorAll('.scroll')].map(it => it.scrollWidth - it.clientWidth)"
    assert max(page.evaluate(wider)) <= 0


MATMUL = '<ir_version: 8, opset_import: ["" : 17]> g (float[N, 8] x) => (float[N, 8] y) { y = MatMul(x, w) }'
KINDS = {
    "show": ("show", "{killed}"),
    "stacks": ("stacks", "{stacks}"),
    "compare": ("compare", "{good}", "{killed}"),
    "runs": ("runs", "{all}"),
    "cost": ("cost", "float.onnx", "int8.onnx", "--by", "node"),
    "comparison of costs": ("cost", "float.onnx", "int8.onnx"),
    "estimate": ("estimate", "float.onnx", "--limit", "4GiB"),
    "estimate of a method": ("estimate", "float.onnx", "--method", "quark:MinMax"),
}


@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_of_page_passes_the_checks_in_both_themes_and_windows(
    kind: str,
    opened: Open,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    places = {"all": tmp_path / "all"}
    for name, make in (("good", built.good), ("killed", built.killed), ("stacks", with_stacks)):
        places[name] = places["all"] / name
        places[name].mkdir(parents=True)
        make(places[name])
    model = model_of_text(MATMUL, w=np.ones((8, 8), np.float32))
    for name in ("float", "int8"):
        onnx.save(model, f"{name}.onnx")
    assert main([each.format(**places) for each in KINDS[kind]] + ["--format", "html"]) == 0
    html = capsys.readouterr().out
    for theme, options in (("light", PHONE), ("dark", {"viewport": WIDE})):
        opened(html, color_scheme=theme, **options).is_well()


@pytest.mark.parametrize("has_touch", [True, False])
def test_keyboard_help_is_shown_only_with_a_keyboard(
    opened: Open, tmp_path: Path, has_touch: bool
) -> None:
    page = opened(render(built.good(tmp_path)), has_touch=has_touch)
    assert page.page.locator("#keys").is_visible() is not has_touch


def test_the_outline_and_the_tables_are_shown_without_javascript(
    opened: Open, tmp_path: Path
) -> None:
    page = opened(render(built.good(tmp_path)), java_script_enabled=False)
    outline = page.page.locator("#chart-memory .outline")
    assert outline.is_visible()
    label = outline.get_attribute("aria-label") or ""
    assert label.replace(NO_BREAK, " ") == (
        "Memory of the process tree. Highest 7.48 GB at 5:40 in Collecting ranges, "
        "93.5 % of the limit of 8.00 GB."
    )
    assert page.page.locator("#chart-memory .outline .band text").first.text_content() == (
        "Model Loading"
    )
    assert page.page.locator("#steps tbody tr").count() == 21
    assert not page.page.locator("#keys").is_visible()


def test_a_dark_page_is_printed_as_outlines_on_white(opened: Open, tmp_path: Path) -> None:
    page = opened(render(built.good(tmp_path)), color_scheme="dark")
    background = "getComputedStyle(document.body).backgroundColor"
    assert page.page.evaluate(background) == "rgb(21, 23, 26)"
    page.page.emulate_media(media="print")
    assert page.page.evaluate(background) == "rgb(255, 255, 255)"
    assert page.page.locator("#chart-memory .outline").is_visible()
    assert not page.page.locator("#chart-memory canvas").is_visible()


def test_an_ended_process_has_no_area_until_another_begins(opened: Open, tmp_path: Path) -> None:
    folder = RecordedFolder(tmp_path / "r")
    folder.curve(
        (
            at / 10,
            {"memory": 7e8, "process.first": 7e8} if at < 40
            else {"memory": 1e6} if at < 50
            else {"memory": 8e8, "process.second": 8e8},
            {},
        )
        for at in range(90)
    )  # fmt: skip
    page = opened(render(read(tmp_path / "r"))).page
    first, between, second = page.evaluate(
        """() => {
          const over = document.querySelector("#chart-memory .u-over").getBoundingClientRect();
          const canvas = document.querySelector("#chart-memory canvas");
          const left = over.left - canvas.getBoundingClientRect().left;
          const top = over.top - canvas.getBoundingClientRect().top;
          return [0.2, 0.5, 0.8].map((share) => String(canvas.getContext("2d").getImageData(
            left + share * over.width, top + 0.55 * over.height, 1, 1).data));
        }"""
    )
    assert between == "0,0,0,0"
    assert between not in (first, second)


def test_the_charts_follow_the_theme(opened: Open, tmp_path: Path) -> None:
    page = opened(render(built.good(tmp_path)))
    canvas = page.page.locator("#chart-memory canvas")
    light = canvas.screenshot(caret="initial")
    page.page.emulate_media(color_scheme="dark")
    assert canvas.screenshot(caret="initial") != light
    assert page.said == []


def test_both_curves_are_in_each_chart_and_can_be_read_at_a_step(
    opened: Open, tmp_path: Path
) -> None:
    sides = []
    for name, seconds in (("base", 600.0), ("new", 780.0)):
        (tmp_path / name).mkdir()
        run = compared_run(name, built.good(tmp_path / name, seconds=seconds, interval=1.0))
        sides.append(Side(name, (run,)))
    page = opened(page_text(compare.document(side_by_side(sides), None, with_curves=True)), **PHONE)
    assert page.page.locator("figure.chart.live canvas").count() == 5  # memory, 3 GPUs, caches
    page.page.locator("#chart-memory .plot").focus()
    for key in ("End", "ArrowLeft"):
        page.page.keyboard.press(key)
    reading = page.page.locator("#reading-memory").inner_text()
    assert [part.split()[0] for part in reading.split(" · ")[-1].split(", ")] == ["new", "base"]
    legend = page.page.locator("#chart-memory .legend li").all_inner_texts()
    assert legend == ["base", "new"]
    page.is_well()
    page.page.emulate_media(color_scheme="dark")
    page.page.set_viewport_size(WIDE)
    page.is_well()
