"""The lines of code that took a step's time and memory are known, also of a program that was killed."""

from __future__ import annotations

import json
import re
import signal
import sys
from collections import Counter
from collections.abc import Callable
from operator import itemgetter

import pytest

from otel_quant.recordings.model import steps_in
from otel_quant.recordings.outside import outside_of
from otel_quant.recordings.reader import read, stacks_in
from otel_quant.schema import semconv
from otel_quant.schema.code_lines import BEFORE
from tests.fixtures.fake_nvml import FakeGpu, FakeNvml, FakeProcess
from tests.fixtures.otlp_receiver import OtlpReceiver
from tests.fixtures.programs import FLOAT_MODEL, Finished, Launched, Workshop, reader
from tests.fixtures.recording_schema import check_recording

PROGRAM = """
import os, signal, sys, threading, time
import otel_quant

MB = 1_000_000
held = []

def rest(seconds):
    time.sleep(seconds)

def first_holder(password):
    held.extend(grow() for _ in range(24))
    rest(0.6)

def second_holder():
    held.extend(grow() for _ in range(24))
    time.sleep(0.6)

def grow():
    block = bytearray(b"x") * (10 * MB)
    time.sleep(0.01)
    return block

def busy(seconds):
    until = time.thread_time() + seconds
    while time.thread_time() < until:
        sum(range(1000))

with otel_quant.step("Outer"):
    with otel_quant.step("Holding"):
        first_holder("s3cret")
        second_holder()
    with otel_quant.step("Computing"):
        busy(1.0)
        if "kill" in sys.argv:
            os.kill(os.getpid(), signal.SIGKILL)
"""


Recorded = Callable[..., Finished]


@pytest.fixture
def recorded(launched: Launched, workshop: Workshop) -> Recorded:
    """Runs a script, recorded, to the end that is expected."""

    def recorded(source: str, *arguments: str, code: int = 0, **variables: str) -> Finished:
        path = str(workshop.script(source).path)
        done = launched.run([sys.executable, path, *arguments], variables=variables)
        assert done.returncode == code, done.stderr
        return done

    return recorded


def test_memory_growth_and_time_are_attributed_to_the_right_functions(
    launched: Launched, recorded: Recorded
) -> None:
    recorded(PROGRAM)
    check_recording(launched.recording)
    grown: dict[str, float] = {}
    for stack, amount in collapsed(launched, "memory"):
        for name in {"first_holder", "second_holder"} & {frame.split(" ")[0] for frame in stack}:
            grown[name] = grown.get(name, 0) + amount
    assert grown == {name: pytest.approx(240e6, rel=0.1) for name in grown}
    assert len(grown) == 2
    stacks = [each for each in collapsed(launched, "time") if not each[0][0].startswith("(")]
    times: dict[str, float] = {}
    for stack, amount in stacks:
        times[stack[0]] = times.get(stack[0], 0) + amount / 1e6
    (run,) = read(launched.recording).runs
    _, holding, computing = run.steps
    assert set(times) <= {"Outer", "Outer > Holding", "Outer > Computing"}
    for step in (holding, computing):
        assert step.end is not None
        duration = step.end - step.start
        # What has passed since the last sample is not known: 0.4 s, on a busy machine more.
        assert 0.25 * duration < times[f"Outer > {step.name}"] <= duration
    assert {stack[1].split(" ")[0] for stack, _ in stacks} == {"<module>"}
    # A sample may see the program between two steps as well.
    most, _ = max((each for each in stacks if each[0][0].endswith("Computing")), key=itemgetter(1))
    assert most[2].startswith("busy (")
    text = "".join(path.read_text() for path in launched.recording.glob("stacks.*"))
    assert "s3cret" not in text
    assert "otel_quant/" not in text  # frames of ours are none of the program's


def test_the_report_of_a_killed_program_names_its_last_line(
    launched: Launched, recorded: Recorded
) -> None:
    source = PROGRAM.replace("busy(1.0)", "busy(2.5)")
    done = recorded(source, "kill", code=-signal.SIGKILL)
    assert re.search(
        r"was killed by SIGKILL after [\d.]+ s in Computing, at busy \(script\.py:\d+\)\.",
        done.stderr,
    )
    check_recording(launched.recording)


def test_the_report_of_a_program_killed_with_the_gil_gives_the_age_of_its_last_line(
    recorded: Recorded,
) -> None:
    source = """
        import ctypes, os, signal, threading
        import otel_quant

        def hold():
            ctypes.PyDLL(None).sleep(60)  # PyDLL keeps the GIL

        with otel_quant.step("Outer"):
            threading.Event().wait(1.5)
            os.spawnlp(os.P_NOWAIT, "sh", "sh", "-c", f"sleep 7; kill -KILL {os.getpid()}")
            hold()
    """
    done = recorded(source, code=-signal.SIGKILL)
    said = re.search(
        r"in Outer, at .+ \(.+\.py:\d+\)(?:, in \S+)?, not seen for (\d+\.\d+) s\.", done.stderr
    )
    assert said is not None, done.stderr
    assert 5 < float(said[1]) < 30


def test_the_stacks_of_a_thread_are_known_from_the_start_of_its_step(
    launched: Launched, recorded: Recorded
) -> None:
    done = recorded("""
        import time
        import otel_quant

        with otel_quant.step("Holding the GIL"):
            ran = time.thread_time()
            sum(range(60_000_000))
            ran = time.thread_time() - ran
            time.sleep(1)
        with otel_quant.step("Sleeping"):
            time.sleep(2)
        print(ran)
    """)
    holding, sleeping = read(launched.recording).runs[0].steps
    assert sleeping.attributes[semconv.STEP_BOUND_BY] == "waiting"
    (path,) = launched.recording.glob("stacks.*")
    rows = json.loads(path.read_bytes())["steps"][str(holding.index)]
    assert sum(row[3] for row in rows) / 1e9 == pytest.approx(float(done.stdout), rel=0.1)


def test_a_wait_for_another_build_is_not_taken_for_the_lock_file_of_a_killed_one(
    launched: Launched, recorded: Recorded
) -> None:
    pytest.importorskip("torch.utils._filelock", reason="before 2.15 PyTorch waits for a file")
    recorded("""
        import contextlib, os, pathlib, signal, subprocess, sys
        import filelock
        from torch.utils.cpp_extension import load_inline
        from torch.utils.file_baton import FileBaton
        import otel_quant

        def stop(*_):
            raise TimeoutError

        def build():
            load_inline("extension", "", build_directory=os.getcwd())

        signal.signal(signal.SIGALRM, stop)
        pathlib.Path("left").touch()  # as a build that is killed leaves it
        hold = "import filelock, sys; lock = filelock.FileLock('lock'); lock.acquire(); print(flush=True); sys.stdin.read()"
        pipe = subprocess.PIPE
        with subprocess.Popen([sys.executable, "-c", hold], stdin=pipe, stdout=pipe) as other:
            other.stdout.readline()
            for waits in (build, FileBaton("left").wait, filelock.FileLock("lock").acquire):
                with contextlib.suppress(TimeoutError), otel_quant.step("Waiting"):
                    signal.setitimer(signal.ITIMER_REAL, 2.5)
                    waits()
            other.stdin.close()
    """)
    steps = read(launched.recording).runs[0].steps
    bounds = [step.attributes[semconv.STEP_BOUND_BY] for step in steps]
    assert bounds == ["other_build", "lock_file", "waiting"]
    evidence = str(steps[0].attributes[semconv.STEP_BOUND_EVIDENCE])
    assert re.fullmatch(
        r"\d+ % of its time, most at build \(script\.py:\d+\), in _jit_compile", evidence
    )


@pytest.mark.parametrize("utilization", [3, 90])
def test_a_gpu_that_waits_for_python_is_reported_with_lines_live_and_later(
    launched: Launched, workshop: Workshop, otlp: OtlpReceiver, utilization: int
) -> None:
    gpu = FakeGpu(uuid="GPU-a", used=2 << 30, util=utilization)
    driver = FakeNvml(workshop.folder, [gpu], [FakeProcess(used=1 << 30)])
    script = workshop.folder / "caf\udce9" / "script.py"  # a name that is no UTF-8
    script.parent.mkdir()
    script.write_text(PROGRAM.replace("busy(1.0)", "busy(2.5)"))
    variables = otlp.environment("http/protobuf")
    done = launched.run([sys.executable, str(script)], variables={**driver.env, **variables})
    assert done.returncode == 0, done.stderr
    step = otlp.span("Computing")
    waits = step.attributes[semconv.STEP_BOUND_BY] == "gpu_idle"
    assert waits is (utilization == 3)
    assert ("probably bound by Python, for which the GPU waits: the GPU" in done.stderr) is waits
    (live,) = (
        each for each in otlp.records_of(semconv.LINES_EVENT) if each.span_id == step.span_id
    )
    assert live.trace_id == step.trace_id
    for name in (semconv.STEP_BOUND_BY, semconv.STEP_NAME):
        assert live.attributes[name] == step.attributes[name]
    first = live.body["time"][0]
    assert re.fullmatch(r"busy \(/.+/caf\\udce9/script\.py:\d+\)", first["line"])
    assert first["seconds"] > 1
    assert len(live.body["time"]) <= 10
    sent = launched.otel_quant("send", launched.recording.name, variables=variables)
    assert sent.returncode == 0, sent.stderr
    later = otlp.records_of(semconv.LINES_EVENT)[-1]
    assert later.span_id == live.span_id
    assert later.attributes == live.attributes
    assert {each["line"] for each in later.body["time"]} >= {first["line"]}


def test_the_time_outside_of_steps_has_the_lines_of_whichever_thread_works(
    launched: Launched, recorded: Recorded
) -> None:
    done = recorded("""
        import threading, time

        def load_data():
            until = time.thread_time() + 0.8
            while time.thread_time() < until:
                sum(range(1000))

        def load_model():
            held.append(bytearray(b"x") * 100_000_000)
            time.sleep(1)

        def ask():
            while not is_over:
                time.sleep(0.1)

        def save():
            time.sleep(0.7)

        held, is_over = [], False
        threading.Thread(target=ask, daemon=True).start()
        of_data = threading.Thread(target=load_data)
        of_data.start()
        of_data.join()
        load_model()

        import otel_quant

        with otel_quant.step("First"):
            pass
        time.sleep(0.5)
        with otel_quant.step("Second"):
            pass
        save()
        is_over = True
    """)
    found: dict[str, dict[str, float]] = {}
    for (step, *frames), amount in collapsed(launched, "time"):
        of_step = found.setdefault(step, {})
        for name in {frame.split(" ")[0] for frame in frames}:
            of_step[name] = of_step.get(name, 0) + amount / 1e6
    recording = read(launched.recording)
    rows = {row.step.name: row for row in outside_of(recording)}
    before, *others = (found[name] for name in rows)
    assert [set(of_row) - {"<module>"} for of_row in others] == [set(), {"save"}]
    # On a busy machine even what asks each 100 ms may be seen once: it waits for a processor meanwhile.
    assert min(before["load_data"], before["load_model"]) > 0.4 > before.get("ask", 0)
    for name, row in rows.items():
        assert 0.3 < found[name]["<module>"] <= row.own
    assert rows["(before the first step)"].step.attributes[semconv.MEMORY_PEAK] > 100_000_000
    assert re.search(
        r"^[\d.]+ of [\d.]+ s passed before the first step: load_\w+ \(script\.py:\d+\) [\d.]+ m?s, ",
        done.stderr,
        re.MULTILINE,
    )
    check_recording(launched.recording)


def test_a_program_that_mostly_imports_is_bound_by_that_before_its_first_step(
    recorded: Recorded, workshop: Workshop
) -> None:
    (workshop.folder / "slow.py").write_text("import threading, time\ntime.sleep(2)\n")
    done = recorded("""
        import slow
        import otel_quant

        with otel_quant.step("Short"):
            pass
    """)
    first, second, *_ = re.findall(
        r"^.* before the first step.*|^Before .*", done.stderr, re.MULTILINE
    )
    # Where the machine is busy the import of otel_quant may take longer than two seconds.
    assert re.fullmatch(
        r"[\d.]+ of [\d.]+ s passed before the first step: <module> \((slow\.py:2|script\.py:\d)\) [\d.]+ s(, .*)?\.",
        first,
    )
    assert re.fullmatch(
        r"Before the first step: bound by importing modules: \d+ % of its time, most at <module> \(script\.py:\d+\).*",
        second,
    )


def test_a_program_that_ends_at_once_loads_nothing_and_a_fork_while_it_loads_is_safe(
    launched: Launched, recorded: Recorded
) -> None:
    done = recorded("""
        import os, sys, threading, time

        assert not [name for name in sys.modules if "stack_sampler" in name]
        for _ in range(40):
            if not (child := os.fork()):
                import dataclasses, logging, pathlib, re, typing
                os._exit(0)
            os.waitpid(child, 0)
            time.sleep(0.01)
        print("stack_sampler" in str(sys.modules.keys()))
    """)
    assert done.stdout.splitlines() == ["True"]


@pytest.mark.slow
@pytest.mark.parametrize("milliseconds", range(160, 280, 8))
def test_a_library_can_be_imported_while_the_early_sampler_loads(
    recorded: Recorded, milliseconds: int
) -> None:
    recorded(f"""
        import threading, time
        time.sleep({milliseconds} / 1000)
        import multiprocessing, subprocess
    """)


def test_stacks_can_be_switched_off(launched: Launched, recorded: Recorded) -> None:
    recorded(PROGRAM, OTEL_QUANT_STACKS="false")
    assert list(launched.recording.glob("stacks.*")) == []
    asked = launched.otel_quant("stacks", launched.recording.name)
    assert (asked.returncode, asked.stdout) == (1, "")
    assert asked.stderr.startswith(
        f"otel-quant: {launched.recording.name}: holds no stacks that can be read; expected"
    )


def test_threads_without_a_step_are_recorded_if_all_threads_are_requested(
    launched: Launched, recorded: Recorded
) -> None:
    source = """
        import threading, time
        import otel_quant

        over = threading.Event()

        def reader():
            over.wait()

        threading.Thread(target=reader).start()
        with otel_quant.step("Outer"):
            time.sleep(1)
        over.set()
    """
    recorded(source, OTEL_QUANT_STACKS="all")
    functions: dict[str, set[str]] = {}
    for (step, *frames), _ in collapsed(launched, "time"):
        own = {frame.split(" ")[0] for frame in frames if "script.py" in frame}
        functions[step] = functions.get(step, set()) | own
    assert functions["Outer"] == {"<module>"}
    assert "reader" in functions["outside of steps"]


def test_paths_are_not_recorded_if_they_are_switched_off(
    launched: Launched, recorded: Recorded
) -> None:
    recorded(PROGRAM, OTEL_QUANT_PATHS="false")
    (path,) = launched.recording.glob("stacks.*")
    files = {place[0] for place in json.loads(path.read_bytes())["places"]}
    assert "script.py" in files
    assert not any(file.startswith("/") for file in files)


def collapsed(launched: Launched, measure: str) -> list[tuple[list[str], int]]:
    """Returns stacks, the step first, with microseconds or bytes."""
    text = shown(launched, "stacks", "--by", measure, "--format", "collapsed")
    return [
        (line.rpartition(" ")[0].split(";"), int(line.rpartition(" ")[2]))
        for line in text.splitlines()
    ]


def shown(launched: Launched, command: str, *options: str) -> str:
    """Returns what a command prints of the recording."""
    done = launched.otel_quant(command, launched.recording.name, *options)
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout


def calibration(samples: int, waits: str) -> str:
    """Returns a script that quantizes; its reader has so many samples, and waits for an expression's seconds."""
    waiting = reader(1, 8, samples=str(samples), before_each=f"time.sleep({waits})")
    return f"""{FLOAT_MODEL}{waiting}
from onnxruntime.quantization import quantize_static
quantize_static("float.onnx", "q.onnx", Reader())
"""


def test_a_real_calibration_with_a_slow_loader_is_bound_by_data_loading(recorded: Recorded) -> None:
    done = recorded(calibration(4, "0.5"))
    said = re.search(
        r"^Calibration: bound by the loader of the calibration data: (\d+) % of its time, "
        r"most at Reader\.get_next \(script\.py:21\)\. To try: load samples in several processes, or keep them on disk as they are used, which can save ",
        done.stderr,
        re.MULTILINE,
    )
    assert said is not None, done.stderr
    assert int(said[1]) > 50


@pytest.mark.parametrize("is_stalled", [True, False])
def test_a_data_reader_stall_is_reported_once_with_its_line_and_a_slow_sample_is_not(
    recorded: Recorded, otlp: OtlpReceiver, is_stalled: bool
) -> None:
    # Fast samples, then one that takes forty times as long, or more than can be called slow.
    waits = f"{26 if is_stalled else 12} if self.given == 4 else 0.3"
    done = recorded(calibration(6, waits), **otlp.environment("http/protobuf"))
    words = re.compile(
        r"Calibration, sample 4 of 6: no progress for 2\d s, "
        r"at Reader\.get_next \(script\.py:21\)"
    )
    records = otlp.records_of(semconv.STALL_EVENT)
    assert len(words.findall(done.stderr)) == len(records) == (1 if is_stalled else 0)
    for record in records:
        assert words.fullmatch(record.body)
        assert record.severity == "WARN"
        assert 20 < record.attributes[semconv.FORECAST_STALLED] < 26
        assert record.attributes[semconv.CALIBRATION_SAMPLE_COUNT] == 4
        code = [record.attributes[f"code.{name}"] for name in ("function.name", "line.number")]
        assert code == ["Reader.get_next", 21]
        assert record.attributes["code.file.path"].endswith("script.py")
        assert record.span_id == otlp.span("Calibration").span_id


LOADING = """
import os, signal, sys, time

def load_data():
    time.sleep(1.4)

load_data()
if "kill" in sys.argv: os.kill(os.getpid(), signal.SIGKILL)
if "step" in sys.argv:
    import otel_quant
    with otel_quant.step("Calibration"):
        if "exit" in sys.argv: os._exit(3)
        time.sleep(0.1)
"""


@pytest.mark.parametrize("arguments", [["kill"], [], ["step"], ["step", "exit"]])
def test_the_time_before_the_first_step_has_its_lines_whatever_comes_then(
    launched: Launched, arguments: list[str]
) -> None:
    (launched.folder / "q.py").write_text(LOADING)
    launched.run(["python", "q.py", *arguments], "--out", "made")
    shown = launched.otel_quant("show", "made").stdout
    when = "before the first step" if "step" in arguments else "outside of steps"
    passed = rf"^(\d+\.\d+) of (\d+\.\d+) s passed {when}: load_data \(q\.py:5\) 1\.\d+ s[,.]"
    found = re.search(passed, shown, re.MULTILINE)
    assert found, shown
    # How long the program takes beside its 1.4 s is the machine's; the recording has it.
    recording = read(launched.folder / "made")
    ends = [recording.duration, *(each.step.start for each in steps_in(recording))]
    before, whole = map(float, found.groups())
    assert (before, whole) == (
        pytest.approx(min(ends), abs=0.006),
        pytest.approx(ends[0], abs=0.006),
    )
    assert 1.4 <= before <= whole
    why = "no quantization library that otel-quant knows was called, nor otel_quant.step"
    assert (f"\nNo step was recorded: {why}.\n" in shown) == ("step" not in arguments)
    files = [*(launched.folder / "made").glob("stacks.*.before.json")]
    assert len(files) == ("step" not in arguments)
    check_recording(launched.folder / "made")


def test_an_instrumented_program_with_a_recording_of_its_own_has_the_lines_before_its_first_step(
    workshop: Workshop,
) -> None:
    done = workshop.script(LOADING).run({"OTEL_QUANT_RECORD": "made"}, "step")
    assert done.returncode == 0, done.stderr
    recording = read(workshop.folder / "made")
    (before,) = (each for each in outside_of(recording) if each.step.index == BEFORE)
    assert 1.4 < before.own < recording.duration - 0.1
    seen = sum(each.seen.time for each in stacks_in(recording) if each.call.function == "load_data")
    assert seen / 1e9 == pytest.approx(1.4, abs=0.25)


PREPARING = f"""
{FLOAT_MODEL}
{reader(1, 8)}
from onnxruntime.quantization import quantize_static

def prepare(*args):
    time.sleep(1)
    return load(*args)

quantize = sys.modules[quantize_static.__module__]
load, quantize.load_model_with_shape_infer = quantize.load_model_with_shape_infer, prepare
quantize_static("float.onnx", "int8.onnx", Reader())
"""


def test_what_a_library_does_before_its_first_step_has_its_lines(
    launched: Launched, recorded: Recorded
) -> None:
    recorded(PREPARING)
    recording = read(launched.recording)
    seen = sum(each.seen.time for each in stacks_in(recording) if each.call.function == "prepare")
    assert seen > 0.5e9


@pytest.mark.slow
def test_a_step_that_held_the_gil_until_it_was_killed_was_not_seen_since_its_start(
    recorded: Recorded,
) -> None:
    source = """
        import ctypes, os, otel_quant

        os.spawnlp(os.P_NOWAIT, "sh", "sh", "-c", f"sleep 6; kill -KILL {os.getpid()}")
        with otel_quant.step("Outer"):
            ctypes.PyDLL(None).sleep(60)  # PyDLL keeps the GIL
    """
    done = recorded(source, code=-signal.SIGKILL)
    assert re.search(r"in Outer, not seen for 5\.\d+ s\.", done.stderr), done.stderr


IN_TURNS = """
import hashlib, time
import otel_quant

DATA = bytes(60_000)

def computes():
    total = 0
    for each in range(60_000):
        total += each

def hashes():
    hashlib.sha256(DATA)  # which gives the GIL away, for a tenth of the time

with otel_quant.step("In turns"):
    until = time.thread_time() + 2
    while time.thread_time() < until:
        computes()
        hashes()
"""


def test_a_program_is_seen_where_it_is_not_where_it_gives_the_gil_away(launched: Launched) -> None:
    (launched.folder / "q.py").write_text(IN_TURNS)
    launched.run(["python", "q.py"], "--out", "made")
    seen = Counter[str]()
    for each in stacks_in(read(launched.folder / "made")):
        seen[each.call.function] += each.seen.time  # of all lines of a function
    assert seen["computes"] > seen["hashes"]
