"""Stacks of steps: what is folded keeps its sum, and a file of them is read as it was written."""

from __future__ import annotations

import gzip
import json
import random
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from otel_quant.diagnosis.stack_trees import MOST_NODES, Stacks
from otel_quant.format.event_file import as_json, stacks_as_lists
from otel_quant.recordings.compared_runs import compared_run
from otel_quant.recordings.model import RecordedRun, Recording, steps_in
from otel_quant.recordings.reader import (
    SeenStack,
    alike,
    by_call,
    by_line,
    of_step,
    stacks_in,
    unseen_in,
)
from otel_quant.recordings.side_by_side import Side, side_by_side
from otel_quant.schema import semconv
from otel_quant.schema.code_lines import DEEPEST, NOTHING, OTHER, UNSEEN, Amounts, Place
from otel_quant.views.compare import document
from otel_quant.views.show import document as show_document
from otel_quant.views.stacks import answer, collapsed, pprof, speedscope
from otel_quant.views.writers import terminal_text, written
from tests.fixtures.recorded import step

MAIN = Place("/home/a/quantize.py", "main", 12, "")
LOADER = Place("/home/a/quantize.py", "Reader.get_next", 30, "")
RUN = Place("onnxruntime/capi/session.py", "Session.run", 395, "onnxruntime")
MERGE = Place("onnxruntime/quantization/calibrate.py", "Collector.merge", 983, "onnxruntime")

CPU, BOUND = semconv.CPU_USER, semconv.STEP_BOUND_BY

Seen = tuple[int, tuple[Place, ...], Amounts]

SEEN: tuple[Seen, ...] = (
    (0, (MAIN,), Amounts(10, 9, 1, 1000, 0)),
    (1, (MAIN, RUN), Amounts(400, 300, 50, 5000, 20)),
    (1, (MAIN, RUN), Amounts(100, 0, 0, 0, 30)),
    (1, (MAIN, MERGE), Amounts(200, 200, 0, 70000, 0)),
    (1, (MAIN, RUN, LOADER), Amounts(300, 10, 0, 0, 0)),
)


def recorded(folder: Path, every: Sequence[Seen] = SEEN, seconds: float = 1.0) -> Recording:
    """Returns a recording of two steps with stacks."""
    folder.mkdir(exist_ok=True)
    stacks = Stacks()
    for index, lines, seen in every:
        stacks.add(index, lines, seen)
    text = as_json({"schema": 1, "run": "00000000000000aa", **stacks_as_lists(stacks.steps)})
    (folder / "stacks.7.00000000000000aa.json").write_text(text)
    steps = step(0, "Outer", 0.0, seconds), step(1, "Calibration", 0.0, seconds, parent=0)
    run = RecordedRun(
        id="00000000000000aa", process="7", start=0.0, end=seconds, state="ended", steps=steps
    )
    return Recording(path=folder, began_ns=0, state="ended", duration=seconds, runs=(run,))


def test_stacks_are_read_as_they_were_written(tmp_path: Path) -> None:
    found = stacks_in(recorded(tmp_path))
    run = Amounts(500, 300, 50, 5000, 50)
    assert {
        (each.step.step.index if each.step else None, each.lines): each.seen for each in found
    } == {
        (0, (MAIN,)): SEEN[0][2],
        (1, (MAIN, RUN)): run,
        (1, (MAIN, MERGE)): SEEN[3][2],
        (1, (MAIN, RUN, LOADER)): SEEN[4][2],
    }
    assert by_line(of_step(found, "Calibration")) == {
        RUN: run,
        MERGE: SEEN[3][2],
        LOADER: SEEN[4][2],
    }
    assert by_line(found) == by_line(of_step(found, "Outer"))
    assert by_call(found) == {MAIN: Amounts(710, 509, 51, 76000, 50), LOADER: SEEN[4][2]}


def test_time_of_a_step_without_lines_is_a_row(tmp_path: Path) -> None:
    second = 10**9
    every = (0, (MAIN,), Amounts(second // 2)), (1, (MAIN, RUN), Amounts(second))
    recording = recorded(tmp_path / "A", every, seconds=8.0)
    (unseen,) = unseen_in(recording)  # of the step around it nothing is its own
    assert unseen.step is not None
    assert (unseen.step.step.index, unseen.lines, unseen.seen) == (
        1,
        (UNSEEN,),
        Amounts(7 * second),
    )
    assert unseen.lines[0].text == "unseen lines"
    found = [*stacks_in(recording), unseen]
    assert answer(of_step(found, "Calibration"), "time") == (
        "12.5 % of the time was seen at main (quantize.py:12), in Session.run: 1.00 s of 8.00 s; of 7.00 s no line was seen"
    )
    assert answer([unseen], "time").endswith("of 7.00 s no line was seen")
    brief = recorded(tmp_path / "B", every, seconds=1.9)
    folded = recorded(tmp_path / "C", (*every, (-1, (), Amounts(7))), seconds=8.0)
    assert unseen_in(brief) == unseen_in(folded) == []


@pytest.mark.parametrize(
    ("attributes", "times", "expected"),
    [
        ({CPU: 0.7, semconv.CPU_SYSTEM: 0.0}, (7,), "one_processor"),
        ({CPU: 0.7, semconv.CPU_SYSTEM: 0.0, BOUND: "disk"}, (7,), None),  # each has its own
        ({}, (7,), "nothing_stands_out"),  # what was not measured is no evidence
        ({CPU: 0.7, semconv.CPU_SYSTEM: 0.0}, (1,), None),  # too little of them was seen
    ],
)
@pytest.mark.parametrize(("name", "kind"), [("Layer", "Layer"), ("layer.{}.fc", "layer.*.fc")])
def test_equal_short_steps_have_a_verdict_together(
    attributes: dict[str, Any], times: tuple[int, ...], expected: str | None, name: str, kind: str, tmp_path: Path,
) -> None:  # fmt: skip
    every = [(0, (MAIN,), Amounts(10**9 * each, 10**9 * each)) for each in times]
    of_one = recorded(tmp_path, every)
    steps = tuple(
        step(at, name.format(at), at * 0.8, at * 0.8 + 0.7, attributes=attributes)
        for at in range(10)
    )
    other = step(10, "Other", 8.0, 9.0, attributes=attributes)
    (run,) = of_one.runs
    run = replace(run, steps=(*steps, other))
    recording = replace(of_one, runs=(run,), origin={semconv.CPU_LIMIT: 4.0})
    assert not list(alike(recording, steps_in(recording), 7.1))
    found = list(alike(recording, steps_in(recording), 6.9))
    assert [(each.step.name, often) for each, often in found] == (
        [] if BOUND in attributes else [(kind, 10)]
    )
    assert [each.step.attributes.get(BOUND) for each, _ in found] == (
        [] if BOUND in attributes else [expected]
    )


def test_programs_get_the_verdict_of_a_step_and_what_its_thread_did(tmp_path: Path) -> None:
    recording = recorded(tmp_path)
    (run,) = recording.runs
    known = {BOUND: "disk", semconv.STEP_BOUND_EVIDENCE: "7 MB a second"}
    steps = tuple(replace(each, attributes=known if each.index else {}) for each in run.steps)
    recording = replace(recording, runs=(replace(run, steps=steps),))
    (shown,) = json.loads("".join(written(show_document({"r": recording}), "json")))
    outer, inner = shown["steps"]
    names = "ran", "waiting", "blocked"
    split = {f"{name}_share_of_seen": inner[f"{name}_share_of_seen"] for name in names}
    assert [*split.values()] == [0.51, 0.05, 0.44]
    assert (inner["bound_by"], inner["bound_evidence"]) == ("disk", "7 MB a second")
    assert outer["bound_by"] is None
    sides = [Side(name, (compared_run(name, recording),)) for name in ("base", "new")]
    text = "".join(written(document(side_by_side(sides), None), "json"))
    rows = json.loads(text)["rows"]
    assert [each["bounds"] for each in rows if each["step"].endswith("Calibration")] == [
        [[{"by": "disk", "evidence": "7 MB a second", **split}]] * 2
    ]


def test_exported_stacks_include_their_steps(tmp_path: Path) -> None:
    found = stacks_in(recorded(tmp_path))
    main, run = "main (/home/a/quantize.py:12)", "Session.run (onnxruntime/capi/session.py:395)"
    merge = "Collector.merge (onnxruntime/quantization/calibrate.py:983)"
    assert sorted(collapsed(found, "memory")) == [
        f"Outer > Calibration;{main};{merge} 70000\n",
        f"Outer > Calibration;{main};{run} 5000\n",
        f"Outer;{main} 1000\n",
    ]
    profiles = json.loads(speedscope(found, "r"))
    frames = [frame["name"] for frame in profiles["shared"]["frames"]]
    assert {
        (profile["name"], tuple(frames[at] for at in sample)): weight
        for profile in profiles["profiles"]
        for sample, weight in zip(profile["samples"], profile["weights"], strict=True)
    } == {
        ("Outer: time", ("main",)): 10,
        ("Outer: memory growth", ("main",)): 1000,
        ("Outer > Calibration: time", ("main", "Session.run")): 500,
        ("Outer > Calibration: time", ("main", "Collector.merge")): 200,
        ("Outer > Calibration: time", ("main", "Session.run", "Reader.get_next")): 300,
        ("Outer > Calibration: memory growth", ("main", "Session.run")): 5000,
        ("Outer > Calibration: memory growth", ("main", "Collector.merge")): 70000,
    }
    assert [(p["unit"], p["endValue"]) for p in profiles["profiles"]] == [
        ("nanoseconds", 10), ("bytes", 1000), ("nanoseconds", 1000), ("bytes", 75000)
    ]  # fmt: skip


def test_rare_branches_are_folded_with_their_sums_and_a_file_stays_below_1_mb() -> None:
    chance, stacks, whole = random.Random(1), Stacks(), NOTHING
    for number in range(15_000):
        depth = chance.randrange(30, 50)
        lines = [
            Place("a/module_of_some_length.py", f"function_{at}", at, "a") for at in range(depth)
        ]
        lines.append(Place("b/module_of_some_length.py", "leaf", number, "b"))
        often = number % 2 == 0
        seen = Amounts(50_000_000 if often else 1, 5, 2, chance.randrange(5), 1)
        whole = whole.plus(seen)
        stacks.add(number % 50, [MAIN, RUN] if often else lines, seen)
    total, nodes, kept = NOTHING, 0, Amounts()
    for root in stacks.steps.values():
        for lines, node in [((), root), *root.walk()]:
            total, nodes = total.plus(node.own), nodes + 1
            assert OTHER not in lines[:-1]
            if lines == (MAIN, RUN):
                kept = kept.plus(node.own)
    assert total == whole
    assert nodes <= MOST_NODES
    assert kept.time == 7_500 * 50_000_000
    assert len(as_json(stacks_as_lists(stacks.steps))) < 1_000_000


def test_all_stacks_are_read_also_for_completely_folded_steps(tmp_path: Path) -> None:
    other_steps = (-1, (), Amounts(7000, 6, 5, 40, 3))
    found = stacks_in(recorded(tmp_path, (*SEEN, other_steps)))
    assert [(each.where, each.lines, each.seen) for each in found if each.step is None] == [
        ("other steps", (OTHER,), other_steps[2])
    ]
    assert sum(each.seen.time for each in found) == 8010


def test_a_comparison_names_the_lines_that_make_a_step_longer(tmp_path: Path) -> None:
    faster = [
        (1, (MAIN, RUN), Amounts(time=3_000_000_000)),
        (1, (MAIN, LOADER), Amounts(time=1_000_000_000)),
    ]
    slower = [
        (1, (MAIN, RUN), Amounts(time=3_100_000_000)),
        (1, (MAIN, LOADER), Amounts(time=7_000_000_000)),
        (1, (MAIN, MERGE), Amounts(time=2_000_000_000)),
    ]
    sides = [
        Side(name, (compared_run(name, recorded(tmp_path / name, seen, seconds)),))
        for name, seen, seconds in (("base", faster, 4.0), ("new", slower, 12.0))
    ]

    def lines(first: Side, second: Side) -> list[str]:
        text = terminal_text(document(side_by_side([first, second]), None), 200)
        return text.partition("Lines of Calibration ")[2].partition("\n\nbase ")[0].splitlines()

    assert lines(*sides) == [
        "with more time of their own",
        "",
        "LINE                                                         BASE   NEW  DIFFERENCE",
        "                                                                s     s           s",
        "-----------------------------------------------------------  ----  ----  ----------",
        "Reader.get_next (/home/a/quantize.py:30)                     1.00  7.00       +6.00",
        "Collector.merge (onnxruntime/quantization/calibrate.py:983)  0.00  2.00       +2.00",
    ]
    assert lines(sides[0], sides[0]) == []


def test_short_steps_with_the_same_name_share_a_tree_and_long_ones_do_not() -> None:
    stacks = Stacks()
    short, long = Amounts(time=300_000_000, grown=2), Amounts(time=2_000_000_000)
    for index in range(1000):
        lines = (MAIN, RUN) if index % 2 else (MAIN, MERGE)
        stacks.add(index, lines, long if index == 500 else short)
        stacks.settle(index, ("Outer", "Layer"))
    assert set(stacks.steps) == {0, 500}
    assert {lines: node.own for lines, node in stacks.steps[0].walk()} == {
        (MAIN,): NOTHING,
        (MAIN, RUN): Amounts(time=500 * short.time, grown=1000),
        (MAIN, MERGE): Amounts(time=499 * short.time, grown=998),
    }
    assert {lines: node.own for lines, node in stacks.steps[500].walk()} == {
        (MAIN,): NOTHING,
        (MAIN, MERGE): long,
    }


def test_a_deep_tree_is_walked_while_the_sampler_adds_to_it() -> None:
    stacks = Stacks()
    stacks.add(0, (MERGE,) * 2000, Amounts(1))
    stacks.add(0, (MAIN, RUN), Amounts(2))
    root, walked = stacks.steps[0], stacks.steps[0].walk()
    first, _ = next(walked)
    stacks.add(0, (LOADER,), Amounts(4))
    stacks.add(0, (MERGE, LOADER), Amounts(8))
    assert {first, *(lines for lines, _ in walked)} >= {(MERGE,) * 2000, (MAIN, RUN)}
    assert root.total() == Amounts(15)


@pytest.mark.parametrize(
    "change",
    [
        {"places": [["a.py", "f", -1, ""]]},
        {"places": [["a.py", "f", 1, ""], 5, ["a.py", "g", 1, ""]]},  # which is the third?
        {"steps": {"1": [[-1, 0, -1, 0, 0, 0, 0]]}},
        {"steps": {"1": [[-1, 0, 1 << 64, 0, 0, 0, 0]]}},
        {"steps": {"1": [[-1, 0, 1, 0, 0, 0, 0], "row", [1, 0, 1, 0, 0, 0, 0]]}},
        {"steps": []},
    ],
    ids=str,
)
def test_a_damaged_file_has_no_stacks(tmp_path: Path, change: dict[str, Any]) -> None:
    recording = recorded(tmp_path)
    (path,) = tmp_path.iterdir()
    path.write_text(as_json({**json.loads(path.read_text()), **change}))
    assert stacks_in(recording) == []


def test_a_file_of_one_deep_stack_and_a_step_of_many_digits_takes_little(tmp_path: Path) -> None:
    recording, deep = recorded(tmp_path), 20_000
    (path,) = tmp_path.iterdir()
    rows = [[at - 1, 0, 1, 1, 0, 0, 0] for at in range(deep)]
    found = {"places": [list(MAIN)], "steps": {"1": rows, "9" * 5000: rows[:1]}}
    path.write_text(as_json({**json.loads(path.read_text()), **found}))
    seen = stacks_in(recording)
    assert sum(each.seen.time for each in seen) == deep + 1
    assert max(len(each.lines) for each in seen) == DEEPEST + 1
    assert seen[-1].step is None


def test_names_cannot_control_a_terminal_or_break_a_line() -> None:
    hostile = Place("/a/\udc80.py", "f;\x1b[2J\n", 1, "")
    stack = SeenStack(None, (hostile,), Amounts(5000, 0, 0, 0, 0))
    assert list(collapsed([stack], "time")) == ["other steps;f,\\x1b[2J\\n (/a/\\udc80.py:1) 5\n"]
    (frame,) = json.loads(speedscope([stack], "r"))["shared"]["frames"]
    assert frame == {"name": "f;\\x1b[2J\\n", "file": "/a/\\udc80.py", "line": 1}
    profile = gzip.decompress(pprof([stack]))
    assert b"f;\\x1b[2J\\n" in profile
    assert b"/a/\\udc80.py" in profile
