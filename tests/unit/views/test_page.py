"""The page of each kind of recording, without a browser."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import replace
from html import unescape
from pathlib import Path
from random import Random
from typing import Any

import pytest

from otel_quant.recordings.model import Ending, Recording
from otel_quant.recordings.reader import read
from otel_quant.schema import semconv
from otel_quant.schema.readings import LayerSeen
from otel_quant.views import report
from otel_quant.views.text import NO_BREAK
from tests.fixtures import recorded as built
from tests.fixtures.recorded import RecordedFolder

SENTENCES = re.compile(r'<div class="lead">(.*?)</div>', re.DOTALL)
HEADING = re.compile(r"<h1[^>]*>(.*?)</h1>")
DATA = re.compile(r'<script type="application/json" id="data">(.*?)</script>', re.DOTALL)
ROW = re.compile(r"<tr[^>]*>(.*?)</tr>")
CELL = re.compile(r"<t[hd][^>]*>(.*?)</t[hd]>")


def render(recording: Recording) -> str:
    """Returns a page; a number and its unit, which stay on one line, have a usual blank between them."""
    return report.render(recording).replace(NO_BREAK, " ")


def answer(html: str) -> list[str]:
    (lead,) = SENTENCES.findall(html)
    (heading,) = HEADING.findall(html)
    return [unescape(heading), *map(unescape, re.findall(r"<p>(.*?)</p>", lead))]


def data(html: str) -> dict[str, Any]:
    (found,) = DATA.findall(html)
    parsed: dict[str, Any] = json.loads(found)
    return parsed


def rows(html: str, table: str) -> list[list[str]]:
    body = html.partition(f'<table id="{table}"')[2].partition("</table>")[0]
    body = body.partition("<tbody>")[2]
    return [[unescape(cell) for cell in CELL.findall(row)] for row in ROW.findall(body)]


def test_what_reached_the_layers_of_a_calibration_is_a_table_the_worst_first(
    tmp_path: Path,
) -> None:
    recording = RecordedFolder(tmp_path / "r")
    process = recording.process().begin(0)
    index = process.step("Calibration", 1)
    seen = [
        LayerSeen("first", 40, 2_560, growth=1.25, settled=9),
        LayerSeen("experts.3", 0, 0),
        LayerSeen("last", 40, 2_560, growth=9.5, settled=38),
        LayerSeen("bad", 40, 2_560, is_finite=False, sample=17),
        *(LayerSeen(f"more.{at}", 40, 2_560) for at in range(20)),
    ]
    for layer in seen:
        process.observe(index, 2, layer)
    process.close(index, 2)
    process.end(3)
    page = render(read(tmp_path / "r"))
    table = f"calibration-{read(tmp_path / 'r').runs[0].process}-{index}"
    assert rows(page, table)[:4] == [
        ["bad", "40", "2,560", "no", "17", "", ""],
        ["experts.3", "0", "0", "yes", "", "", ""],
        ["last", "40", "2,560", "yes", "", "x 9.50", "38"],
        ["first", "40", "2,560", "yes", "", "x 1.25", "9"],
    ]
    assert "4 layers left out." in page


def test_each_figure_of_a_step_has_one_column(tmp_path: Path) -> None:
    recording = RecordedFolder(tmp_path / "r")
    process = recording.process().begin(0)
    peaks = {semconv.MEMORY_PEAK: 3 * 10**8, semconv.CACHE_GROWTH: 2 * 10**8}
    process.close(process.step("Calibration", 1), 2, attributes=peaks)
    process.end(3)
    page = render(read(tmp_path / "r"))
    table = page.partition('<table id="steps"')[2].partition("</table>")[0]
    head = [
        re.sub("<[^>]*>", "", cell).strip() for cell in CELL.findall(table.partition("<tbody>")[0])
    ]
    before, row, after = rows(page, "steps")
    assert head[-3:] == ["MEM PEAK MB", "CACHES MB", "STATE"]
    assert [re.sub("<[^>]*>", "", cell) for cell in row[-3:]] == ["300.0", "200.0", "ok"]
    assert len(set(head)) == len(head) == len(row)
    assert [each[:4] for each in (before, after)] == [
        ["(before the first step)", "0.00", "1.00", "33.3"],
        ["(after the last step)", "2.00", "1.00", "33.3"],
    ]


def test_the_page_of_a_successful_run_has_its_end_peak_duration_and_output(tmp_path: Path) -> None:
    assert answer(render(built.good(tmp_path))) == [
        "quantize.py finished in 10 min 00 s",
        "Memory peaked at 7.52 GB in Calibration > Collecting ranges, 5:40 after the start: "
        "94.0 % of the limit of 8.00 GB.",
        "20 steps took 9 min 59 s of 10 min 00 s, the longest Calibration > Collecting ranges: "
        "4 min 06 s, 41.0 % of the run.",
        "It wrote 2.65 GB to disk and filled its cache directory with 815 MB.",
        "Models written: models/resnet50_int8.onnx.",
    ]


def test_a_model_is_not_written_whose_last_step_has_failed(tmp_path: Path) -> None:
    process = RecordedFolder(tmp_path / "r").process().begin()
    for at, name, path, error in (
        (1, "Export", "a", None),
        (2, "Export", "b", "SystemExit"),
        (3, "Export", "c", "ValueError"),
        (4, "Export", "c", None),
        (5, "Calibration", "d", None),  # in which sys.exit() has ended the program
    ):
        step = process.step(name, at, attributes={semconv.OUTPUT_PATH: path})
        process.close(step, at + 0.5, **({"error": error} if error else {}))
    process.end(6)
    assert answer(render(read(tmp_path / "r")))[-1] == "Models written: a, c."


def test_the_page_of_a_killed_run_does_not_list_its_model_as_written(tmp_path: Path) -> None:
    whole = built.good(tmp_path)
    killed = replace(
        whole, state="killed", runs=(replace(whole.runs[0], state="killed", end=None),)
    )
    assert "Models written" in render(whole)
    assert "Models written" not in render(killed)


def test_the_page_of_a_failed_run_has_the_error_first(tmp_path: Path) -> None:
    assert answer(render(built.failed(tmp_path)))[:2] == [
        "quantize.py failed with exit code 1 after 28.0 s in Calibration",
        "RuntimeError: shapes (8, 3) and (4,) not aligned.",
    ]


def test_the_page_of_a_killed_run_has_signal_step_sample_and_advice(tmp_path: Path) -> None:
    html = render(built.killed(tmp_path))
    assert answer(html)[:2] == [
        "quantize.py was killed by SIGKILL after 6 min 36 s in Calibration, sample 37 of 512: "
        "out of memory",
        "Memory peaked at 7.95 GB in Calibration > Collecting ranges, 6:36 after the start: "
        "99.4 % of the limit of 8.00 GB.",
    ]
    block = html.partition('<section aria-labelledby="post-mortem"')[2].partition("</section>")[0]
    facts = re.findall(r"<dt>(.*?)</dt><dd>(.*?)</dd>", block)
    assert {unescape(name): unescape(value) for name, value in facts} == {
        "known from": "oom_kill in the cgroup's memory.events rose by 1.",
        "open steps": "Model Quantization > Calibration > Collecting ranges",
        "memory": "7.95 GB, 99.4 % of the limit of 8.00 GB (cgroup), 151 MB more with each sample",
        "largest": "python quantize.py 6.10 GB, python -m worker 1.00 GB",
    }
    assert re.findall(r"<li>(.*?) \[(.*?)\]</li>", block) == [
        ("Calibrate with fewer or smaller batches: each one kept 151 MB.", "growth of memory by sample in this run"),
        ("Choose a calibration method that keeps less, such as MinMax.", "Percentile keeps every activation that it has seen"),
    ]  # fmt: skip


def test_assumed_causes_are_marked_as_assumed(tmp_path: Path) -> None:
    killed = built.killed(tmp_path)
    assert killed.ending is not None
    html = render(replace(killed, ending=replace(killed.ending, out_of_memory="guessed")))
    assert "sample 37 of 512: out of memory, probably</h1>" in html
    assert "<dt>guessed from</dt>" in html


def test_times_of_steps_with_the_same_name_are_added_up(tmp_path: Path) -> None:
    process = RecordedFolder(tmp_path / "r").process().begin(0)
    for name, start, end in (("Export", 0, 3), ("Layer", 3, 5), ("Layer", 5, 7), ("Layer", 7, 10)):
        process.close(process.step(name, start), end)
    process.end(10)
    assert answer(render(read(tmp_path / "r")))[1:] == [
        "4 steps took 10.0 s of 10.0 s, most of it Layer (3 times): 7.00 s, 70.0 % of the run."
    ]


def test_times_of_steps_whose_names_differ_in_a_number_are_added_up(tmp_path: Path) -> None:
    process = RecordedFolder(tmp_path / "r").process().begin(0)
    for name, start, end in (("Export", 0, 4), ("layer.7", 4, 7), ("layer.8", 7, 10)):
        process.close(process.step(name, start), end)
    process.end(10)
    assert answer(render(read(tmp_path / "r")))[1:] == [
        "3 steps took 10.0 s of 10.0 s, most of it layer.* (2 times): 6.00 s, 60.0 % of the run."
    ]


def test_memory_that_grows_from_one_short_step_to_the_next_is_told(tmp_path: Path) -> None:
    made = RecordedFolder(tmp_path / "r")
    process = made.process().begin(0)
    for at in range(20):
        process.close(process.step(f"layer.{at}", at), at + 1)
    process.end(20)
    made.curve(((at / 5, {"memory": (1000 + 20 * at) * 10**6}, {}) for at in range(101)), "4711")
    assert (
        "Memory kept growing over layer.* (20 times), by 99.8 MB with each, 2.00 GB in all: a leak, or data that is kept."
        in answer(render(read(tmp_path / "r")))
    )


def test_steps_of_a_name_with_the_same_verdict_have_one_sentence_that_of_the_longest(
    tmp_path: Path,
) -> None:
    process = RecordedFolder(tmp_path / "r").process().begin(0)
    for number, (bound, ends) in enumerate((("lock", 3), ("lock", 7), ("waiting", 10))):
        told = {semconv.STEP_BOUND_BY: bound, semconv.STEP_BOUND_EVIDENCE: f"seen {number}"}
        start = (0, 3, 7)[number]
        process.close(process.step(f"shard {number}", start), ends, attributes=told)
    process.end(10)
    assert answer(render(read(tmp_path / "r")))[2:] == [
        "shard 1 (and 1 like it): bound by a lock that another thread has: seen 1.",
        "shard 2: bound by waiting: seen 2.",
    ]


def test_a_process_without_steps_that_was_killed_is_not_shown_in_place_of_the_steps(
    tmp_path: Path,
) -> None:
    made = RecordedFolder(tmp_path / "r", by_launcher=True)
    process = made.process(20).begin(0)
    bound = {semconv.STEP_BOUND_BY: "waiting", semconv.STEP_BOUND_EVIDENCE: "asleep"}
    process.close(process.step("Download", 0), 9, attributes=bound)
    process.end(10)
    made.process(10).begin(1).gone()
    made.ended(Ending(time=10, exit_code=0))
    found = read(tmp_path / "r")
    assert [run.state for run in found.runs if not run.steps] == ["lost"]
    assert "Download: bound by waiting: asleep." in answer(render(found))


def test_the_page_of_many_ranks_names_the_slowest_and_the_spread_of_each_step(
    tmp_path: Path,
) -> None:
    html = render(built.ranks(tmp_path))
    assert answer(html) == [
        "train.py finished in 2 min 20 s",
        "Memory of rank 63 peaked at 2.06 GB in Export ONNX: 25.8 % of the limit of 8.00 GB.",
        "1,280 steps in 64 processes took 2 min 20 s of 2 min 20 s, the longest Calibration > Collecting ranges: 57.4 s in one process, 41.0 % of the run.",
        "Models written: models/resnet50_int8.onnx.",
        "64 processes: rank 62 took longest in Model Quantization, 1 min 55 s, 39.2 % more than the median.",
    ]
    processes = rows(html, "processes")
    assert processes[0] == ["rank 62", "ok", "0.00", "140.00", "+39.2", "2,062.0", "20"]
    assert len(processes) == 64
    assert rows(html, "imbalance")[1] == [
        "Calibration", "64", "44.00", "44.26", "61.60", "rank 62", "+39.2",
    ]  # fmt: skip
    assert len(rows(html, "steps")) == 20


def test_a_run_of_64_ranks_shows_the_steps_of_the_one_that_failed(tmp_path: Path) -> None:
    whole = built.ranks(tmp_path)
    bad = replace(whole.runs[17], state="failed", end=30.0, error="ValueError")
    runs = (*whole.runs[:17], bad, *whole.runs[18:])
    html = render(replace(whole, runs=runs, state="failed"))
    assert "Steps of rank 17, which has failed" in html
    assert answer(html)[1] == "rank 17 failed with ValueError."


def test_the_models_are_compared_and_their_heaviest_layers_named(tmp_path: Path) -> None:
    html = render(built.good(tmp_path))
    assert rows(html, "models") == [
        ["File and external data", "97.5 MB", "25.1 MB", "x 0.257"],
        ["Parameters", "25.6 M", "25.6 M", "the same"],
        ["MACs", "4.12 G", "4.12 G", "the same"],
        ["MACs of contractions", "4.09 G", "4.09 G", "the same"],
        ["Weights", "97.5 MB", "25.1 MB", "x 0.257"],
        ["Peak of activations", "9.63 MB", "2.41 MB", "x 0.25"],
        ["Nodes", "122", "465", "x 3.81"],
        ["Contractions that ask for integers", "0.0 %", "99.8 %", ""],
    ]
    assert (
        "contractions ask for int8 99.80 %, float32 0.20 %, expected to run in float32 100.00 % by "
        "onnxruntime 1.31.1 on an x86-64 CPU, because the bias is int8 (Conv 53, the first"
    ) in html
    assert rows(html, "layers-quantized")[0][:3] == ["/layer1/conv1/Conv", "Conv", "int8"]
    assert rows(html, "layers-float")[0][4] == "17.0"


def test_a_local_file_makes_a_page_of_its_values(tmp_path: Path) -> None:
    html = render(built.from_a_profile(tmp_path))
    assert answer(html)[0] == "quark_profile.yaml finished in 1 min 00 s"
    assert [chart["id"] for chart in data(html)["charts"]] == ["memory"]
    assert "Read at checkpoints only" in html
    assert len(rows(html, "steps")) == 21


def test_the_page_of_an_empty_recording_states_that_it_is_empty(tmp_path: Path) -> None:
    html = render(built.nothing(tmp_path))
    assert answer(html) == [
        "empty stopped without an end record after 0 ms",
        "No step was recorded.",
    ]
    assert "No curve was recorded." in html


def one_reading(folder: Path) -> Recording:
    whole = built.good(folder, seconds=1.0, interval=1.0)
    return replace(whole, runs=(), curves=whole.curves)


def still_open(folder: Path) -> Recording:
    whole = built.killed(folder)
    steps = tuple(
        replace(step, state="running") if step.end is None else step for step in whole.runs[0].steps
    )
    run = replace(whole.runs[0], state="running", steps=steps)
    return replace(whole, state="running", ending=None, runs=(run,))


def unknown_limit(folder: Path) -> Recording:
    whole = built.good(folder, gpus=0)
    run = replace(whole.runs[0], attributes={semconv.MEMORY_PEAK: built.GB})
    return replace(whole, runs=(run,))


@pytest.mark.parametrize(
    ("make", "outcome", "meter"),
    [
        (one_reading, "quantize.py finished in 1.00 s", ("400 MB", "limit not known")),
        (still_open,
         "quantize.py had been running for 6 min 36 s when this was made: Calibration, sample 37 of 512",
         ("7.95 GB", "99.3 % of 8.00 GB")),
        (unknown_limit, "quantize.py finished in 10 min 00 s", ("7.52 GB", "limit not known")),
    ],
)  # fmt: skip
def test_missing_values_are_left_out(
    make: Callable[[Path], Recording], outcome: str, meter: tuple[str, str], tmp_path: Path
) -> None:
    html = render(make(tmp_path))
    assert answer(html)[0] == outcome
    assert re.findall(r"<strong>(.*?)</strong> <span>(.*?)</span>", html)[0] == meter


def test_thousands_of_steps_and_a_long_name_are_cut_with_a_count_of_what_was_cut(
    tmp_path: Path,
) -> None:
    whole = built.good(tmp_path)
    layers = tuple(
        built.step(20 + at, f"Layer {at % 3}", 421 + at / 100, 421 + (at + 0.5) / 100, parent=11)
        for at in range(5_000)
    )
    bad = replace(layers[-1], name="x" * 100_000, state="failed", error="ValueError")
    run = replace(whole.runs[0], steps=(*whole.runs[0].steps, *layers[:-1], bad))
    html = render(replace(whole, runs=(run,)))
    shown = rows(html, "steps")
    assert len(shown) == 251
    assert [(row[0], row[-1]) for row in shown if row[-1] != "ok"] == [
        ("x" * 120 + "… (99,880 more characters)", "failed: ValueError"),
        ("(after the last step)", ""),
    ]
    assert ("4,770 steps of 5,020 left out, the shortest: none took more than 5 ms.") in html
    assert len(html.encode()) <= 300_000


def test_ten_hours_fit_into_300_kb_and_keep_the_peak_and_its_time(tmp_path: Path) -> None:
    recording = built.good(tmp_path, seconds=36_000.0, interval=0.5)
    html = render(recording)
    assert len(html.encode()) <= 300_000
    buckets = recording.curves["launcher"].curve.buckets.values()
    highest = max((bucket.levels["memory"] for bucket in buckets), key=lambda level: level.highest)
    memory = data(html)["charts"][0]
    assert memory["mark"] == {
        "label": "peak 7.48 GB", "time": highest.at / 1000, "value": highest.highest,
    }  # fmt: skip
    values = next(each["values"] for each in memory["series"] if each["label"] == "memory")
    assert max(value for value in values if value is not None) == round(highest.highest / 1000)


def test_ten_hours_of_many_steps_with_eight_gpus_fit_into_300_kb(tmp_path: Path) -> None:
    folder = RecordedFolder(tmp_path / "r", by_launcher=True)
    random = Random(1)
    noisy = ["memory", "cache", *(f"process.python {n}.py ({n})" for n in range(5))]
    noisy += [f"gpu.{n}.{what}" for n in range(8) for what in ("used", "process_used")]
    folder.curve(
        (at, {name: random.randrange(10**11) for name in noisy}, {"disk.read": at, "cpu": at})
        for at in range(0, 36_000, 5)
    )
    process = folder.process().begin()
    for number in range(400):
        process.close(
            process.step(f"Layer {number}, whose name is long enough", 90 * number),
            90 * number + 80,
            attributes={semconv.MEMORY_PEAK: random.randrange(10**10), semconv.DISK_WRITE: 10**7},
        )
    process.end(36_000)
    assert len(render(read(tmp_path / "r")).encode()) <= 300_000


HOSTILE = "</script><img src=x onerror=alert(1)>\"'&\u202e{{ 7 * 7 }}"


def test_names_that_come_from_programs_are_escaped_everywhere(tmp_path: Path) -> None:
    whole = built.killed(tmp_path)
    assert whole.ending is not None
    steps = tuple(replace(step, name=HOSTILE) for step in whole.runs[0].steps)
    model = {**built.model("quantized", 1, 1), "path": HOSTILE, "error": HOSTILE}
    model["heaviest"] = [{"name": HOSTILE, "op_type": HOSTILE, "macs": 1, "precision": HOSTILE}]
    model["figures"] = {f"precision.{HOSTILE}": 1.0, "assumed": (HOSTILE,)}
    run = replace(whole.runs[0], steps=steps, error=HOSTILE, error_message=HOSTILE, models=(model,))
    html = render(
        replace(
            whole,
            path=Path(HOSTILE.replace("/", "")),
            runs=(run,),
            origin={"process.command_line": HOSTILE, HOSTILE: HOSTILE},
            problems=(HOSTILE,),
            ending=replace(
                whole.ending,
                where=HOSTILE,
                evidence=HOSTILE,
                open_steps=(HOSTILE, HOSTILE),
                processes=((HOSTILE, 1),),
                memory_limit_source=HOSTILE,
                advice=tuple(
                    replace(each, text=HOSTILE, source=HOSTILE) for each in whole.ending.advice
                ),
            ),
        )
    )
    assert "<img" not in html
    assert html.count("</script>") == 5
    assert "\u202e" not in html
    assert "49" not in answer(html)[0]


def test_a_page_refers_to_no_other_file(tmp_path: Path) -> None:
    html = render(built.killed(tmp_path))
    assert re.findall(r"<link|<img|<iframe|\bsrc=|@import|url\(", html) == []
    assert re.findall(r'\bhref="(?!#)', html) == []
    (policy,) = re.findall(r'Content-Security-Policy" content="([^"]*)"', html)
    names = [part.split()[0] for part in unescape(policy).split("; ")]
    assert names == ["default-src", "style-src", "script-src", "base-uri", "form-action"]
    assert "unsafe" not in policy
    assert "Permission is hereby granted, free of charge" in html  # uPlot's licence, with its code


def test_processes_that_a_script_starts_one_after_another_have_their_steps_in_one_table(
    tmp_path: Path,
) -> None:
    folder = RecordedFolder(tmp_path / "r")
    for pid, name, begins in ((11, "Calibration", 1.0), (12, "Model Quantization", 5.0)):
        process = folder.process(pid).begin(begins, run=f"{pid:016x}")
        process.close(process.step(name, begins + 0.5), begins + 2.5)
        process.end(begins + 3.0)
    html = render(read(tmp_path / "r"))
    assert [row[:4] for row in rows(html, "steps")] == [
        ["(before the first step)", "", "0.00", "1.50"],
        ["Calibration", "process 11", "1.50", "2.00"],
        ["Model Quantization", "process 12", "5.50", "2.00"],
        ["(between steps)", "", "", "2.00"],
        ["(after the last step)", "", "7.50", "0.50"],
    ]
    assert "The bands are the steps of" not in html
    assert "<p>2 processes.</p>" in html


def test_two_ranks_are_compared_by_the_same_step_and_have_no_median(tmp_path: Path) -> None:
    folder = RecordedFolder(tmp_path / "r")
    for rank, seconds, ends in ((0, 0.1, 9.0), (1, 0.5, 6.0)):
        process = folder.process(11 + rank).begin(1.0, f"{rank:016x}", rank=rank)
        process.close(process.step("Model Quantization", 2.0), 2.0 + seconds)
        process.close(process.step(f"Save {rank}", 3.0), 3.0 + 5 * (rank + 1))
        process.end(ends)
    html = render(read(tmp_path / "r"))
    assert answer(html)[-1] == "2 processes: rank 1 took longest in Model Quantization, 500 ms."
    assert rows(html, "imbalance") == [
        ["Model Quantization", "2", "0.10", "", "0.50", "rank 1", ""]
    ]
    assert [row[4] for row in rows(html, "processes")] == ["", ""]
    assert [row[1] for row in rows(html, "steps")] == ["", *["rank 0"] * 2, *["rank 1"] * 2, ""]


def test_processes_that_name_each_other_as_parent_are_shown(tmp_path: Path) -> None:
    """An id may recur: in another container, or after its process has ended."""
    folder = RecordedFolder(tmp_path / "r")
    for pid, parent in ((11, 1), (12, 13), (13, 12), (14, 14)):
        process = folder.process(pid, parent).begin(0.0, f"{pid:016x}")
        process.close(process.step("Layer", 0.0), 2.0)
        process.end(2.0)
    html = render(read(tmp_path / "r"))
    shown = ["process 11", "worker 12", "worker 13", "process 14"]
    assert [row[0] for row in rows(html, "processes")] == shown


def test_workers_are_compared_with_each_other_and_not_with_the_process_that_waits_for_them(
    tmp_path: Path,
) -> None:
    folder = RecordedFolder(tmp_path / "r")
    spans = {11: (0.0, 20.0), 12: (5.0, 8.0), 13: (5.0, 7.0), 14: (5.0, 7.0)}
    for pid, (begins, ends) in spans.items():
        process = folder.process(pid, 11 if pid > 11 else 1).begin(begins, f"{pid:016x}", rank=0)
        process.close(process.step("Layer", begins), ends)
        process.end(ends)
    html = render(read(tmp_path / "r"))
    expected = "4 processes: worker 12 took longest in Layer, 3.00 s, 50.0 % more than the median."
    assert answer(html)[-1] == expected
    assert [(row[0], *row[3:5]) for row in rows(html, "processes")] == [
        ("rank 0", "20.00", ""),
        ("worker 12", "3.00", "+50.0"),
        ("worker 13", "2.00", "0.0"),
        ("worker 14", "2.00", "0.0"),
    ]
    assert rows(html, "imbalance") == [["Layer", "3", "2.00", "2.00", "3.00", "worker 12", "+50.0"]]
