"""One summary: the totals of a recording, which are the same in every command, also of a figure that is declared later."""

from __future__ import annotations

import json
import os
import re
import shutil
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final

import pytest

from otel_quant.format.series import SINCE
from otel_quant.recordings import summary
from otel_quant.recordings.compared_runs import compared_run
from otel_quant.recordings.model import Ending, RecordedRun, Recording, path_text
from otel_quant.recordings.reader import read
from otel_quant.schema import semconv
from otel_quant.schema.units import size
from otel_quant.sending.identifiers import Identifiers
from otel_quant.sending.replay import Replay
from otel_quant.views import report
from otel_quant.views.endings import ending_facts
from otel_quant.views.watch import Looked
from tests.fixtures.commands import Commands
from tests.fixtures.figures import named
from tests.fixtures.programs import run_script
from tests.fixtures.recorded import RecordedFolder
from tests.unit.cli.shown_profiles import COMPLETE

RECORDINGS: Final = Path(__file__).resolve().parents[2] / "fixtures" / "recordings_88776fb"
PEAK: Final = semconv.MEMORY_PEAK
LIMIT: Final = semconv.MEMORY_LIMIT
MB: Final = 10**6


@pytest.mark.parametrize("name", ["good", "killed", "ranks"])
def test_old_recordings_have_all_their_figures(name: str) -> None:
    run = compared_run(name, read(RECORDINGS / name))
    figures = {"total": run.total} | {path_text(p): each.figures for p, each in run.steps.items()}
    assert {
        step: {figure: round(value, 6) for figure, value in known.items()}
        for step, known in figures.items()
    } == {
        step: {named(figure): value for figure, value in known.items()}
        for step, known in json.loads((RECORDINGS / "figures.json").read_text())[name].items()
    }


LEAK: Final = "Memory kept growing in Train, by {}: a leak, or data that is kept."


@pytest.mark.parametrize("bound_by", ["importing", "waiting"])
@pytest.mark.parametrize(
    ("memory", "samples", "said"),
    [
        (lambda at: 1000 + 50 * at, None, LEAK.format("50.0 MB a second, 2.00 GB in all")),
        (
            lambda at: 1000 + 50 * at, 200,
            LEAK.format("10.0 MB with each sample, 2.00 GB in all"),
        ),
        (  # it began late: by what it has grown, not by the slope for all of the time
            lambda at: 1000 + 50 * max(0, at - 8), None,
            LEAK.format("39.9 MB a second, 1.60 GB in all"),
        ),
        (lambda at: 1000 + at, None, None),  # too little
        (lambda at: 1000 + 50 * (at % 10), None, None),
        (lambda at: 1000 + 1000 * (at > 20), None, None),
        (lambda at: 1000 + 1000 * min(at, 10), None, None),
    ],
)  # fmt: skip
def test_memory_that_keeps_growing_in_a_step_is_a_leak_unless_modules_are_imported(
    memory: Callable[[float], float], samples: int | None, said: str | None, bound_by: str,
    tmp_path: Path, command: Commands,
) -> None:  # fmt: skip
    folder = RecordedFolder(tmp_path / "r", {LIMIT: 8000 * MB}, by_launcher=True)
    process = folder.process().begin(0)
    bound = {semconv.STEP_BOUND_BY: bound_by}
    process.close(process.step("Train", 1), 41, samples=samples, attributes=bound)
    process.end(42)
    times = [at / 5 for at in range(5, 205)]
    folder.curve([(at, {"memory": memory(at - 1) * MB}, {}) for at in times])
    folder.ended(Ending(time=42, exit_code=0))
    shown = " ".join(command.output("show", folder.path).split())
    is_said = said is not None and bound_by != "importing"
    assert (str(said) in shown) if is_said else "growing" not in shown


def test_memory_that_grows_by_samples_as_they_begin_is_told_though_the_curve_is_full_of_teeth(
    tmp_path: Path, command: Commands
) -> None:
    folder = RecordedFolder(tmp_path / "r", {LIMIT: 8000 * MB}, by_launcher=True)
    process = folder.process().begin(0)
    known = {semconv.FORECAST_MEMORY_PER_SAMPLE: 5 * MB}
    process.close(process.step("Train", 1), 41, samples=200, attributes=known)
    process.end(42)
    times = [at / 5 for at in range(5, 205)]
    teeth = [(at, {"memory": (1000 + 500 * (at * 7 % 10)) * MB}, {}) for at in times]
    folder.curve(teeth)
    folder.ended(Ending(time=42, exit_code=0))
    shown = " ".join(command.output("show", folder.path).split())
    assert "kept growing in Train, by 5.00 MB with each sample, 1.00 GB in all: a leak" in shown


@pytest.mark.parametrize(
    ("waited", "used", "is_busy"), [(110, 20, True), (5, 20, False), (110, 250, False)]
)
def test_a_run_that_waited_for_a_busy_cpu_has_one_line_about_it(
    waited: int, used: int, is_busy: bool, tmp_path: Path, command: Commands
) -> None:
    folder = RecordedFolder(tmp_path / "r", {semconv.CPU_LIMIT: 2.0}, by_launcher=True)
    process = folder.process().begin(0)
    evidence = "its thread waited 80 % of its time for a processor"
    bound = {semconv.STEP_BOUND_BY: "other_programs", semconv.STEP_BOUND_EVIDENCE: evidence}
    process.close(process.step("Calibration", 1), 138, attributes=bound)
    process.end(139)
    folder.curve([(138, {"memory": MB}, {"cpu": used, "cpu.wait": waited})])
    folder.ended(Ending(time=139, exit_code=0))
    said = "For 1 min 50 s of 2 min 19 s its main thread waited for a processor: a busy machine."
    shown = command.output("show", folder.path) + command.output("report", folder.path, "-o", "-")
    shown = shown.replace("\xa0", " ")
    assert shown.count(said) == (2 if is_busy else 0)
    assert shown.count(evidence) == (0 if is_busy else 2)


# --- every command ------------------------------------------------------------------------


def copied(name: str) -> Callable[[Path], Path]:
    def make(folder: Path) -> Path:
        shutil.copytree(RECORDINGS / name, folder / "r")
        return folder / "r"

    return make


def without_a_launcher(folder: Path) -> Path:
    path = copied("killed")(folder)
    manifest = json.loads((path / "manifest.json").read_text())
    for field in ("ending", "ended", "summary"):
        del manifest[field]
    manifest["made_by"] = "process"
    (path / "manifest.json").write_text(json.dumps(manifest))
    # The curve that the process then has itself: the reading that was highest is in it.
    (path / "curve.launcher.jsonl").rename(path / "curve.5734.jsonl")
    return path


def failed(folder: Path) -> Path:
    recording = RecordedFolder(folder / "r", {LIMIT: 900 * MB}, by_launcher=True)
    process = recording.process(parent=os.getpid()).begin(0, attributes={LIMIT: 800 * MB})
    step = process.step("Calibration", 1)
    process.close(step, 3, attributes={PEAK: 300 * MB}, error="ValueError")
    process.end(4, attributes={PEAK: 310 * MB, semconv.MEMORY_PROCESS_PEAK: 305 * MB}, error="E")
    recording.curve([(0.5, {"memory": 250 * MB}, {}), (2, {"memory": 320 * MB}, {})])
    recording.ended(Ending(time=4.5, exit_code=1, memory=200 * MB, memory_limit=800 * MB))
    return folder / "r"


def profile_in(folder: Path) -> Path:
    return copied("good")(folder) / "quark_profile.yaml"


def of_quarks_own(folder: Path) -> Path:
    (folder / "quark.yaml").write_text(COMPLETE)
    return folder / "quark.yaml"


def cut_profile(folder: Path) -> Path:
    (folder / "cut.yaml").write_text(COMPLETE[: COMPLETE.index('- step: "End"')])
    return folder / "cut.yaml"


@pytest.mark.parametrize(
    ("make", "expected"),
    [
        (copied("good"), 336_969_728),
        (copied("killed"), 239_177_728),
        (copied("ranks"), 180_240_384),
        (without_a_launcher, 239_177_728),
        (failed, 320 * MB),
        (profile_in, 336_718_725),  # as exact as a profile is
        (of_quarks_own, 1_992_420_229),
        (cut_profile, 1_887_698_944),
    ],
)
def test_every_command_has_the_same_peak_and_limit(
    make: Callable[[Path], Path], expected: int, tmp_path: Path, command: Commands
) -> None:
    path = make(tmp_path)

    def of_command(*words: object) -> Any:
        return json.loads(command.output(*words, "--format", "json"))

    recording = read(path)
    limit = summary.limit(recording)
    assert summary.value(recording, summary.MEMORY_PEAK) == expected
    assert summary.value(read(path, in_brief=True), summary.MEMORY_PEAK) == expected
    assert summary.limit(read(path, in_brief=True)) == limit
    shown = of_command("show", path)
    assert {each["recording"]["memory_peak"] for each in shown} == {expected}
    if len(shown) == 1:
        assert shown[0]["run"]["tree_peak_memory_mb"] == round(expected / 2**20, 2)
    assert [run[summary.MEMORY_PEAK] for run in of_command("runs", path)["runs"]] == [expected]
    compared = of_command("compare", path, path)["rows"][0]["figures"][summary.MEMORY_PEAK]
    assert [side["values"] for side in compared["sides"]] == [[expected], [expected]]
    live = Looked(recording).memory()
    assert (live.peak, live.limit) == (expected, limit.value if limit else None)
    _, meters = next(iter(report.document(recording).parts)).parts
    _, *meter = meters.rows[0]
    assert meter == [expected, limit.value if limit else None]
    sent = [sent_of(recording, run) for run in recording.runs]
    assert max(peak for peak, _ in sent) <= expected
    if len(sent) == 1:
        assert sent == [(expected, limit.value if limit else None)]
    if recording.ending is not None:  # what the post-mortem reports
        told = dict(ending_facts(recording.ending))["memory"]
        assert limit is not None
        assert f"the limit of {size(limit.value)}" in told


def sent_of(recording: Recording, run: RecordedRun) -> tuple[Any, Any]:
    """Returns the peak and the limit that are sent of a run: on its span, and the peak as a metric."""
    replay = Replay(run, recording, Identifiers(recording)).play()
    root = max(replay.kept.spans, key=lambda span: span.end_time - span.start_time)
    peak, limit = root.attributes.get(PEAK), root.attributes.get(LIMIT)
    peak = root.attributes.get(semconv.MEMORY_HIGHEST_KNOWN, peak)
    points = {
        metric.name: metric.data.data_points
        for data, _ in replay.meters.all()
        for metric in data.resource_metrics[0].scope_metrics[0].metrics
    }
    if semconv.RUN_MEMORY_PEAK in points:
        assert [point.value for point in points[semconv.RUN_MEMORY_PEAK]] == [peak]
    return peak, limit


# --- the rules ----------------------------------------------------------------------------


def recorded(
    folder: Path,
    step: Mapping[str, Any] | None = None,
    run: Mapping[str, Any] | None = None,
    seen: int = 1,
    reading: Mapping[str, Any] | None = None,
    launcher: int | None = None,
    own: int | None = None,
    ending: int | None = None,
) -> Recording:
    """Makes a recording in which each place that may know of memory has what is asked."""
    made = RecordedFolder(folder / "r", by_launcher=launcher is not None)
    process = made.process().begin(0)
    index = process.step("Calibration", 1, checkpoint={semconv.CHECKPOINT_MEMORY: seen})
    if reading is None:
        process.close(index, 3, attributes=step or {})
        process.end(4, attributes=run or {})
    else:
        process.state(3, **reading)
    process.gone()
    for name, peak in (("launcher", launcher), ("4711", own)):
        if peak is not None:
            made.curve([(2, {"memory": peak}, {}), (2.5, {"memory": 2}, {})], name)
    if ending is not None:
        made.ended(Ending(time=4, signal="SIGKILL", memory=ending))
    return read(folder / "r")


@pytest.mark.parametrize(
    ("known", "source", "where", "time"),
    [
        ({"step": {PEAK: 9}, "run": {PEAK: 8}}, "sampled", "Calibration", None),
        ({"step": {PEAK: 9, semconv.MEMORY_PEAK_SOURCE: "kernel"}}, "kernel", "Calibration", None),
        ({"run": {PEAK: 9}, "step": {PEAK: 5}}, "sampled", None, None),
        ({"run": {semconv.MEMORY_PROCESS_PEAK: 9, PEAK: 8}}, "kernel", None, None),
        ({"seen": 9}, "checkpoints", "Calibration", 1),
        ({"reading": {semconv.READING_MEMORY_PEAK: 9, semconv.READING_MEMORY: 7}}, "last reading", None, None),
        ({"reading": {semconv.READING_MEMORY: 9}}, "last reading", None, None),
        ({"launcher": 9, "run": {PEAK: 8}}, "launcher", "Calibration", 2),
        ({"reading": {semconv.READING_MEMORY: 8}, "own": 9}, "process", "Calibration", 2),
        ({"reading": {semconv.READING_MEMORY: 8}, "launcher": 7, "ending": 9}, "ending", None, None),
    ],
)  # fmt: skip
def test_the_peak_is_the_highest_known_value(
    tmp_path: Path, known: dict[str, Any], source: str, where: str | None, time: float | None
) -> None:
    peak = summary.peak(recorded(tmp_path, **known))
    assert peak is not None
    assert (peak.value, peak.source, peak.time) == (9, source, time)
    assert (peak.step.name if peak.step is not None else None) == where


def test_the_end_record_is_used_before_the_curve_and_missing_values_stay_missing(
    tmp_path: Path,
) -> None:
    peak = summary.peak(recorded(tmp_path, run={PEAK: 8}, own=9))
    assert peak is not None
    assert peak.value == 8
    RecordedFolder(tmp_path / "none", by_launcher=True).ended(Ending(time=1, exit_code=0))
    nothing = read(tmp_path / "none")
    assert (summary.peak(nothing), summary.limit(nothing)) == (None, None)
    assert summary.values(nothing) == {"duration": 1}


@pytest.mark.parametrize(
    ("parent", "end", "expected"),
    [
        (os.getpid(), 3, 9),  # the program itself: the launcher may have seen more than it did
        (1, 3, 5),  # a process below it: the curve has others too
        (1, None, 9),  # an open step has no other values
    ],
    ids=["the program", "below it", "open"],
)
def test_the_launchers_curve_is_used_for_steps_of_the_program(
    tmp_path: Path, parent: int, end: float | None, expected: int
) -> None:
    folder = RecordedFolder(tmp_path / "r", by_launcher=True)
    process = folder.process(parent=parent).begin(0)
    step = process.step("Calibration", 1)
    if end is not None:
        process.close(step, end, attributes={PEAK: 5})
    process.gone()
    folder.curve([(0.5, {"memory": 99}, {}), (2, {"memory": 9}, {}), (3.5, {"memory": 8}, {})])
    recording = read(tmp_path / "r")
    (run,) = recording.runs
    assert summary.StepSummary(recording, run).value(run.steps[0], summary.MEMORY_PEAK) == expected


@pytest.mark.parametrize(
    ("since", "mark", "expected"),
    [
        (2200, None, 9),  # all of the interval is in the step
        (1000, None, 9),
        (999, None, 4),  # the step began in it: what was in use when it was read
        (999, 8, 9),  # ... and had a lower mark then
        (999, 9, 4),
        (0, None, None),  # told after the program's end
        (0, 8, 9),
        (None, None, 9),  # of an earlier version
    ],
)
def test_a_mark_of_the_kernel_belongs_to_what_was_open_since_it_may_have_risen(
    tmp_path: Path, since: int | None, mark: int | None, expected: int | None
) -> None:
    folder = RecordedFolder(tmp_path / "r", by_launcher=True)
    process = folder.process(parent=os.getpid()).begin(0)
    step = process.step("Calibration", 1, mark=mark)
    process.close(step, 3)
    process.gone()
    totals = {} if since is None else {SINCE: since}
    folder.curve([(2.31, {"memory": 9}, totals), *([(2.31, {"memory": 4}, {})] if since else [])])
    recording = read(tmp_path / "r")
    (run,) = recording.runs
    assert summary.StepSummary(recording, run).value(run.steps[0], summary.MEMORY_PEAK) == expected
    assert summary.value(recording, summary.MEMORY_PEAK) == 9
    peak = summary.peak(recording)
    assert peak is not None
    assert (peak.step is not None) == (expected == 9)


@pytest.mark.parametrize(
    ("origin", "run", "ending", "expected"),
    [
        ({LIMIT: 9}, {}, None, (9, None)),
        ({LIMIT: 9}, {LIMIT: 8, semconv.MEMORY_LIMIT_SOURCE: "cgroup"}, None, (8, "cgroup")),
        ({LIMIT: 8}, {LIMIT: 8, semconv.MEMORY_LIMIT_SOURCE: "cgroup"}, None, (8, "cgroup")),
        ({}, {LIMIT: 8}, Ending(time=1, memory_limit=7, memory_limit_source="cgroup"), (7, "cgroup")),
        ({}, {LIMIT: 8}, Ending(time=1, memory_limit=7, memory_limit_source="RLIMIT_AS"), (8, None)),
        ({}, {LIMIT: 8}, Ending(time=1, memory_limit=7, memory_limit_source="gpu 0"), (8, None)),
        ({}, {}, None, None),
    ],
)  # fmt: skip
def test_the_limit_is_the_smallest_known_limit(
    tmp_path: Path, origin: dict[str, Any], run: dict[str, Any], ending: Ending | None,
    expected: tuple[int, str | None] | None,
) -> None:  # fmt: skip
    folder = RecordedFolder(tmp_path / "r", origin)
    process = folder.process().begin(0, attributes=run)
    process.end(1)
    if ending is not None:
        folder.ended(ending)
    assert summary.limit(read(tmp_path / "r")) == expected


def test_a_folder_and_the_profile_in_it_are_shown_with_the_same_columns(command: Commands) -> None:
    shown = []
    for path in (RECORDINGS / "good", RECORDINGS / "good" / "quark_profile.yaml"):
        text = command.output("show", path)
        lines = r"^STEP +(?!LIBRARY| ).*\n.*\n.*\n|^(?:Memory peaked at [0-9.]+ .B|(?:memory|command) .*)"
        found = re.findall(lines, text, re.M)
        shown.append([re.sub(" +|-+", " ", line) for line in found])  # whatever their width
    assert shown[0][0] == shown[1][0]
    assert [re.sub(r"[0-9.]+", "N", line) for line in shown[0]] == [
        re.sub(r"[0-9.]+", "N", line) for line in shown[1]
    ]


DECLARED: Final = """
import sys
from otel_quant.schema import figures
from otel_quant.schema.figures import Figure, Resource, YamlColumn
example = Resource("example", (
    Figure("example.received", "By", "Bytes received", lambda each: each, ("delta",), "1",
           checkpoint="example_received", column=YamlColumn("example_received_mb", "Received."),
           kind="disk", heading="RECEIVED", curve="example.received", matters=10_000_000,
           former=("example.got",)),
    Figure("example.open", "{connection}", "Connections", lambda each: each,
           ("start", "end", "delta", "peak"), "1", kind="activity", heading="OPEN"),
))
figures.RESOURCES += (example,)
from otel_quant.cli import main
sys.exit(main(sys.argv[1:]))
"""


def run(folder: Path, *arguments: str, code: int = 0) -> str:
    """Runs a command of an otel-quant whose schema has two figures more."""
    return run_script(folder, DECLARED, *arguments, code=code)[0]


def test_a_declared_figure_is_in_every_command_also_under_its_former_name(tmp_path: Path) -> None:
    for folder, received in (("base", 100_000_000), ("near", 105_000_000), ("new", 150_000_000)):
        process = RecordedFolder(tmp_path / folder, by_launcher=True).process().begin(0)
        figures = {"quant.example.got": received, "quant.example.open.peak": 7}
        process.close(process.step("Calibration", 1), 2, attributes=figures)
        process.end(3, attributes=figures)
    (shown,) = json.loads(run(tmp_path, "show", "base", "--format", "json"))
    _, step, _ = shown["steps"]
    assert (step["example_received_mb"], step["example_open_peak"]) == (95.37, 7)
    table = run(tmp_path, "show", "base")
    assert "RECEIVED" in table
    assert "OPEN PEAK" in table
    page = run(tmp_path, "report", "base", "-o", "-")
    assert 'title="Bytes received">RECEIVED <small>MB</small>' in page
    rows = json.loads(
        run(tmp_path, "runs", ".", "--where", "example.received > 120 MB", "--format", "json")
    )["runs"]
    assert [(row["path"], row["example.received"]) for row in rows] == [("new", 150_000_000)]
    same = "not significant, or explained by CPU contention, in total: example.received\n"  # less than `matters`
    for folder, code, said in (("near", 0, same), ("new", 1, "  example.received  ")):
        arguments = ("compare", "base", folder, "--fail-over", "example.received=1%")
        compared = run(tmp_path, *arguments, code=code)
        assert said in compared
