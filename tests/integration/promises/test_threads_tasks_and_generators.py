"""Steps of threads, tasks and generators: each where it belongs, and none in another's way."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from tests.fixtures.otlp_receiver import OtlpReceiver, Tree
from tests.fixtures.programs import Ran, Workshop

PRELUDE = """
import asyncio, contextvars, gc, json, threading, time
from opentelemetry import trace
from otel_quant import step

def current():
    return getattr(trace.get_current_span(), "name", None)
"""


Run = Callable[[str], Any]


@pytest.fixture
def run(ran: Ran) -> Run:
    """Runs a script; returns the JSON document that it prints, if any."""
    return lambda body: json.loads(ran(PRELUDE + body) or "null")


def steps_of(otlp: OtlpReceiver) -> list[Tree]:
    """Returns the steps as they nest, below the run, in the order of their names."""
    ((root, steps),) = otlp.tree()
    assert root == "quantization"
    return sorted(steps)


def test_steps_in_threads_are_below_the_run_unless_the_thread_has_a_context(
    run: Run, otlp: OtlpReceiver
) -> None:
    run(
        """
barrier = threading.Barrier(3)

def work(name):
    with step(f"{name} outer"):
        barrier.wait()  # all three are open at once
        with step(f"{name} inner"):
            barrier.wait()
        barrier.wait()

with step("main"):
    threads = [
        threading.Thread(target=work, args=["a"]),
        threading.Thread(target=work, args=["b"]),
        threading.Thread(target=contextvars.copy_context().run, args=[work, "carried"]),
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
"""
    )
    assert steps_of(otlp) == [
        ("a outer", [("a inner", [])]),
        ("b outer", [("b inner", [])]),
        ("main", [("carried outer", [("carried inner", [])])]),
    ]


def test_tasks_nest_in_their_parent_task_and_a_cancelled_task_fails_its_step(
    run: Run, otlp: OtlpReceiver
) -> None:
    is_cancelled = run(
        """
async def work(name):
    async with step(f"{name} outer"):
        await asyncio.sleep(0.01)
        with step(f"{name} inner"):
            await asyncio.sleep(0.01)

@step("decorated")
async def decorated():
    await asyncio.gather(work("a"), work("b"))
    assert current() == "decorated"

@step("endless")
async def endless():
    await asyncio.sleep(10)

async def main():
    await decorated()
    await asyncio.gather(work("c"), asyncio.to_thread(asyncio.run, work("d")))
    task = asyncio.ensure_future(endless())
    await asyncio.sleep(0.01)
    task.cancel()
    try:
        await task
    except asyncio.CancelledError:
        print(json.dumps(task.cancelled()))

asyncio.run(main())
"""
    )

    def task(name: str) -> Tree:
        return (f"{name} outer", [(f"{name} inner", [])])

    c, d, (decorated, within), endless = steps_of(otlp)
    assert (c, d, decorated, endless) == (task("c"), task("d"), "decorated", ("endless", []))
    assert sorted(within) == [task("a"), task("b")]
    assert is_cancelled is True
    cancelled = otlp.span("endless")
    assert cancelled.status == "ERROR"
    assert cancelled.attributes["error.type"] == "asyncio.exceptions.CancelledError"


def test_a_generator_is_the_current_step_only_while_its_own_code_runs(
    run: Run, otlp: OtlpReceiver
) -> None:
    seen = run(
        """
seen = []

@step("generator")
def generate():
    seen.append(current())
    with step("within"):
        got = yield 1
    seen.append([current(), got])
    yield 2
    return "result"

def delegating():
    return (yield from generate())

with step("consumer"):
    items = delegating()
    seen.append(next(items))
    seen.append(current())
    with step("between"):
        seen.append(items.send("sent"))
    try:
        next(items)
    except StopIteration as stop:
        seen.append(stop.value)
print(json.dumps(seen))
"""
    )
    assert seen == ["generator", 1, "consumer", ["generator", "sent"], 2, "result"]
    assert steps_of(otlp) == [("consumer", [("generator", [("within", [])]), ("between", [])])]
    assert {span.status for span in otlp.spans} == {"UNSET"}


def test_generators_that_end_early_or_fail_end_their_step(run: Run, otlp: OtlpReceiver) -> None:
    seen = run(
        """
seen = []

def generator(name):
    @step(name)
    def generate():
        try:
            while True:
                yield name
        except KeyError:
            yield "handled"
        finally:
            seen.append([name, current()])
    return generate()

closed = generator("closed")
next(closed)
closed.close()

dropped = generator("dropped")
next(dropped)
del dropped
gc.collect()

broken = generator("broken")
next(broken)
error = ValueError("thrown in")
try:
    broken.throw(error)
except ValueError as caught:
    seen.append(["same", caught is error])

handled = generator("handled")
next(handled)
seen.append(["throw gives", handled.throw(KeyError())])
handled.close()

generator("never begun")

unfinished = generator("unfinished")
next(unfinished)
print(json.dumps(seen))
"""
    )
    assert seen == [
        ["closed", "closed"],
        ["dropped", "dropped"],
        ["broken", "broken"],
        ["same", True],
        ["throw gives", "handled"],
        ["handled", "handled"],
    ]
    statuses = {span.name: span.status for span in otlp.spans}
    assert statuses == {
        "quantization": "UNSET", "closed": "UNSET", "dropped": "UNSET", "broken": "ERROR",
        "handled": "UNSET", "unfinished": "ERROR",
    }  # fmt: skip
    unfinished = otlp.span("unfinished").attributes["error.type"]
    assert unfinished == "otel_quant.capture.recorder.recorder.UnfinishedStepError"


def test_asynchronous_generators_are_steps(run: Run, otlp: OtlpReceiver) -> None:
    seen = run(
        """
seen = []

def generator(name):
    @step(name)
    async def generate():
        try:
            while True:
                await asyncio.sleep(0)
                got = yield current()
                if got is not None:
                    seen.append([name, got])
        except KeyError:
            yield "handled"
        finally:
            await asyncio.sleep(0)
            seen.append([name, current()])
    return generate()

async def main():
    async with step("consumer"):
        async for item in generator("left early"):
            seen.append([item, current()])
            break
        await asyncio.sleep(0.01)
        gc.collect()
        await asyncio.sleep(0.01)

        closed = generator("closed")
        await anext(closed)
        await closed.asend("sent")
        await closed.aclose()

        broken = generator("broken")
        await anext(broken)
        try:
            await broken.athrow(ValueError("thrown in"))
        except ValueError as caught:
            seen.append(["caught", str(caught)])

        handled = generator("handled")
        await anext(handled)
        seen.append(["throw gives", await handled.athrow(KeyError())])
        await handled.aclose()

asyncio.run(main())
print(json.dumps(seen))
"""
    )
    assert seen == [
        ["left early", "consumer"],
        ["left early", "left early"],
        ["closed", "sent"],
        ["closed", "closed"],
        ["broken", "broken"],
        ["caught", "thrown in"],
        ["throw gives", "handled"],
        ["handled", "handled"],
    ]
    statuses = {span.name: span.status for span in otlp.spans}
    assert statuses == {
        "quantization": "UNSET", "consumer": "UNSET", "left early": "UNSET", "closed": "UNSET",
        "broken": "ERROR", "handled": "UNSET",
    }  # fmt: skip


def test_a_generator_collected_in_another_thread_changes_no_other_step(
    run: Run, otlp: OtlpReceiver
) -> None:
    run(
        """
def generate():
    with step("block"):
        yield 1

items = [generate()]
next(items[0])
thread = threading.Thread(target=items.clear)  # closes it, in a context that is not its own
thread.start()
thread.join()
with step("after"):
    pass
"""
    )
    assert sorted(otlp.span_names()) == ["after", "block", "quantization"]


def test_a_signal_handler_can_open_a_step_during_a_checkpoint(workshop: Workshop) -> None:
    # Only what is ours takes part: the SDK's own locks are not made for signal handlers.
    finished = workshop.script(
        PRELUDE
        + """
import signal
count, over = 0, False
def handler(*_):
    global count
    if over:  # a signal that came just before the timer was stopped
        return
    count += 1
    with step("handler"):
        pass
    signal.setitimer(signal.ITIMER_REAL, 0.001)
signal.signal(signal.SIGALRM, handler)
with step("first"):
    pass
signal.setitimer(signal.ITIMER_REAL, 0.001)
until = time.monotonic() + 1
while time.monotonic() < until:
    with step("outer"):
        pass
over = True
signal.setitimer(signal.ITIMER_REAL, 0)
print(json.dumps(count))
"""
    ).run({"OTEL_QUANT_PROFILE": "profile.yaml", "OTEL_QUANT_SAMPLE_INTERVAL": "1"})
    assert (finished.returncode, finished.stderr) == (0, "")
    profile = (workshop.folder / "profile.yaml").read_text()
    assert profile.count('"handler End"') == int(finished.stdout)
