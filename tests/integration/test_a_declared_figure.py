"""A figure that is declared in one file is in every signal, file, command and page; a name is changed in its table alone.

The tree is copied, tables of the copy's `schema/` are edited, and the copy is used as a user would use it.
"""

from __future__ import annotations

import json
import os
import shutil
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import pexpect
import yaml

from otel_quant.schema import semconv
from tests.fixtures.otlp_receiver import OtlpReceiver
from tests.fixtures.programs import run

ROOT: Final = Path(__file__).resolve().parents[2]
BEFORE: Final = '        Figure("disk.read_chars"'
DECLARED: Final = """\
        Figure(
            "disk.copied", "By", "Bytes that the program handed to write calls",
            attrgetter("write_chars"), TOTAL, "5000000",
            checkpoint="disk_copied",
            steps=(Series(Metric("quant.step.disk.copied", "counter", "By", "Bytes handed to write.")),),
            live=Series(Metric("quant.run.disk.copied", "observable_counter", "By", "Bytes handed to write.")),
            column=YamlColumn("disk_copied_mb", "Handed to write calls since the first checkpoint, in MiB."),
            kind="disk", heading="COPIED", curve="disk.copied",
        ),
"""
RESOURCES: Final = "RESOURCES: Final[tuple[Resource, ...]] = (MEMORY, GPU, DISK, CPU, CACHE)"
DECLARED_LEVEL: Final = """\
FILES: Final = Resource(
    "files",
    (
        Figure(
            "files", "{file}", "Files that the main process has open", lambda number: number, LEVEL, "12",
            heading="FILES", curve="files",
        ),
    ),
    is_sampled=True,
)
RESOURCES: Final[tuple[Resource, ...]] = (MEMORY, GPU, DISK, CPU, CACHE, FILES)
"""
PROBES: Final = '    "cache": lambda _: CACHE_DIRECTORIES'
PROBE: Final = (
    '    "files": lambda pid: lambda _: len(os.listdir(f"/proc/{pid or \'self\'}/fd")),\n'
)
RENAMED: Final = {  # a figure of the disk, a figure and a metric of caches
    'f"disk.{way}", "By",': 'f"storage.{way}", "By",',
    'kind="disk", heading=heading,': 'kind="disk", former=(f"disk.{way}",), heading=heading,',
    '"cache.disk", "By",': '"cache.growth", "By",',
    'kind="disk", heading="CACHES",': 'kind="disk", former=("cache.disk",), heading="CACHES",',
    '"Growth on disk of the cache directory that has grown most since it was made, now."':
        '"Growth, now.", former=("quant.run.cache.disk.usage",)',
    '"quant.run.cache.disk.usage", "observable_gauge",': '"quant.run.cache.growth", "observable_gauge",',
}  # fmt: skip
RENAMED_ATTRIBUTE: Final = {
    '_attribute("quant.calibration.sample_count",': '_attribute("quant.calibration.consumed",',
    ' "128")\nCALIBRATION_ITEM': ' "128", ("quant.calibration.sample_count",))\nCALIBRATION_ITEM',
}  # fmt: skip
AFFECTED: Final = (
    "tests/unit/diagnosis/test_bounds.py", "tests/unit/project/test_pages.py",
    "tests/unit/export/otel/test_spans.py", "tests/unit/export/otel/test_log_records.py",
    "tests/unit/recordings/test_summary.py", "tests/unit/recordings/comparison/test_runs.py",
    "tests/unit/cli/test_compare.py", "tests/unit/program/test_measured_run.py",
)  # fmt: skip
"""Tests that use the renamed, and read old recordings."""
SCRIPT: Final = """\
import otel_quant

with otel_quant.step("Calibration"), open("copied", "wb") as file:
    file.write(bytes(5_000_000))
"""


class Copied:
    """A copy of the tree with edited tables, and what it prints."""

    def __init__(self, folder: Path, replaced: Mapping[str, str]) -> None:
        self.folder = folder
        for name in ("otel_quant", "grafana", "deploy", "scripts", "docs", "tests"):
            shutil.copytree(ROOT / name, folder / name, ignore=shutil.ignore_patterns("*.pyc"))
        for file in ("pyproject.toml", "README.md"):
            shutil.copy(ROOT / file, folder)
        self.edit("schema/figures.py", replaced)

    def edit(self, file: str, replaced: Mapping[str, str]) -> None:
        """Replaces texts of a file of the package."""
        path = self.folder / "otel_quant" / file
        text = path.read_text(encoding="utf-8")
        for old, new in replaced.items():
            assert text.count(old) == 1, old
            text = text.replace(old, new)
        path.write_text(text, encoding="utf-8")

    def run(self, *command: str, **variables: str) -> str:
        """Returns what a command of the copy prints."""
        environment = {**os.environ, "PYTHONPATH": str(self.folder), **variables}
        done = run([sys.executable, *command], self.folder, environment, timeout=300)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    def otel_quant(self, *arguments: str, **variables: str) -> str:
        """Returns what `otel-quant` prints."""
        return self.run("-m", "otel_quant", *arguments, **variables)

    def in_a_terminal(self, *arguments: str) -> str:
        """The same where standard output is a terminal."""
        command = ["-m", "otel_quant", *arguments]
        variables = {**os.environ, "PYTHONPATH": str(self.folder), "TERM": "xterm"}
        child = pexpect.spawn(
            sys.executable, command, cwd=self.folder, env=variables,
            dimensions=(50, 120), encoding="utf-8", timeout=60,
        )  # fmt: skip
        child.expect(pexpect.EOF)
        return str(child.before)

    def json(self, *arguments: str) -> Any:
        """Returns the document that a command prints as JSON."""
        return json.loads(self.otel_quant(*arguments, "--format", "json"))


def values_named(document: Any, name: str) -> list[Any]:
    """Returns what stands under a key anywhere in a document, or beside it as its name."""
    found: list[Any] = []
    if isinstance(document, dict):
        found += [value for key, value in document.items() if key == name]
        for value in document.values():
            found += values_named(value, name)
    elif isinstance(document, list):
        for value in document:
            found += values_named(value, name)
    return found


def test_a_declared_figure_is_in_every_signal_file_command_page_and_dashboard(
    tmp_path: Path, otlp: OtlpReceiver
) -> None:
    copy = Copied(tmp_path, {BEFORE: DECLARED + BEFORE, RESOURCES: DECLARED_LEVEL})
    copy.edit(
        "capture/probes/readers.py",
        {PROBES: PROBE + PROBES, "import itertools\n": "import itertools\nimport os\n"},
    )
    (tmp_path / "quantize.py").write_text(SCRIPT)
    copy.otel_quant(
        "run", "--out", "recorded", "--", sys.executable, "quantize.py",
        OTEL_QUANT_PROFILE="profile.yaml", **otlp.environment(),
    )  # fmt: skip

    (step,) = (span for span in otlp.spans if span.name == "Calibration")
    copied = step.attributes["quant.disk.copied"]
    assert copied >= 5_000_000
    points = {each.metric: each.value for each in otlp.points}
    (end,) = (
        each.attributes
        for each in otlp.records
        if each.attributes.get(semconv.CHECKPOINT_NAME) == "Calibration End"
    )
    profile = yaml.safe_load((tmp_path / "profile.yaml").read_text())["memory_usage"]
    (in_file,) = (each for each in profile if each["step"] == "Calibration End")
    names = copy.run(
        "-c", "from otel_quant.schema.catalog import *; print([a.name for a in ATTRIBUTES])"
    )
    boards = copy.run(
        "-c", "from grafana.generator.dashboards import documents; print(documents().values())"
    )
    page = (tmp_path / "recorded" / "report.html").read_text()
    (shown,) = copy.json("show", "recorded")
    in_json, outside = (
        [each for each in shown["steps"] if (each["status"] == "outside") is is_outside]
        for is_outside in (False, True)
    )
    sent_before = len(otlp.spans)
    copy.otel_quant("send", "recorded", **otlp.environment())
    found = {
        "metric of steps": points["quant.step.disk.copied"] == copied,
        "metric of runs": points["quant.run.disk.copied"] > copied,
        "checkpoint record": end["quant.checkpoint.disk_copied"] > copied,
        "local file": in_file["disk_copied_mb"] == round(end["quant.checkpoint.disk_copied"] / (1 << 20), 2),
        "documentation": "quant.disk.copied" in names,
        "dashboards": "quant_run_disk_copied_bytes_total" in boards,
        "steps on dashboards": "span.quant.disk.copied" in boards,
        "show of the recording": "COPIED" in copy.otel_quant("show", "recorded"),
        "show of the file": "COPIED" in copy.otel_quant("show", "profile.yaml"),
        "show as JSON": values_named(in_json, "disk_copied_mb") == [round(copied / (1 << 20), 2)],
        "show as JSON in bytes": values_named(in_json, "disk_copied_bytes") == [copied],
        "time outside of steps": any(each is not None for each in values_named(outside, "disk_copied_bytes")),
        "report": "copied" in page.lower(),
        "chart of a level": '"title-files">Files that the main process has open<' in page,
        "compare": "disk.copied" in json.dumps(copy.json("compare", "recorded", "recorded")),
        "gate": copy.otel_quant("compare", "recorded", "recorded", "--fail-over", "disk.copied=10%") != "",
        "runs": "disk.copied" in json.dumps(copy.json("runs", ".", "--value", "disk.copied")),
        "watch": "disk copied" in copy.in_a_terminal("watch", "--once", "recorded"),
        "curve": "disk.copied" in (tmp_path / "recorded" / "curve.launcher.jsonl").read_text(),
        "send": [span.attributes.get("quant.disk.copied") for span in otlp.spans[sent_before:] if span.name == "Calibration"] == [copied],
    }  # fmt: skip
    assert found == dict.fromkeys(found, True)


def test_a_rename_is_an_edit_of_its_table_alone(tmp_path: Path) -> None:
    copy = Copied(tmp_path, RENAMED)
    copy.edit("schema/semconv.py", RENAMED_ATTRIBUTE)
    copy.run("scripts/docs.py")
    for page, name in (("telemetry.md", "quant.storage.read"), ("fleet.md", "`storage.write`")):
        assert name in (tmp_path / "docs" / page).read_text()
    copy.run("-m", "pytest", "-q", "-x", *AFFECTED)
    old, present = "disk.write>0", "storage.write>0"
    recordings = str(ROOT / "tests/fixtures/recordings_88776fb")
    known = values_named(copy.json("runs", recordings, "--where", present), "storage.write")
    assert known == values_named(copy.json("runs", recordings, "--where", old), "storage.write")
    assert len(known) == 3
