"""``otel-quant compare``: what it prints, and the gate's exit codes and lines."""

from __future__ import annotations

import csv
import io
import json
import os
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

from otel_quant.format.event_file import EXPECTED
from otel_quant.recordings.model import Ending
from otel_quant.recordings.summary import CACHE_PEAK, DISK_WRITE, GPU_ALLOCATED, GPU_PEAK
from otel_quant.schema import semconv
from otel_quant.schema.units import change_text
from otel_quant.views.text import NO_BREAK
from tests.fixtures.commands import Commands, Printed
from tests.fixtures.figures import named
from tests.fixtures.profiles import records
from tests.fixtures.recorded import RecordedFolder
from tests.unit.recordings.comparison.recorded_runs import MIB, record


@pytest.fixture(autouse=True)
def _without_limits(monkeypatch: pytest.MonkeyPatch) -> None:
    """The folder is a repository that has no file of limits."""
    Path(".git").mkdir()
    monkeypatch.delenv("GITHUB_STEP_SUMMARY", raising=False)


GATE = ["--fail-over", "memory.peak=10%", "--fail-over", "duration=20%"]

PROFILE = f"""\
{
    records(
        ("Start", 0, 100),
        ("Calibration Start", 1, 200),
        ("Calibration End", 3, 300),
        ("End", 4, 250),
    )
}
# Summary Metrics
total_quantization_time_seconds: 4.0
peak_memory_mb: 310.0

# Metric Definitions:
# - step: the point
# - timestamp: the time
# - relative_time_secs: seconds
# - cpu_memory_mb: MiB
# - total_quantization_time_seconds: seconds
# - peak_memory_mb: MiB
"""


Run = Callable[..., Printed]


@pytest.fixture
def run(command: Commands) -> Run:
    return partial(command, "compare")


def why_not(run: Run, *arguments: str) -> str:
    """Returns why runs cannot be compared."""
    code, _, err = run(*arguments)
    assert (code, err[:28]) == (3, "otel-quant: not comparable: ")
    return err[28:-1]


def larger(new: str, percent: str, side: str = "", base: str = "base") -> str:
    """Returns the sentence about a step whose peak is the peak of the run."""
    figures = f"memory.peak {new}, {base} 1.05 GB ({percent} %, limit memory.peak=10%)"
    paths = ("Model Quantization > Calibration", "Model Quantization", "total")
    return "worse: " + "; ".join(f"{side}{path}: {figures}" for path in paths)


TABLE = f"""\
b needs 10.0 % more memory and 13.9 % more time than a, both in Calibration.

STEP                              FIGURE             a        b  DIFFERENCE      %
--------------------------------  -----------  -------  -------  ----------  -----
total                             duration      18.0 s   20.5 s     +2.50 s  +13.9
total                             memory.peak  1.05 GB  1.15 GB     +105 MB  +10.0
Model Quantization > Calibration  cpu.time      10.5 s   13.0 s     +2.50 s  +23.8
Model Quantization > Calibration  duration      10.0 s   12.5 s     +2.50 s  +25.0
Model Quantization > Calibration  memory.peak  1.05 GB  1.15 GB     +105 MB  +10.0
equal, within 0.1 %, in total: {DISK_WRITE}

- Model Quantization > Fine-tuning: only in b
- Model Quantization > Post-process: only in a

DIFFERS      a       b
-----------  ------  ------
commit       c1      c2
onnxruntime  1.20.1  1.21.0
"""


def two_runs(**of_new: Any) -> None:
    """Records a base, `a`, and a run `b` that may differ."""
    record(Path("a"))
    record(Path("b"), **of_new)


def test_two_runs_are_compared_in_total_and_by_step(run: Run) -> None:
    record(Path("a"), origin={"vcs.ref.head.revision": "c1"})
    record(
        Path("b"), seconds=12.5, memory=1100,
        origin={"vcs.ref.head.revision": "c2", semconv.LIBRARIES: ["onnxruntime 1.21.0"]},
        steps=("Model Quantization", "Calibration", "Fine-tuning"),
    )  # fmt: skip
    assert run("a", "b") == (0, TABLE, "")


def test_several_runs_on_a_side_have_median_spread_and_a_test(run: Run) -> None:
    base = [str(record(Path(f"a{n}"), seconds=10 + n, memory=1000)) for n in range(4)]
    new = [str(record(Path(f"b{n}"), seconds=11 + n, memory=1200 + n)) for n in range(4)]
    code, out, _ = run("--base", *base, "--new", *new)
    total = out.partition("STEP ")[2].partition("\n\n")[0].splitlines()
    assert code == 0
    assert [" ".join(line.split()) for line in total if line[:1] in "te"] == [
        "total memory.peak 1.05 GB ± 0 % 1.26 GB ± 0 % +211 MB +20.2 p=0.029",
        f"equal, within 0.1 %, in total: {DISK_WRITE}",
        "equal or not significantly different: 5 figures of steps",
    ]


def test_json_and_csv_have_every_figure_in_bytes_and_seconds(run: Run) -> None:
    two_runs(seconds=12.5)
    code, out, _ = run("a", "b", "--format", "json", *GATE)
    data = json.loads(out)
    assert code == 1
    assert {name: value for name, value in data.items() if name not in ("rows", "gate")} == {
        "sides": [
            {"name": "base", "runs": [{"path": "a", "state": "ended", "problem": None}]},
            {"name": "new", "runs": [{"path": "b", "state": "ended", "problem": None}]},
        ],
        "differs": [],
    }
    outer, steps = "Model Quantization", [row["step"] for row in data["rows"]]
    assert steps == ["total", outer, f"{outer} > Calibration", f"{outer} > Post-process"]
    assert data["rows"][2]["figures"]["duration"] == {
        "unit": "s",
        "is_smaller_better": True,
        "sides": [sampled(10.0), sampled(12.5)],
        "differences": [{"change": 2.5, "ratio": 1.25, "p": None, "is_clear": True}],
    }
    gate = data["gate"]
    assert (gate["outcome"], gate["exit_code"], len(gate["checks"])) == ("worse", 1, 8)
    assert gate["checks"][0] == {
        "limit": "duration=20%", "figure": "duration", "step": "Model Quantization > Calibration",
        "side": "new", "outcome": "worse", "base": 10.0, "new": 12.5,
        "text": "worse: Model Quantization > Calibration: duration 12.5 s, a 10.0 s (+25.0 %, limit "
        "duration=20%)",
    }  # fmt: skip
    code, out, _ = run("a", "b", "--format", "csv")
    rows = list(csv.DictReader(io.StringIO(out)))
    assert len(rows) == sum(len(row["figures"]) for row in data["rows"])
    assert rows[0] == {
        "step": "total", "figure": "duration", "unit": "s",
        "base_runs": "1", "base_median": "18", "base_lowest": "18", "base_highest": "18",
        "new_runs": "1", "new_median": "20.5", "new_lowest": "20.5", "new_highest": "20.5",
        "new_change": "2.5", "new_ratio": "1.13888888889", "new_p": "", "new_is_clear": "yes",
    }  # fmt: skip


def sampled(value: float) -> dict[str, Any]:
    return {"median": value, "lowest": value, "highest": value, "values": [value]}


def test_a_third_run_is_compared_with_the_base_too(run: Run) -> None:
    for name, memory in (("a", 1000), ("b", 1050), ("c", 1300)):
        record(Path(name), memory=memory)
    code, out, err = run("a", "b", "c", *GATE)
    assert (code, err) == (1, f"otel-quant: {larger('1.36 GB', '+30.0', 'c: ', 'a')}\n")
    assert "a b DIFFERENCE % c DIFFERENCE %" in " ".join(out.split())


@pytest.mark.parametrize(
    ("new", "limits", "code", "said"),
    [
        ({}, GATE, 0, ""),
        ({"memory": 1120}, GATE, 1, larger("1.17 GB", "+12.0")),
        ({"seconds": 13}, GATE, 1,
         "worse: Model Quantization > Calibration: duration 13.0 s, base 10.0 s (+30.0 %, limit duration=20%)"),
        ({"memory": 1600}, ["--fail-over", "Calibration:memory.peak=500MiB"], 1,
         "worse: Model Quantization > Calibration: memory.peak 1.56 GiB, base 0.98 GiB (+60.0 %, "
         "limit Calibration:memory.peak=500MiB)"),
        ({"memory": 1500}, ["--fail-over", "Calibration:memory.peak=500MiB"], 0, ""),
        ({}, ["--fail-over", "Model Quantization > Post-process:memory.peak<=300MiB"], 1,
         "worse: Model Quantization > Post-process: memory.peak 400 MiB, base 400 MiB (limit Model "
         "Quantization > Post-process:memory.peak<=300MiB)"),
        ({}, ["--fail-over", "memory.peak <= 900 MiB"], 1,
         "worse: total: memory.peak 0.98 GiB, base 0.98 GiB (limit memory.peak <= 900 MiB)"),
        ({}, ["--fail-over", "Export:duration=5%"], 3, "not comparable: total: Export:duration=5%: no step 'Export' in base"),
        ({}, ["--fail-over", "cache.disk.peak=5%"], 3,
         f"not comparable: total: cache.disk.peak=5%: {CACHE_PEAK} is not known of base"),
        ({"steps": ("Model Quantization", "Calibration", "Export")},
         ["--fail-over", "Export:cpu.time<=5s"], 3,
         "not comparable: total: Export:cpu.time<=5s: cpu.time is not known of new"),
        ({"error": "MemoryError"}, GATE, 1, "worse: new failed with MemoryError in Calibration"),
        ({"ends": False}, GATE, 3, "not comparable: new has no end: the file is cut, or its process was killed"),
        ({"ends": False, "goes_on": True}, GATE, 3, "not comparable: new is still running"),
    ],
)  # fmt: skip
def test_the_gate_fails_over_a_limit_and_names_what_is_worse_or_incomparable(
    run: Run, new: dict[str, Any], limits: list[str], code: int, said: str
) -> None:
    record(Path("base"))
    record(Path("new"), **new)
    found, _, err = run("base", "new", *limits)
    assert (found, err) == (code, f"otel-quant: {said}\n" if said else "")


def test_gpu_memory_is_judged_by_what_is_allocated_not_by_what_is_reserved(run: Run) -> None:
    record(Path("base"), allocated=4000)
    record(Path("reserves"), allocated=4000, reserved=3000)
    record(Path("allocates"), allocated=4500)
    limit = ("--fail-over", "gpu.memory.peak=10%")
    assert run("base", "reserves", *limit)[0] == 0
    code, _, err = run("base", "allocates", *limit)
    assert code == 1
    assert err.startswith(
        f"otel-quant: worse: Model Quantization > Calibration: {GPU_ALLOCATED} 9.44 GB, base "
        "8.39 GB (+12.5 %, limit gpu.memory.peak=10%); "
    )
    record(Path("without"))
    assert why_not(run, "base", "without", *limit) == (
        f"total: gpu.memory.peak=10%: {GPU_ALLOCATED} is not known of without"
    )


def test_limits_of_the_repository_and_the_command_line_both_apply(run: Run) -> None:
    Path("otel-quant.toml").write_text('[compare]\nbudgets = ["memory.peak <= 900 MiB"]\n')
    two_runs()
    over = "worse: total: memory.peak 0.98 GiB, a 0.98 GiB (limit memory.peak <= 900 MiB)"
    assert run("a", "b", *GATE)[::2] == (1, f"otel-quant: {over}\n")
    Path("other.toml").write_text('[compare]\nfail-over = ["duration=20%"]\n')
    assert run("a", "b", "--config", "other.toml")[0] == 0


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["a"], "1 run given; expected the base and one or more to compare with it"),
        ([], "0 runs given; expected the base and one or more to compare with it"),
        (["a", "--base", "a", "--new", "b"],
         "--base and --new belong together, without other runs; expected --base RUN... --new RUN..."),
        (["a", "b", "--fail-over", "x"], "'x' is no limit; expected"),
        (["a", "b", "--config", "missing"],
         "missing: cannot be opened: No such file or directory; expected a file of limits"),
        (["a", "b", "--junit", "j.xml"], "--junit: there is no limit to report on; --fail-over"),
        (["a", "b", "-o", "missing/c"], "missing/c: cannot be opened: No such file or directory; expected a file"),
    ],
)  # fmt: skip
def test_an_invalid_command_line_has_its_own_exit_code(
    run: Run, arguments: list[str], said: str
) -> None:
    two_runs()
    code, _, err = run(*arguments)
    assert code == 2
    assert err.startswith(f"otel-quant: {said}")


def test_reports_for_ci_have_the_checks_and_the_new_figures(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    two_runs(seconds=13, waited=(0.1, 0.2))
    Path("summary.md").write_text("before\n")
    monkeypatch.setenv("GITHUB_STEP_SUMMARY", "summary.md")
    files = ("--junit", "j.xml", "--action-benchmark", "a.json", "--bencher", "b.json")
    assert run("a", "b", "--fail-over", "Calibration:duration=20%", *files)[0] == 1
    text = (
        "worse: Model Quantization > Calibration: duration 13.0 s, a 10.0 s (+30.0 %, limit "
        "Calibration:duration=20%)"
    )
    suites = ElementTree.parse("j.xml").getroot()
    assert [(each.tag, each.attrib, (each.text or "").strip()) for each in suites.iter()] == [
        ("testsuites", {}, ""),
        ("testsuite", {"name": "otel-quant compare", "tests": "1", "failures": "1", "errors": "0"}, ""),
        ("testcase", {"classname": "new: Model Quantization > Calibration", "name": "Calibration:duration=20%"}, ""),
        ("failure", {"type": "worse", "message": text}, text),
    ]  # fmt: skip
    figures = json.loads(Path("a.json").read_text())
    assert figures[0] == {
        "name": "total: duration", "unit": "s", "value": 21.0, "range": "± 0 ms",
        "extra": "Time from start to end",
    }  # fmt: skip
    assert {figure["name"] for figure in figures} >= {
        "total: memory.peak", "Model Quantization > Calibration: cpu.time",
    }  # fmt: skip
    steps = json.loads(Path("b.json").read_text())
    assert not any("wait" in name for step in steps.values() for name in step)
    assert not any("wait" in figure["name"] for figure in figures)
    assert steps["Model Quantization > Calibration"]["duration"] == {
        "value": 13.0, "lower_value": 13.0, "upper_value": 13.0,
    }  # fmt: skip
    summary = Path("summary.md").read_text()
    assert summary.startswith(
        "before\nworse: 1 of 1 check\n\nworse: Model Quantization \\> Calibration: "
    )
    assert "| STEP | FIGURE | a | b | DIFFERENCE | % |\n" in summary


def test_the_page_has_both_curves_in_one_plot_and_the_verdict_first(run: Run) -> None:
    two_runs(seconds=13)
    code, out, _ = run("a", "b", "--format", "html", *GATE)
    assert code == 1
    assert '<h1 class="bad">Worse: 1 of 8 checks</h1>' in out
    assert run("a", "b", "--format", "html", "-o", "c.html")[1:] == ("", "")
    assert "<h1>b needs 16.7 % more time than a, in Calibration" in Path(
        "c.html"
    ).read_text().replace(NO_BREAK, " ")


@pytest.mark.parametrize(
    ("new", "said"),
    [
        ({}, "; against a: memory and time equal"),
        ({"seconds": 10.1}, "; against a: time cannot be told apart; memory equal"),
        ({"memory": 1100}, "; against a: 10.0 % more memory, in Calibration; time equal"),
    ],
)
def test_a_failed_run_is_named_before_the_differences(
    run: Run, new: dict[str, Any], said: str
) -> None:
    two_runs(error="MemoryError", **new)
    first = run("a", "b")[1].splitlines()[0]
    assert first == f"b failed with MemoryError in Calibration{said}."


# --- runs that cannot be compared, or in part


def test_a_base_that_failed_cannot_be_compared(run: Run) -> None:
    record(Path("base"), error="RuntimeError")
    record(Path("new"))
    assert why_not(run, "base", "new", *GATE) == ("base failed with RuntimeError in Calibration")


@pytest.mark.parametrize("names", [("bad.yaml", "good"), ("good", "bad.yaml")])
def test_a_file_that_is_missing_cannot_be_compared(run: Run, names: tuple[str, str]) -> None:
    record(Path("good"))
    assert why_not(run, *names, *GATE) == (
        f"bad.yaml: cannot be opened: No such file or directory; {EXPECTED}"
    )


def test_quark_profiles_are_compared_by_the_values_that_they_have(run: Run) -> None:
    Path("a.yaml").write_text(PROFILE)
    Path("b.yaml").write_text(PROFILE.replace("300.0", "345.0"))
    code, out, err = run("a.yaml", "b.yaml", "--fail-over", "memory.seen=10%")
    over = "memory.seen 362 MB, a.yaml 315 MB (+15.0 %, limit memory.seen=10%)"
    assert (code, err) == (1, f"otel-quant: worse: Calibration: {over}; total: {over}\n")
    total = out.partition("STEP ")[2].partition("\n\n")[0].splitlines()
    figures = [line.split()[1] for line in total if line.startswith("total")]
    assert figures == ["memory.peak"]
    assert "\nequal, within 0.1 %, in total: duration (4.00 s)\n" in out
    page = run("a.yaml", "b.yaml", "--format", "html")[1].replace(NO_BREAK, " ")
    assert "Read at checkpoints only where no curve was taken" in page


def timed(
    path: str, steps: dict[str, dict[str, float]], command: str = "python q.py", **attributes: float
) -> None:
    """Records steps one after another, each with the steps within it, or with seconds of its own."""
    origin = {semconv.PROCESS_COMMAND_LINE: command}
    process, at = RecordedFolder(Path(path), origin=origin).process().begin(0), 0.0
    for name, within in steps.items():
        outer = process.step(name, at)
        for inner, seconds in within.items():
            if inner:
                process.close(process.step(inner, at, outer), at + seconds)
            at += seconds
        process.close(outer, at)
    process.end(at, attributes={f"quant.{name}": value for name, value in attributes.items()})


@pytest.mark.parametrize(
    ("base", "new", "said"),
    [
        # The innermost step is within the one that differs most.
        ({"A": {"": 10}, "B": {"C": 10}}, {"A": {"": 20}, "B": {"C": 16}}, "80.0 % more time than base, mostly in A"),
        ({"A": {"": 9, "x": 1}}, {"A": {"": 18, "x": 2}}, "twice the time of base, in A"),
        # Of two, that which has more than half of the difference is named; of two halves none.
        ({"A": {"x": 5, "y": 5, "z": 10}}, {"A": {"x": 15, "y": 16, "z": 5}}, "80.0 % more time than base, mostly in y"),
        ({"A": {"x": 9, "y": 9, "z": 2}}, {"A": {"x": 6, "y": 6, "z": 2}}, "30.0 % less time than base"),
        # A step that differs more makes up for others.
        (
            {"A": {"": 30}, "B": {"": 10}, "C": {"": 10}}, {"A": {"": 10}, "B": {"": 23}, "C": {"": 20}},
            "6.0 % more time than base, in B",
        ),
    ],
)  # fmt: skip
def test_the_first_sentence_names_the_step_that_the_difference_is_in(
    run: Run, base: dict[str, dict[str, float]], new: dict[str, dict[str, float]], said: str
) -> None:
    timed("base", base)
    timed("new", new)
    assert run("base", "new")[1].startswith(f"new needs {said}.\n")


def test_the_first_sentence_is_one_plain_sentence(run: Run) -> None:
    used = {named("cpu.user"): 5, named("cpu.system"): 0.5}
    for name, seconds, peak, cpu in (
        ("first", 10, 5 * 10**8, 5),
        ("second", 20.1, 1.7 * 10**9, 19),
    ):
        process = RecordedFolder(Path(name)).process().begin(0)
        figures = {semconv.MEMORY_PEAK: int(peak), f"quant.{named('cpu.user')}": cpu}
        process.close(process.step("Calibration", 0), seconds, attributes=figures)
        process.end(
            seconds, attributes=figures | {f"quant.{name}": of for name, of in used.items()}
        )
    sentence = "needs 3.4 times the memory and twice the time of first, both in Calibration."
    assert run("first", "second")[1].splitlines()[0] == f"second {sentence}"


def test_a_peak_is_in_the_step_that_has_it_and_steps_of_one_side_are_one_point(run: Run) -> None:
    for name, peak, after, layers in (("first", 4e8, 1e8, 0), ("second", 8e8, 7e8, 12)):
        process = RecordedFolder(Path(name)).process().begin(0)
        for at, (step, of) in enumerate(
            (("Calibration", peak), ("Save", after), *[("Layer", 1e8)] * layers)
        ):
            figures = {semconv.MEMORY_PEAK: int(of)}
            process.close(process.step(step, at), at + 1, attributes=figures)
        process.end(14, attributes={semconv.MEMORY_PEAK: int(peak)})
    out = run("first", "second")[1]
    assert out.startswith("second needs twice the memory of first, in Calibration; time equal.\n")
    assert "\n- only in second: Layer (12 times)\n" in out


@pytest.mark.parametrize(
    ("ratio", "said"),
    [
        (7.826, "7.8 times the memory"), (2.0, "twice the memory"), (1.95, "twice the memory"),
        (1.94, "94.0 % more memory"), (1.002, "0.20 % more memory"), (0.5, "50.0 % less memory"),
    ],
)  # fmt: skip
def test_what_is_twice_as_much_is_told_in_times(ratio: float, said: str) -> None:
    assert change_text(ratio, "memory") == said


def test_runs_are_called_by_the_ends_of_their_paths_that_tell_them_apart(run: Run) -> None:
    for name in ("mon/run", "tue/run"):
        Path(name).parent.mkdir()
        record(Path(name), memory=1000 if name < "n" else 2000)
    first = run("mon/run", "tue/run")[1].splitlines()[0]
    assert first == "tue/run needs twice the memory of mon/run, in Calibration; time equal."
    first = run("mon/run", "mon/run")[1].splitlines()[0]
    assert first == "new against base: memory and time equal."


def test_a_byte_more_of_480_kb_is_no_difference_and_a_word_less_of_a_command_is_one(
    run: Run,
) -> None:
    command = "python /home/someone/models/quantize.py --samples 128"
    for name, size, more in (("a", 480_000, ""), ("b", 480_001, " --method Percentile")):
        figures = {"model.quantized.size": size, "model.quantized.nodes": 329 + len(more)}
        timed(name, {"A": {"": 10}}, **figures, command=command + more)
    out = run("a", "b")[1]
    assert "equal, within 0.1 %, in total: duration (10.0 s), model.quantized.size\n" in out
    assert "total  model.quantized.nodes" in out
    assert "\ncommand  …  … --method Percentile\n" in out


HASH = semconv.CONFIG_HASH


@pytest.mark.parametrize(
    ("base", "new", "said"),
    [
        (
            {HASH: "aa", semconv.BITS: 8, semconv.PER_CHANNEL: False, semconv.FORMAT: "QDQ"},
            {HASH: "bb", semconv.BITS: 4, semconv.PER_CHANNEL: True, semconv.FORMAT: "QDQ"},
            ": per channel yes, not no; bits 4, not 8.",
        ),
        ({HASH: "aa"}, {HASH: "bb"}, ": in settings without an attribute of their own."),
        ({HASH: "aa", semconv.BITS: 8}, {HASH: "aa", semconv.BITS: 8}, ""),
        ({}, {HASH: "bb"}, ""),
        ({HASH: "aa", semconv.LIBRARY_NAME: "hqq"}, {HASH: "bb", semconv.LIBRARY_NAME: "nncf"}, ""),
    ],
)
def test_one_line_names_the_settings_in_which_configurations_differ(
    run: Run, base: dict[str, Any], new: dict[str, Any], said: str
) -> None:
    for name, attributes in (("base", base), ("new", new)):
        process = RecordedFolder(Path(name)).process().begin(0)
        process.close(process.step("A", 1, attributes=attributes), 2)
        process.end(3)
        process.gone()
    lines = [line for line in run("base", "new")[1].splitlines() if "configuration than" in line]
    assert lines == [f"new has another configuration than base{said}"] * bool(said)


@pytest.mark.parametrize(
    ("bits", "said"), [(8, "; no setting with an attribute differs"), (4, ": bits 4, not 8")]
)
def test_hashes_of_two_versions_are_not_compared(run: Run, bits: int, said: str) -> None:
    of_base = {HASH: "aa", semconv.BITS: 8}
    for name, attributes in (("base", of_base), ("new", {HASH: "2-bb", semconv.BITS: bits})):
        process = RecordedFolder(Path(name)).process().begin(0)
        process.close(process.step("A", 1, attributes=attributes), 2)
        process.end(3)
        process.gone()
    out = run("base", "new")[1]
    assert f"The hashes of two versions of otel-quant are not compared{said}." in out
    assert "another configuration" not in out


def test_figures_that_do_not_differ_are_named_below_the_table(run: Run) -> None:
    used = {named("cpu.user"): 5, named("cpu.system"): 0.5}
    same = used | {"model.float.size": 400, "model.float.macs": 7}
    of_base = {named("disk.read"): 50 << 20}
    for name, seconds, gpu, size in (("base", 10, 10**9, 100), ("new", 10.2, 2 * 10**9, 101)):
        figures = {**same, GPU_PEAK: gpu, "model.quantized.size": size, DISK_WRITE: size}
        timed(name, {"A": {"": seconds}}, **figures, **(of_base if name == "base" else {}))
    sentence = "new needs twice the GPU memory of all programs of base; time cannot be told apart"
    code, shown, _ = run("base", "new")
    assert (code, shown.splitlines()[0]) == (0, f"{sentence}.")
    notes = [
        f"not significant, or explained by CPU contention, in total: duration (10.0 s, 10.2 s), {DISK_WRITE}",
        "equal, within 0.1 %, in total: cpu.time (5.50 s), model.float.size, model.float.macs",
        "equal or not significantly different: 1 figure of steps",
    ]
    _, _, *rows = shown.split("\n\n")[1].splitlines()
    assert [line.split()[1] for line in rows[:-3]] == [
        GPU_PEAK, "model.quantized.size", named("disk.read"),
    ]  # fmt: skip
    assert rows[-4].split()[1:] == [named("disk.read"), "52.4", "MB", "-"]  # unknown is not equal
    assert rows[-3:] == notes
    page = run("base", "new", "--format", "html")[1].replace(NO_BREAK, " ")
    assert page.count(sentence) == 2  # the title of the tab, and of the page
    assert all(f">{note}<" in page for note in notes)


@pytest.mark.parametrize("ranks", [1, 2])
def test_a_profile_and_a_recording_are_compared_only_from_the_first_step(
    run: Run, ranks: int
) -> None:
    folder = RecordedFolder(Path("recording"), by_launcher=True)
    for rank in range(ranks):
        process = folder.process(4711 + rank).begin(9.0, f"{rank:016x}")
        step = process.step("Calibration", 10.0)
        peak = {"attributes": {semconv.MEMORY_PEAK: 310 * MIB}}
        process.close(step, 12.0, checkpoint={semconv.CHECKPOINT_MEMORY: 300 * MIB}, **peak)
        process.end(13.0, **peak)
    folder.curve([(at, {"memory": 900 * MIB}, {"cpu": at}) for at in (0.1, 11.0, 13.4)])
    folder.ended(Ending(time=13.5, exit_code=0, memory=900 * MIB), pid=1)
    Path("profile.yaml").write_text(f"{PROFILE}\nrun_end:\n  tree_peak_memory_mb: 310.0\n")
    gate = ["--fail-over", "duration=1%", "--fail-over", "memory.peak=1%"]
    for runs in (("recording", "profile.yaml"), ("profile.yaml", "recording")):
        code, out, err = run(*runs, *gate)
        if ranks == 1:
            assert (code, err) == (0, "")
            assert (
                "\nequal, within 0.1 %, in total: duration (4.00 s), memory.peak (325 MB)\n" in out
            )
            assert (
                "The total is from the first step to the exit: a run without `otel-quant run`"
                in out
            )
        else:
            counts = " in {}, ".join("12"[name == "recording"] for name in runs).format(runs[0])
            counts += f" in {runs[1]}"
            why = f"recorded processes {counts} (--force compares them all the same)"
            assert (code, err) == (
                3, f"otel-quant: not comparable: duration=1%: {why}; memory.peak=1%: {why}\n",
            )  # fmt: skip


def test_a_truncated_profile_is_shown_and_not_judged(run: Run) -> None:
    Path("a.yaml").write_text(PROFILE)
    Path("b.yaml").write_text(PROFILE[: PROFILE.index('- step: "End"')])
    code, out, err = run("a.yaml", "b.yaml")
    assert (code, err) == (0, "")
    assert out.startswith("b.yaml has no end: the file is cut, or its process was killed; against ")
    assert why_not(run, "a.yaml", "b.yaml", "--fail-over", "duration=20%") == (
        "b.yaml has no end: the file is cut, or its process was killed"
    )
    Path("b.yaml").write_text(PROFILE[: PROFILE.index("# Metric Definitions")])
    assert why_not(run, "a.yaml", "b.yaml", "--fail-over", "duration=20%") == (
        "b.yaml could not be read whole: the file has no end"
    )


def test_a_recording_whose_events_cannot_be_read_is_not_judged(run: Run) -> None:
    record(Path("base"))
    record(Path("new"))
    [events] = Path("new").glob("events.*.jsonl")
    events.unlink()
    os.mkfifo(events)
    assert why_not(run, "base", "new", "--fail-over", "duration=20%") == (
        f"new could not be read whole: {events.name} cannot be read: not a regular file"
    )


SCRIPTS = "script quantize.py in base, export.py in new (--force compares them all the same)"


@pytest.mark.parametrize(
    ("origin", "limit", "said"),
    [
        ({"process.command_line": "python export.py"}, "model.float.size=1%", SCRIPTS),
        ({"process.command_line": "python export.py"}, "memory.peak=10%", SCRIPTS),
        ({"process.command_line": "python export.py"}, "memory.peak <= 12 GiB", ""),
        ({"process.command_line": "python quantize.py --samples 64"}, "memory.peak=10%", ""),
        ({"process.command_line": "python3 /build/quantize.py"}, "memory.peak=10%", ""),
        ({"host.name": "build-8"}, "duration=20%", ""),
        ({"host.cpu.model.name": "Xeon"}, "duration=20%",
         "CPU EPYC in base, Xeon in new (--force compares them all the same)"),
        ({"host.cpu.model.name": "Xeon"}, "memory.peak=10%", ""),
        ({semconv.CPU_COUNT: 64}, "memory.peak=10%", "CPUs 8 in base, 64 in new (--force compares them all the same)"),
        ({semconv.LIBRARIES: ["onnxruntime 1.21.0"]}, "disk.write=10%", ""),
        ({semconv.LIBRARIES: ["onnxruntime 1.21.0"]}, "memory.peak=10%",
         "onnxruntime 1.20.1 in base, 1.21.0 in new (--force compares them all the same)"),
        ({semconv.MEMORY_LIMIT: 8 << 30}, "duration=20%",
         "limit of memory 17.2 GB in base, 8.59 GB in new (--force compares them all the same)"),
        ({semconv.MEMORY_LIMIT: (16 << 30) - 4096}, "duration=20%", ""),
    ],
)  # fmt: skip
def test_unlike_runs_are_compared_only_in_unaffected_values_unless_forced(
    run: Run, origin: dict[str, Any], limit: str, said: str
) -> None:
    record(Path("base"), origin={semconv.MEMORY_LIMIT: 16 << 30})
    record(Path("new"), origin={semconv.MEMORY_LIMIT: 16 << 30, **origin})
    code, _, err = run("base", "new", "--fail-over", limit)
    expected = f"otel-quant: not comparable: {limit}: {said}\n" if said else ""
    assert (code, err) == (3 if said else 0, expected)
    if said and "model" not in limit:
        assert run("base", "new", "--fail-over", limit, "--force")[0] == 0


def test_runs_without_a_common_step_are_of_different_programs(run: Run) -> None:
    Path("a.yaml").write_text(PROFILE)
    Path("b.yaml").write_text(PROFILE.replace("Calibration", "Export ONNX"))
    assert why_not(run, "a.yaml", "b.yaml", "--fail-over", "duration=20%") == (
        "total: duration=20%: no step is in both: these are runs of different programs"
    )
    out = run("a.yaml", "b.yaml")[1]
    assert "No step of b.yaml is in a.yaml: these are runs of different programs." in out


def test_waits_alone_are_no_difference(run: Run) -> None:
    record(Path("a"), waited=(0.1, 1.2))
    record(Path("b"), waited=(0.1, 1.6))
    out = run("a", "b")[1]
    assert "STEP " not in out
    assert "cpu.waits" in out
