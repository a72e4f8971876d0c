"""Children that quantize report into their parent's trace, and lose nothing at their end."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from otel_quant.schema import semconv
from tests.fixtures.otlp_receiver import OtlpReceiver, Protocol, Tree
from tests.fixtures.programs import PROGRAMS, Finished, Ran, Workshop, clean_environment, steps_in
from tests.fixtures.programs import run as run_command

TRACEPARENT = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
TRACE, PARENT = TRACEPARENT.split("-")[1:3]

SCRIPT = """
import concurrent.futures, multiprocessing, os, subprocess, sys
import otel_quant

def work(number):
    with otel_quant.step("work"):
        with otel_quant.step("inner"):
            return number

def within(mode, start):
    if mode == "process":
        child = multiprocessing.get_context(start).Process(target=work, args=(1,))
        child.start()
        child.join()
        assert child.exitcode == 0, child.exitcode
    elif mode == "pool":  # the end of the block terminates the workers
        with multiprocessing.get_context(start).Pool(2) as pool:
            assert pool.map(work, range(3), chunksize=1) == [0, 1, 2]
    elif mode == "executor":
        context = multiprocessing.get_context(start)
        with concurrent.futures.ProcessPoolExecutor(2, mp_context=context) as executor:
            assert list(executor.map(work, range(3))) == [0, 1, 2]
    elif mode == "subprocess":
        subprocess.run([sys.executable, __file__, "child"], check=True)
    elif mode == "os.fork":
        child = os.fork()
        if child == 0:
            work(1)
            os._exit(0)
        assert os.waitpid(child, 0)[1] == 0

if __name__ == "__main__":
    for argument in sys.argv[1:]:
        mode, _, start = argument.partition(" by ")
        if mode == "child":
            work(1)
        elif mode == "early pool":
            otel_quant.step  # the library is in use; the run has not begun
            with multiprocessing.get_context(start).Pool(1) as pool:
                assert pool.map(work, [0]) == [0]
                with otel_quant.step("main"):
                    pass
        else:
            before = dict(os.environ)
            with otel_quant.step(argument):
                within(mode, start)
            assert dict(os.environ) == before
"""

ONE_CHILD: Tree = ("quantization", [("work", [("inner", [])])])
FORKED_CHILDREN = {"process by fork": 1, "pool by fork": 3, "executor by fork": 3, "os.fork": 1}
"""How children are started, and how many of each have a task."""
TASK = ["work Start", "inner Start", "inner End", "work End"]


def run(
    folder: Path,
    otlp: OtlpReceiver,
    protocol: Protocol,
    *arguments: str,
    script: str = SCRIPT,
    **env: str,
) -> Finished:
    made = Workshop(folder).script(script, "quantize.py")
    done = made.run({**otlp.environment(protocol), **env}, *arguments)
    assert done.returncode == 0, done.stderr
    return done


@pytest.mark.parametrize(
    ("protocol", "started"),
    [
        # What of an exporter survives a fork is another thing for each protocol.
        ("grpc", FORKED_CHILDREN),
        ("http/protobuf", FORKED_CHILDREN),
        ("grpc", {"process by spawn": 1, "process by forkserver": 1}),
        ("http/protobuf", {"pool by spawn": 3, "subprocess": 1}),
    ],
)
def test_a_childs_spans_are_below_the_step_that_started_it_and_it_writes_its_own_file(
    tmp_path: Path, otlp: OtlpReceiver, protocol: Protocol, started: dict[str, int]
) -> None:
    run(tmp_path, otlp, protocol, *started, OTEL_QUANT_PROFILE="profile.yaml")

    below = [(how, [ONE_CHILD] * children) for how, children in started.items()]
    children = sum(started.values())
    assert otlp.tree() == [("quantization", below)]
    assert len({span.trace_id for span in otlp.spans}) == 1
    assert len({span.span_id for span in otlp.spans}) == len(otlp.spans)
    roots = [span for span in otlp.spans_named("quantization") if span.parent_id]
    assert [root.attributes[semconv.RUN_STEPS] for root in roots] == [2] * children
    own = [f"{how} {end}" for how in started for end in ("Start", "End")]
    assert steps_in(tmp_path / "profile.yaml") == ["Start", *own, "End"]
    # The worker of a pool writes one however many its tasks, and may have had all of them.
    files = list(tmp_path.glob("profile.*.yaml"))
    pids = {root.attributes["process.pid"] for root in roots}
    assert {path.name for path in files} == {f"profile.{pid}.yaml" for pid in pids}
    steps = [step for path in files for step in steps_in(path)]
    assert [step for step in steps if step not in ("Start", "End")] == TASK * children


@pytest.mark.parametrize("start", ["fork", "spawn"])
def test_a_worker_started_before_the_first_step_is_below_the_run(
    tmp_path: Path, otlp: OtlpReceiver, start: str
) -> None:
    run(tmp_path, otlp, "grpc", f"early pool by {start}")

    [(root, below)] = otlp.tree()
    assert root == "quantization"
    assert sorted(below) == sorted([ONE_CHILD, ("main", [])])


SPAN_OF_THE_PROGRAM = """
import multiprocessing, os, subprocess, sys
from opentelemetry import trace

def work():
    import otel_quant
    with otel_quant.step("work"):
        with otel_quant.step("inner"):
            pass

if __name__ == "__main__":
    if sys.argv[1:]:
        work()
        sys.exit()
    before = dict(os.environ)
    for mode in ("fork", "spawn", "forkserver", "subprocess", "environment", "shell"):
        with trace.get_tracer("program").start_as_current_span(mode):
            if "fork" in mode or mode == "spawn":
                child = multiprocessing.get_context(mode).Process(target=work)
                child.start()
                child.join()
                assert child.exitcode == 0, child.exitcode
            else:
                command = ["opentelemetry-instrument", sys.executable, __file__, "child"]
                env = {**os.environ, "MORE": "1"} if mode == "environment" else None
                subprocess.run(" ".join(command) if mode == "shell" else command,
                               shell=mode == "shell", env=env, check=True)
    assert dict(os.environ) == before
    assert "otel_quant.capture.runtime" not in sys.modules, "the program itself does not quantize"
"""


def test_a_child_continues_the_trace_of_the_programs_span(
    tmp_path: Path, otlp: OtlpReceiver
) -> None:
    run(tmp_path, otlp, "http/protobuf", script=SPAN_OF_THE_PROGRAM)

    modes = ("fork", "spawn", "forkserver", "subprocess", "environment", "shell")
    assert sorted(otlp.tree()) == sorted((mode, [ONE_CHILD]) for mode in modes)
    assert len({span.trace_id for span in otlp.spans}) == len(modes)


def test_a_child_without_a_current_span_gets_the_programs_environment(
    tmp_path: Path, otlp: OtlpReceiver
) -> None:
    script = """
import os, subprocess, sys
command = [sys.executable, "-c", "import os; print(os.environ.get('TRACEPARENT'))"]
for env in (None, dict(os.environ)):
    print(subprocess.run(command, env=env, capture_output=True, text=True).stdout.strip())
"""
    assert run(tmp_path, otlp, "http/protobuf", script=script).stdout == "None\nNone\n"
    result = run(tmp_path, otlp, "http/protobuf", script=script, TRACEPARENT=TRACEPARENT)
    assert result.stdout == f"{TRACEPARENT}\n{TRACEPARENT}\n"


def test_a_run_continues_the_trace_from_its_environment(tmp_path: Path, otlp: OtlpReceiver) -> None:
    run(tmp_path, otlp, "grpc", "child", TRACEPARENT=TRACEPARENT, TRACESTATE="team=quant")

    root = otlp.span("quantization")
    assert (root.trace_id, root.parent_id) == (TRACE, PARENT)


FORKED = """
import json, os, threading, time
import otel_quant

def samplers():
    return [thread for thread in threading.enumerate() if thread.name == "otel-quant-sampler"]

with otel_quant.step("parent"):
    reading, writing = os.pipe()
    for number in range(20):  # some of them in the middle of a sample
        time.sleep(0.003)
        pid = os.fork()
        if pid == 0:
            counts = [len(samplers())]
            with otel_quant.step(f"child {number}"):
                counts.append(len(samplers()))
            counts.append(len(samplers()))
            os.write(writing, (json.dumps(counts) + "\\n").encode())
            os._exit(0)
        os.waitpid(pid, 0)
    os.close(writing)
    with os.fdopen(reading) as file:
        print(json.dumps([json.loads(line) for line in file]))
    assert len(samplers()) == 1
"""


def test_a_forked_child_has_its_own_run_and_sampler(ran: Ran, otlp: OtlpReceiver) -> None:
    printed = ran(FORKED, OTEL_QUANT_SAMPLE_INTERVAL="1")
    # A worker is one run, which lasts until it ends.
    assert json.loads(printed) == [[0, 1, 1]] * 20
    run_of_parent = otlp.span("parent").attributes[semconv.RUN_ID]
    runs = {otlp.span(f"child {n}").attributes[semconv.RUN_ID] for n in range(20)}
    assert len(runs) == 20
    assert run_of_parent not in runs


def test_torchrun_ranks_are_root_spans_with_their_own_files(
    tmp_path: Path, otlp: OtlpReceiver
) -> None:
    (tmp_path / "rank.py").write_text(
        "import otel_quant\nwith otel_quant.step('Calibration'):\n    pass\n"
    )
    torchrun = ("-m", "torch.distributed.run", "--nproc-per-node", "2", "--master-port", "0")
    environment = {"TRACEPARENT": TRACEPARENT, "OTEL_QUANT_PROFILE": "profile.yaml"}
    result = run_command(
        [PROGRAMS / "opentelemetry-instrument", sys.executable, *torchrun, "rank.py"],
        tmp_path,
        clean_environment({**otlp.environment("grpc"), **environment}),
    )

    assert result.returncode == 0, result.stderr
    roots = otlp.spans_named("quantization")
    assert {(root.trace_id, root.parent_id) for root in roots} == {(TRACE, PARENT)}
    ranks = sorted(
        (root.attributes[semconv.RUN_RANK], root.attributes[semconv.RUN_WORLD_SIZE])
        for root in roots
    )
    assert ranks == [(0, 2), (1, 2)]
    assert sorted(path.name for path in tmp_path.glob("*.yaml")) == [
        "profile.rank0.yaml", "profile.rank1.yaml"
    ]  # fmt: skip
