"""Which code has taken the memory by which a step grew, and how a place is worded."""

from __future__ import annotations

import pytest

from otel_quant.diagnosis.spots import TIME, Grown, Spot, grown_in, importing, spot_of, top_spot
from otel_quant.schema.code_lines import RECORDER, Amounts, Place

CALL = Place("/a/q.py", "<module>", 21, "")
COLLECT = Place(
    "onnxruntime/quantization/calibrate.py", "MinMaxCalibrater.collect_data", 511, "onnxruntime"
)
RUN = Place("onnxruntime/capi/session.py", "Session.run", 406, "onnxruntime")
OPENED = Place(
    "onnxruntime/capi/session.py", "InferenceSession._create_inference_session", 9, "onnxruntime"
)
NEXT = Place("/a/q.py", "Reader.get_next", 16, "")
ONES = Place("numpy/_core/numeric.py", "ones", 233, "numpy")
EMPTY = Place("numpy/_core/numeric.py", "empty", 3, "numpy")
IMPORT = Place("<frozen importlib._bootstrap>", "_find_and_load", 1176, "python")
GENERATED = Place("<__array_function__ internals>", "ones", 180, "")
IMPORTLIB = Place("importlib/__init__.py", "import_module", 126, "python")
STEP = "onnxruntime.quantization.calibrate.MinMaxCalibrater.collect_data"  # fmt: skip
READS, RUNS = (CALL, COLLECT, NEXT, ONES), (CALL, COLLECT, RUN)


def grown(*seen: tuple[tuple[Place, ...], int], function: str = STEP, method: str = "") -> Grown:
    found = grown_in([(lines, Amounts(grown=each)) for lines, each in seen], function, method)
    assert found is not None
    return found


def test_growth_is_the_programs_where_its_lines_within_the_step_have_most_of_it() -> None:
    found = grown((READS, 60), (RUNS, 40))
    assert found == Grown(100, Spot(NEXT, ONES), 0.6, 0.6, 0.0, is_own=True)
    assert found.spot.words == "Reader.get_next (q.py:16), in ones"


def test_a_function_is_named_without_a_line_where_two_of_its_lines_have_nearly_as_much() -> None:
    later = NEXT._replace(line=17)
    found = grown((READS, 40), ((*READS[:2], later), 30), (RUNS, 30))
    assert (found.spot.words, found.share) == ("Reader.get_next (q.py)", 0.7)
    found = grown((READS, 40), ((*READS[:2], later), 10), (RUNS, 50), method="MinMax")
    assert (found.spot.words, found.share) == ("Reader.get_next (q.py:16), in ones", 0.4)


@pytest.mark.parametrize(
    ("seconds", "grown_by", "words", "share"),
    [
        ((5, 5), (60, 40), "<module> (q.py:21)", 1.0),  # by chance
        ((5, 5), (90, 10), "first (q.py:1)", 0.9),
        ((9, 1), (90, 10), "first (q.py:1)", 0.9),
    ],
)
def test_functions_that_take_turns_between_two_samples_are_not_told_apart(
    seconds: tuple[int, int], grown_by: tuple[int, int], words: str, share: float
) -> None:
    of = [
        ((CALL, Place("/a/q.py", name, 1, "")), Amounts(time, grown=grown))
        for name, time, grown in zip(("first", "second"), seconds, grown_by, strict=True)
    ]
    found = grown_in(of, "")
    assert found is not None
    assert (found.spot.words, found.share) == (words, share)
    other = CALL._replace(line=22), *of[1][0][1:]
    found = grown_in([of[0], (other, of[1][1])], "")
    assert found is not None
    assert found.spot.words == words.replace("module> (q.py:21)", "module> (q.py)")


def test_growth_is_the_librarys_where_only_what_called_the_step_is_the_programs() -> None:
    found = grown((READS, 40), (RUNS, 60))
    assert (found.is_own, found.is_librarys) == (False, True)
    assert found.spot.words == "<module> (q.py:21), in Session.run"
    other = (CALL, COLLECT)  # each has less than a line of the reader, where samples come late
    assert grown((READS, 40), (RUNS, 30), (other, 30)).spot.words == found.spot.words


def test_a_method_that_keeps_nothing_leaves_the_growth_to_the_program() -> None:
    found = grown((READS, 40), (RUNS, 60), method="MinMax")
    assert (found.is_own, found.spot, found.share) == (True, Spot(NEXT, ONES), 0.4)
    assert not grown((READS, 10), (RUNS, 90), method="MinMax").is_own


def test_in_a_step_of_the_program_its_line_has_what_it_calls() -> None:
    found = grown((RUNS, 60), ((CALL,), 40), function="")
    assert (found.is_own, found.spot.words) == (True, "<module> (q.py:21), most in Session.run")


@pytest.mark.parametrize(
    ("lines", "function"),
    [((CALL, COLLECT, IMPORT), STEP), ((CALL, OPENED), ""), ((CALL, COLLECT, OPENED), STEP)],
)
def test_growth_while_modules_or_a_model_are_loaded_is_nobodys(
    lines: tuple[Place, ...], function: str
) -> None:
    found = grown((lines, 60), (RUNS, 40), function=function)
    assert (found.is_loaded, found.is_own, found.is_librarys) == (True, False, False)


def test_a_reader_that_opens_sessions_keeps_them_itself() -> None:
    assert grown(((CALL, COLLECT, NEXT, OPENED), 60)).is_own


def test_without_growth_nothing_has_taken_it() -> None:
    assert grown_in([(RUNS, Amounts(5))], STEP) is None
    assert grown_in([], STEP) is None


@pytest.mark.parametrize(
    ("lines", "words", "waits_for"),
    [
        ((CALL, COLLECT), "<module> (q.py:21), in MinMaxCalibrater.collect_data", ""),
        ((COLLECT,), "MinMaxCalibrater.collect_data (calibrate.py:511)", ""),
        ((COLLECT, NEXT, GENERATED), "Reader.get_next (q.py:16), in ones", ""),
        ((NEXT, Place("threading.py", "Event.wait", 7, "python"), Place("threading.py", "Condition.wait", 3, "python")),
         "Reader.get_next (q.py:16), in Condition.wait", "a signal of another thread"),
        ((NEXT, Place("queue.py", "Queue.get", 7, "python"), Place("threading.py", "Condition.wait", 3, "python")),
         "Reader.get_next (q.py:16), in Condition.wait", "a queue"),
        ((Place("threading.py", "Thread.run", 7, "python"), NEXT), "Reader.get_next (q.py:16)", ""),
        ((NEXT, Place("subprocess.py", "Popen._wait", 7, "python")), "Reader.get_next (q.py:16), in Popen._wait", "a child process"),
        ((NEXT, ONES, Place("socket.py", "SocketIO.readinto", 7, "python")), "Reader.get_next (q.py:16), in SocketIO.readinto", "the network"),
    ],
)  # fmt: skip
def test_a_place_is_the_programs_innermost_line_and_what_it_has_called(
    lines: tuple[Place, ...], words: str, waits_for: str
) -> None:
    assert (spot_of(lines).words, spot_of(lines).waits_for) == (words, waits_for)


@pytest.mark.parametrize(
    ("lines", "line"),
    [
        ((CALL, NEXT, IMPORT, ONES, IMPORT), NEXT),
        ((CALL, NEXT, IMPORTLIB, IMPORT, ONES), NEXT),
        ((CALL, NEXT), None),
        ((IMPORT, CALL), None),
    ],
)
def test_a_module_is_imported_by_the_line_that_asks_for_it(
    lines: tuple[Place, ...], line: Place | None
) -> None:
    assert importing(lines) == line


def test_of_a_library_most_is_at_a_function_whatever_its_lines_and_not_in_the_recorder() -> None:
    of_run = [COLLECT._replace(function="run", line=line) for line in (1, 2, 3)]
    stacks = [((CALL, line), Amounts(20)) for line in of_run]
    stacks += [((CALL, COLLECT), Amounts(30)), ((RECORDER,), Amounts(100))]

    def top(seen: list[tuple[tuple[Place, ...], Amounts]]) -> tuple[str, int] | None:
        found = top_spot(seen, TIME, lambda lines: lines[-1], names_leaf=False)
        return found and (found[0].leaf.short, found[1].time)

    assert top(stacks) == ("run (calibrate.py)", 60)
    assert top(stacks[2:]) == ("MinMaxCalibrater.collect_data (calibrate.py:511)", 30)
    assert top(stacks[-1:]) == ("otel-quant's own lines", 100)
    assert top([]) is None
