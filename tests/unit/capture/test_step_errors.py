"""What `step` raises at once, what a signal handler raises within one, and a library's call that raises before its first."""

from __future__ import annotations

from pathlib import Path

import pytest

import otel_quant
from otel_quant.recordings.reader import read
from otel_quant.schema import semconv
from tests.fixtures.programs import run_script

RAISING = """
import functools, signal, sys, os
import otel_quant
from otel_quant.base.fault_boundary import FAULTS

class TooLongError(Exception):
    pass

def expire(*_):
    raise TooLongError

class Timer:
    def expire(self, *_):
        raise TooLongError
    def __call__(self, *_):
        raise TooLongError

class Metric:
    name = "any"
    def collect(self, context):
        os.kill(os.getpid(), signal.SIGUSR1)  # Python runs the handler before the next line
        for _ in range(100):
            pass

handlers = {
    "function": expire, "method": Timer().expire, "object": Timer(),
    "partial": functools.partial(expire, 1),
}
signal.signal(signal.SIGUSR1, handlers[sys.argv[1]])
with otel_quant.step("before"):
    pass
otel_quant.capture.runtime.RUNTIME.metrics.checkpoint_metrics.append(Metric())
try:
    with otel_quant.step("step"):
        print("not reached")
except TooLongError:
    print("reached the program")
otel_quant.capture.runtime.RUNTIME.metrics.reset()
with otel_quant.step("after"):
    print("after", FAULTS.counts)
"""


@pytest.mark.parametrize("handler", ["function", "method", "object", "partial"])
def test_an_exception_of_a_signal_handler_is_not_treated_as_our_failure(
    tmp_path: Path, handler: str
) -> None:
    assert run_script(tmp_path, RAISING, handler) == ("reached the program\nafter {}\n", "")


def test_a_decorator_without_a_name_raises_at_once() -> None:
    with pytest.raises(TypeError, match=r"^step\(\) is given .*quantize; expected a name"):

        @otel_quant.step
        def quantize() -> None: ...


def test_attributes_that_are_not_a_mapping_raise_at_once() -> None:
    with pytest.raises(TypeError) as refused:
        otel_quant.step("Calibration", attributes=[1])
    assert str(refused.value) == (
        "step() is given attributes=[1]; expected a mapping of names to values"
    )


TOOL = """
import time

held = []

def inner(error):
    raise error

def outer(error):
    held.append(b"x" * 50_000_000)
    time.sleep(0.2)
    inner(error)

def handling():
    try:
        inner(ValueError("tried"))
    except ValueError:
        pass
"""
CALLING = """
from otel_quant.capture.instruments.hooks import ENTRY_POINT, HOOKS, Hook, Library

HOOKS.set([
    Library("inner", "inner", (Hook("tool", "inner", ENTRY_POINT),)),
    Library(
        "outer", "outer", (Hook("tool", "outer", ENTRY_POINT), Hook("tool", "handling", ENTRY_POINT)),
        built_on=frozenset({"inner"}),
    ),
])
import tool

tool.handling()
for call, error in (
    (tool.outer, SystemExit(0)), (tool.outer, ValueError("wrong")),
    (tool.inner, KeyboardInterrupt()), (tool.inner, ValueError("again")),
):
    try:
        call(error)
    except BaseException as raised:
        assert raised is error
"""


def test_a_library_call_that_fails_before_its_first_step_is_one_step(tmp_path: Path) -> None:
    (tmp_path / "tool.py").write_text(TOOL)
    assert run_script(tmp_path, CALLING, OTEL_QUANT_RECORD="made") == ("", "")
    [run] = read(tmp_path / "made").runs
    # Not the calls of a library that another is built on, unless the program calls it.
    assert [
        (step.attributes[semconv.LIBRARY_NAME], step.name, step.error) for step in run.steps
    ] == [
        ("outer", "outer", "ValueError"),
        ("inner", "inner", "KeyboardInterrupt"),
        ("inner", "inner", "ValueError"),
    ]
    first = run.steps[0]
    assert first.end is not None
    assert first.end - first.start >= 0.2
    assert run.start <= first.start
    assert first.attributes[semconv.MEMORY_DELTA] >= 40_000_000


RAISING_ELSEWHERE = """
import multiprocessing, sys
from concurrent.futures import ProcessPoolExecutor
import otel_quant

def scale(layer):
    raise ValueError(layer)

def generated(layer):
    code = compile("def forward(call, layer):\\n    call(layer)", "<eval_with_key>.1", "exec")
    exec(code, globals())
    forward(int, "x")

def pool(layer):
    with ProcessPoolExecutor(1, multiprocessing.get_context("fork")) as workers:
        list(workers.map(scale, [layer]))

def old_pool(layer):
    with multiprocessing.get_context("fork").Pool(1) as workers:
        workers.map(scale, [layer])

with otel_quant.step("quantize"):
    globals()[sys.argv[1]](7)
"""


@pytest.mark.parametrize(
    ("way", "line"),
    [
        ("pool", "scale (script.py:7)"),
        ("old_pool", "scale (script.py:7)"),
        ("generated", "generated (script.py:12)"),
    ],
)
def test_an_exception_has_the_line_of_the_pools_process_and_none_that_is_in_no_file(
    tmp_path: Path, way: str, line: str
) -> None:
    run_script(tmp_path, RAISING_ELSEWHERE, way, code=1, OTEL_QUANT_RECORD="made")
    steps = [step for run in read(tmp_path / "made").runs for step in run.steps]
    [failed] = [step for step in steps if step.error]
    assert failed.attributes[semconv.ERROR_LINE] == line
