"""The script behaves as without us, and what survives each way to end.

Scripts that are compared run twice: with steps of ours under
``opentelemetry-instrument``, and with steps that do nothing under plain Python.
"""

from __future__ import annotations

import signal
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
import yaml

from otel_quant.schema import semconv
from tests.fixtures.otlp_receiver import OtlpReceiver
from tests.fixtures.programs import Finished, Ran, Workshop

PRELUDE = """
import os
if os.environ.get("WITHOUT_US"):
    from contextlib import ContextDecorator, nullcontext
    class step(nullcontext, ContextDecorator):
        pass
else:
    from otel_quant import step
import signal, sys, time

def fail(value):
    raise ValueError(f"no such value: {value}")
"""
PROFILE = "profile.yaml"


Both = Callable[[str], Finished]


@pytest.fixture
def both(workshop: Workshop, otlp: OtlpReceiver) -> Both:
    """Runs a script with us and without us; returns how it ended, which is the same."""

    def both(body: str) -> Finished:
        script = workshop.script(PRELUDE + body)
        with_us, without_us = (
            script.run({**otlp.environment("http/protobuf"), "OTEL_QUANT_PROFILE": PROFILE}),
            script.run({"WITHOUT_US": "1"}, instrumented=False),
        )
        assert with_us.returncode == without_us.returncode
        assert (with_us.stdout, with_us.stderr) == (without_us.stdout, without_us.stderr)
        return with_us

    return both


def profile_of(workshop: Workshop) -> tuple[list[str], bool]:
    """Returns the names of the local file's records and whether the file has its end."""
    content: dict[str, Any] = yaml.safe_load((workshop.folder / PROFILE).read_text())
    return [record["step"] for record in content["memory_usage"]], "run_end" in content


def names_of(otlp: OtlpReceiver) -> list[str]:
    records = otlp.records_of(semconv.CHECKPOINT_EVENT)
    records.sort(key=lambda record: record.attributes[semconv.CHECKPOINT_SEQUENCE])
    return [record.attributes[semconv.CHECKPOINT_NAME] for record in records]


def test_an_uncaught_exception_is_unchanged_and_marks_step_and_run_as_failed(
    both: Both, workshop: Workshop, otlp: OtlpReceiver
) -> None:
    done = both(
        """
with step("good"):
    print("so far")
with step("outer"):
    with step("inner"):
        fail(7)
"""
    )
    assert done.returncode == 1
    assert "ValueError: no such value: 7" in done.stderr

    assert otlp.span("good").status == "UNSET"
    for name in ("outer", "inner"):
        span = otlp.span(name)
        assert (span.status, span.status_message) == ("ERROR", "no such value: 7")
        assert span.attributes["error.type"] == "ValueError"
        (event,) = span.events
        assert event.name == "exception"
        assert event.attributes["exception.type"] == "ValueError"
        assert event.attributes["exception.message"] == "no such value: 7"
        assert "in fail" in event.attributes["exception.stacktrace"]
    root = otlp.span("quantization")
    assert (root.status, root.attributes["error.type"]) == ("ERROR", "ValueError")
    assert root.attributes[semconv.RUN_STEPS] == 3
    assert root.attributes[semconv.RUN_FAILED_STEPS] == 2
    names = [
        "Start", "good Start", "good End", "outer Start", "inner Start", "inner End", "outer End",
        "End",
    ]  # fmt: skip
    assert names_of(otlp) == names
    assert profile_of(workshop) == (names, True)


@pytest.mark.parametrize("length", [10, 5000])
def test_the_innermost_frames_of_a_long_stack_trace_are_sent(
    both: Both, otlp: OtlpReceiver, length: int
) -> None:
    calls = "\n".join(f"def f{n}(): f{n + 1}()  # {'~' * 60}" for n in range(60))
    both(f"def f60(): fail('\u00e9' * {length})\n{calls}\nwith step('deep'):\n    f0()")
    (event,) = otlp.span("deep").events
    text = event.attributes["exception.stacktrace"]
    assert len(text.encode()) <= 2048  # what Tempo keeps
    first, *frames, last = text.strip().splitlines()
    assert first == "... (outer frames left out)"
    assert [each.split()[-1] for each in frames if each.startswith("  File")][-4:] == [
        "f58", "f59", "f60", "fail",
    ]  # fmt: skip
    assert last.startswith("ValueError: no such value: \u00e9\u00e9")
    assert len(event.attributes["exception.message"]) == len("no such value: ") + length


def test_a_handled_exception_is_the_same_object_and_fails_only_its_step(
    both: Both, otlp: OtlpReceiver
) -> None:
    done = both(
        """
error = LookupError("mine")
error.__notes__ = ["kept"]
cause = KeyError("why")
try:
    with step("step"):
        raise error from cause
except LookupError as caught:
    frames, tb = [], caught.__traceback__
    while tb:
        frames.append(tb.tb_frame.f_code.co_name)
        tb = tb.tb_next
    print(caught is error, caught.__cause__ is cause, caught.__context__, caught.__notes__, frames)

@step("function")
def function():
    fail(3)
try:
    function()
except ValueError as caught:
    print(repr(caught), caught.__cause__, caught.__context__)
"""
    )
    assert done.returncode == 0
    assert [otlp.span(name).status for name in ("step", "function")] == ["ERROR", "ERROR"]
    assert otlp.span("function").attributes["code.function.name"] == "__main__.function"
    assert otlp.span("quantization").status == "UNSET"


EVERYTHING = ["Start", "step Start", "step End", "End"]


@pytest.mark.parametrize(
    ("code", "returncode", "error"),
    [
        ("sys.exit()", 0, None),
        ("sys.exit(3)", 3, "SystemExit"),
        ("sys.exit('why')", 1, "SystemExit"),
        # Shells have it ignored in the background.
        ("signal.signal(signal.SIGINT, signal.default_int_handler); os.kill(os.getpid(), signal.SIGINT); time.sleep(10)", -signal.SIGINT, "KeyboardInterrupt"),
        ("signal.signal(signal.SIGTERM, lambda *_: sys.exit(143)); os.kill(os.getpid(), signal.SIGTERM); time.sleep(10)", 143, "SystemExit"),
    ],
    ids=["exit", "exit with a code", "exit with a text", "SIGINT", "SIGTERM that is handled"],
)  # fmt: skip
def test_telemetry_and_the_file_are_complete_after_an_exit(
    both: Both,
    workshop: Workshop,
    otlp: OtlpReceiver,
    code: str,
    returncode: int,
    error: str | None,
) -> None:
    done = both(f"with step('step'):\n    {code}\n")
    assert done.returncode == returncode
    assert otlp.tree() == [("quantization", [("step", [])])]
    of_run = error if error == "KeyboardInterrupt" else None  # an exit is no failure of the run
    for name, expected in (("step", error), ("quantization", of_run)):
        found = otlp.span(name).status, otlp.span(name).attributes.get("error.type")
        assert found == ("ERROR" if expected else "UNSET", expected)
    assert names_of(otlp) == EVERYTHING
    assert profile_of(workshop) == (EVERYTHING, True)


@pytest.mark.parametrize(
    ("code", "returncode"),
    [
        ("os._exit(4)", 4),
        ("os.kill(os.getpid(), signal.SIGTERM)", -signal.SIGTERM),
        ("os.kill(os.getpid(), signal.SIGKILL)", -signal.SIGKILL),
        ("os.abort()", -signal.SIGABRT),
    ],
)
def test_ended_spans_and_all_records_survive_os_exit_and_fatal_signals(
    both: Both, workshop: Workshop, otlp: OtlpReceiver, code: str, returncode: int
) -> None:
    survivors = [
        "Start", "before Start", "before End", "step Start", "inner Start", "inner End",
    ]  # fmt: skip

    def open_steps() -> dict[object, float]:
        points = otlp.latest_points(semconv.STEP_ACTIVE)
        return {point.attributes[semconv.STEP_KIND]: point.value for point in points}

    def mark_that_all_arrived() -> None:
        if otlp.wait_for(
            lambda _: names_of(otlp) == survivors and len(otlp.spans) == 2 and bool(open_steps()),
            60,
        ):
            (workshop.folder / "arrived").touch()

    with ThreadPoolExecutor(1) as beside:
        marked = beside.submit(mark_that_all_arrived)
        done = both(
            f"""
with step("before"):
    pass
with step("step"):
    with step("inner"):
        pass
    until = time.monotonic() + 60
    while not os.path.exists("arrived") and time.monotonic() < until:
        time.sleep(0.05)
    {code}
"""
        )
        marked.result()
    assert done.returncode == returncode
    assert otlp.span_names() == ["before", "inner"], "open spans are lost with the process"
    assert names_of(otlp) == survivors
    before, inner = otlp.by_start()
    (started,) = otlp.records_of(semconv.RUN_STARTED_EVENT)
    assert (before.trace_id, before.parent_id) == (started.trace_id, started.span_id)
    of_step = otlp.records_of(semconv.CHECKPOINT_EVENT)[3]
    assert (of_step.trace_id, of_step.span_id) == (inner.trace_id, inner.parent_id)
    assert open_steps() == {"User-Defined": 1}, "metrics are sent once before their first minute"
    assert profile_of(workshop) == (survivors, False)


def test_exit_handlers_run_and_no_signal_handler_hook_or_limit_of_the_script_is_changed(
    both: Both, otlp: OtlpReceiver
) -> None:
    done = both(
        """
import atexit, faulthandler, gc, threading
atexit.register(print, "first")
with step("step"):
    pass
atexit.register(print, "second")
threading.Thread(target=lambda: (time.sleep(0.2), print("thread"))).start()
print([signal.getsignal(n) for n in (signal.SIGTERM, signal.SIGINT, signal.SIGCHLD, signal.SIGXFSZ)])
print(signal.getitimer(signal.ITIMER_REAL), signal.set_wakeup_fd(-1))
print(sys.excepthook is sys.__excepthook__, threading.excepthook is threading.__excepthook__)
print(sys.gettrace(), sys.getprofile(), gc.isenabled(), gc.get_threshold(), faulthandler.is_enabled())
print(sys.getrecursionlimit(), sys.getswitchinterval(), os.getcwd() == os.path.dirname(__file__))
sys.exit(5)
"""
    )
    assert done.returncode == 5
    assert names_of(otlp) == EVERYTHING


SEEDED = """
import random, threading

def work():
    for _ in range(25):
        with step("work"):
            with step("part"):
                pass

sys.setswitchinterval(1e-5)
drawn = []
for _ in range(3):
    random.seed(42)
    with step("Calibration"):
        drawn.append(random.random())
        with step("within"):
            drawn.append(random.gauss(0, 1))
    drawn.append(random.random())
threads = [threading.Thread(target=work) for _ in range(8)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
print(drawn, random.random())
"""


def test_a_seeded_program_draws_the_same_numbers_and_hundreds_of_steps_stay_unique(
    workshop: Workshop, ran: Ran, otlp: OtlpReceiver
) -> None:
    source = PRELUDE + SEEDED
    alone = workshop.script(source).run({"WITHOUT_US": "1"}, instrumented=False)
    assert [ran(source, protocol) for protocol in ("grpc", "http/protobuf")] == [alone.stdout] * 2

    roots = otlp.spans_named("quantization")
    assert len({root.trace_id for root in roots}) == 2
    count = 2 * 3 + 2 * 25 * 8
    assert len({span.span_id for span in otlp.spans}) == len(otlp.spans) == 2 * (1 + count)
    steps = [("Calibration", [("within", [])])] * 3 + [("work", [("part", [])])] * 200
    assert otlp.tree() == [("quantization", steps)] * 2
    indexes = [span.attributes.get(semconv.STEP_INDEX, -1) for span in otlp.spans]
    assert sorted(indexes) == sorted([-1, *range(count)] * 2)
    records = otlp.records_of(semconv.CHECKPOINT_EVENT)
    sequences = [record.attributes[semconv.CHECKPOINT_SEQUENCE] for record in records]
    assert sorted(sequences) == sorted([*range(2 + 2 * count)] * 2)
