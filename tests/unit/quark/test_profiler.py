"""Quark's profiler API, without Quark installed."""

from __future__ import annotations

import logging
import sys
import threading
import types
from pathlib import Path
from typing import Any

import pytest
import yaml

from otel_quant import quark
from otel_quant.quark import GlobalProfiler
from otel_quant.schema.readings import ProfileStep
from tests.fixtures.programs import run_script, steps_in


def run(folder: Path, script: str, **environ: str) -> str:
    blocked = "import sys\nsys.modules['quark'] = None\n"  # as if it were not installed
    out, err = run_script(folder, blocked + script, **{"QUARK_PROFILING": "1", **environ})
    assert err == ""
    return out


def read(path: Path) -> dict[str, Any]:
    loaded: dict[str, Any] = yaml.safe_load(path.read_bytes())
    return loaded


def test_steps_are_spans_without_a_file_if_the_variable_is_unset(tmp_path: Path) -> None:
    out = run(
        tmp_path,
        """
from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
exporter = InMemorySpanExporter()
provider = TracerProvider()
provider.add_span_processor(SimpleSpanProcessor(exporter))
trace.set_tracer_provider(provider)

from otel_quant.quark import GlobalProfiler, ProfileStep, profile_scope
profiler = GlobalProfiler(output_path="p.yaml")

@profile_scope(ProfileStep.CALIBRATION)
def calibrate():
    return 1

with profiler.scope(ProfileStep.USER_DEFINED, user_msg="Mine"):
    assert calibrate() == 1
profiler._checkpoint("Here")
profiler.start_cache_dir_monitoring(".")
profiler.stop()
print(profiler.enabled, profiler.records, profiler.start_time, profiler.base_memory)
print([span.name for span in exporter.get_finished_spans()])
""",
        QUARK_PROFILING="0",
    )

    assert out == "False [] None 0\n['Calibration', 'Mine']\n"
    assert [path.name for path in tmp_path.iterdir()] == ["script.py"]


def test_scopes_of_several_threads_may_overlap(tmp_path: Path) -> None:
    run(
        tmp_path,
        """
import threading
from otel_quant.quark import GlobalProfiler
profiler = GlobalProfiler()
first_in, second_in = threading.Event(), threading.Event()

def first():
    with profiler.scope("First"):
        first_in.set()
        second_in.wait(30)

def second():
    first_in.wait(30)
    with shared, shared:
        second_in.set()
        thread.join(30)

shared = profiler.scope("Second")
thread = threading.Thread(target=first)
thread.start()
second()
""",
    )

    assert steps_in(tmp_path / "quark_profile.yaml") == [
        "Start", "First Start", "Second Start", "Second Start", "First End", "Second End",
        "Second End", "End",
    ]  # fmt: skip


def test_the_first_path_is_used_and_nothing_is_recorded_after_stop(tmp_path: Path) -> None:
    run(
        tmp_path,
        """
from otel_quant.quark import GlobalProfiler
profiler = GlobalProfiler("first.yaml")
assert GlobalProfiler(output_path="second.yaml") is profiler
assert profiler.output_path == "first.yaml"
with profiler as itself:
    assert itself is profiler
figures = profiler.start_time, profiler.base_memory
profiler.stop()
profiler.stop()
assert (profiler.start_time, profiler.base_memory) == figures
with profiler.scope("Late"):
    profiler._checkpoint("Late too")
assert [record["step"] for record in profiler.records] == ["Start", "End"]
""",
    )

    assert sorted(path.name for path in tmp_path.iterdir()) == ["first.yaml", "script.py"]
    assert steps_in(tmp_path / "first.yaml") == ["Start", "End"]


def test_a_program_that_resets_the_singleton_gets_a_second_file_with_the_metrics_of_the_start(
    tmp_path: Path,
) -> None:
    run(
        tmp_path,
        """
from otel_quant.quark import CheckpointMetric, GlobalProfiler

class Added(CheckpointMetric):
    name = "added"
    def get_definition(self):
        return "One."
    def collect(self, context):
        return 1

for name in ("first", "second", "second"):
    profiler = GlobalProfiler(f"{name}.yaml")
    if name == "first":
        profiler.checkpoint_metrics.append(Added())
        del profiler.summary_metrics[0]
    with profiler.scope(name):
        pass
    GlobalProfiler._instance = None
""",
    )

    files = {path.name: read(path) for path in tmp_path.glob("*.yaml")}
    assert {name: steps_in(tmp_path / name) for name in files} == {
        "first.yaml": ["Start", "first Start", "first End", "End"],
        "second.1.yaml": ["Start", "second Start", "second End", "End"],
        "second.yaml": ["Start", "second Start", "second End", "End"],
    }
    assert {
        name: ("added" in file["memory_usage"][1], "total_quantization_time_seconds" in file)
        for name, file in files.items()
    } == {"first.yaml": (True, False), "second.1.yaml": (False, True), "second.yaml": (False, True)}


def test_a_run_that_began_earlier_uses_the_path_that_is_given_later(tmp_path: Path) -> None:
    run(
        tmp_path,
        """
import otel_quant
from otel_quant.quark import GlobalProfiler
with otel_quant.step("Before"):
    pass
with GlobalProfiler("mine.yaml").scope("After"):
    pass
""",
    )

    assert [path.name for path in tmp_path.glob("*.yaml")] == ["mine.yaml"]
    assert steps_in(tmp_path / "mine.yaml") == [
        "Start", "Before Start", "Before End", "After Start", "After End", "End",
    ]  # fmt: skip


@pytest.mark.parametrize("before", ["step", "scope of a profiler that is off"])
def test_the_first_record_is_the_start_of_the_run_even_if_it_began_earlier(
    tmp_path: Path, before: str
) -> None:
    earlier = {
        "step": "with otel_quant.step('Before'):\n    pass\n",
        "scope of a profiler that is off": (
            "with GlobalProfiler().scope('Before'):\n    pass\nGlobalProfiler._instance = None\n"
        ),
    }
    run(
        tmp_path,
        "import os, time\nimport otel_quant\nfrom otel_quant.quark import GlobalProfiler\n"
        f"began = time.time()\n{earlier[before]}os.environ['QUARK_PROFILING'] = '1'\n"
        "profiler = GlobalProfiler()\n"
        "with profiler.scope('After'):\n    pass\n"
        "first = profiler.records[0]\n"
        "assert began <= first['timestamp'] == profiler.start_time\n"
        "assert (first['relative_time_secs'], first['disk_write_mb']) == (0, 0)\n"
        "profiler.stop()\n"
        "names = [record['step'] for record in profiler.records]\n"
        "assert names == ['Start', 'After Start', 'After End', 'End'], names\n",
        QUARK_PROFILING="0",
        OTEL_QUANT_PROFILE="p.yaml",
    )


def test_the_profiler_returns_its_measurements(tmp_path: Path) -> None:
    out = run(
        tmp_path,
        """
import itertools, os
from otel_quant.capture.probes import readers
from otel_quant.quark import GlobalProfiler
from otel_quant.schema.readings import GpuReading

used = itertools.chain((500, 700), itertools.repeat(600))
readers.PROBES["gpu"] = lambda _: lambda pids: (GpuReading(0, "GPU-0", None, next(used)),)

def show(profiler):
    with profiler.scope("Calibration"):
        print(profiler._has_psutil, profiler._gpu_available, profiler._disk_io_available)
    print(profiler.gpu_baseline_memory, profiler.gpu_peak_memory)
    print(profiler.baseline_disk_read >= 0, profiler.baseline_disk_write >= 0)

show(GlobalProfiler())
GlobalProfiler._instance = None
os.environ["QUARK_PROFILING"], os.environ["OTEL_QUANT_GPU"] = "0", "false"
off = GlobalProfiler()
show(off)
print(off.baseline_disk_read, off.baseline_disk_write)
""",
        OTEL_QUANT_SAMPLE_INTERVAL="0",
    )

    assert out.splitlines() == [
        "True True True", "500 700", "True True", "True False False", "0 0", "True True", "0 0",
    ]  # fmt: skip


def test_functions_of_quarks_submodules_measure_steps(tmp_path: Path) -> None:
    run(
        tmp_path,
        """
import os
from otel_quant.quark import cache_dir_disk_monitor, metrics, utils
from otel_quant.quark.profiler import ProfileStep, profile_scope

memory = utils.get_cpu_memory()
assert memory > 1 << 20
on, process, base = utils.init_psutil_profiling()
assert on and process.pid == os.getpid() and abs(base - memory) < 64 << 20
available, read, written = utils.init_disk_io_profiling()
assert available and all(now >= then for now, then in zip(utils.get_disk_io(), (read, written)))
assert utils.init_gpu_profiling() is (utils.get_gpu_memory() > 0)
assert isinstance(utils.detect_platform(), utils.Hardware)
assert metrics.CPUPeakMemoryMetric().name == "peak_memory_mb"

os.mkdir("cache")
open("cache/old", "wb").write(bytes(1 << 20))
monitor = cache_dir_disk_monitor.CacheDirDiskMonitor("cache", interval=3600)
monitor.start()
open("cache/new", "wb").write(bytes(3 << 20))
monitor.stop()
os.remove("cache/new")
assert (monitor.path, monitor.interval) == ("cache", 3600)
assert (monitor.initial_mb, monitor.peak_mb) == (1.0, 3.0)
""",
        QUARK_PROFILING="0",
    )


@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_a_child_process_has_its_own_file_with_the_same_metrics(
    tmp_path: Path, method: str
) -> None:
    out = run(
        tmp_path,
        """
import multiprocessing
import os
from otel_quant.quark import CheckpointMetric, GlobalProfiler

class Answer(CheckpointMetric):
    name = "answer"
    def get_definition(self):
        return "The answer."
    def collect(self, context):
        return 42

def work():
    profiler = GlobalProfiler("mine.yaml")
    with profiler.scope("Child"):
        print(os.getpid(), flush=True)

if __name__ == "__main__":
    profiler = GlobalProfiler("mine.yaml")
    profiler.checkpoint_metrics.append(Answer())
    with profiler.scope("Parent"):
        child = multiprocessing.get_context("METHOD").Process(target=work)
        child.start()
        child.join()
    assert child.exitcode == 0
""".replace("METHOD", method),
    )

    assert steps_in(tmp_path / "mine.yaml") == ["Start", "Parent Start", "Parent End", "End"]
    child = read(tmp_path / f"mine.{out.strip()}.yaml")
    assert [record["step"] for record in child["memory_usage"]] == [
        "Start", "Child Start", "Child End", "End",
    ]  # fmt: skip
    if method == "fork":
        assert {record["answer"] for record in child["memory_usage"]} == {42}


def test_a_failing_block_raises_the_same_error(tmp_path: Path) -> None:
    _, err = run_script(
        tmp_path,
        """
from otel_quant.quark import GlobalProfiler
with GlobalProfiler().scope("Fails"):
    raise KeyError("layer")
""",
        code=1,
        QUARK_PROFILING="1",
    )

    assert err.splitlines()[-1] == "KeyError: 'layer'"
    assert "otel_quant/" not in err
    records = read(tmp_path / "quark_profile.yaml")["memory_usage"]
    assert [(record["step"], record.get("error")) for record in records] == [
        ("Start", None), ("Fails Start", None), ("Fails End", "KeyError"), ("End", "KeyError"),
    ]  # fmt: skip


def torch_with(devices: int) -> types.SimpleNamespace:
    return types.SimpleNamespace(
        cuda=types.SimpleNamespace(
            is_available=lambda: devices > 0,
            device_count=lambda: devices,
            mem_get_info=lambda index: (6 << 30, 8 << 30),
            memory_allocated=lambda index: (index + 1) << 29,
            memory_reserved=lambda index: 1 << 30,
        )
    )


def test_torchs_memory_is_logged_if_torch_is_loaded_and_has_a_gpu(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, capsys: pytest.CaptureFixture[str]
) -> None:  # fmt: skip
    for torch in (None, torch_with(0)):
        monkeypatch.setitem(sys.modules, "torch", torch)
        GlobalProfiler.log_torch_memory("before")
    assert (caplog.text, capsys.readouterr().err) == ("", "")

    monkeypatch.setitem(sys.modules, "torch", torch_with(2))
    line = (
        "[after] GPU 0: 0.50 GiB allocated, 1.00 GiB reserved, 2.00 GiB used, 6.00 GiB free; "
        "GPU 1: 1.00 GiB allocated, 1.00 GiB reserved, 2.00 GiB used, 6.00 GiB free"
    )
    GlobalProfiler.log_torch_memory("after")
    assert capsys.readouterr().err == f"{line}\n"
    with caplog.at_level(logging.INFO, logger="otel_quant"):
        GlobalProfiler.log_torch_memory("after")
    assert (caplog.messages, capsys.readouterr().err) == ([line], "")


def test_many_threads_get_the_same_profiler(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("QUARK_PROFILING", raising=False)
    monkeypatch.setattr(GlobalProfiler, "_instance", None)
    made: list[GlobalProfiler] = []
    threads = [threading.Thread(target=lambda: made.append(GlobalProfiler())) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert len({id(profiler) for profiler in made}) == 1
    assert quark.ProfileStep is ProfileStep
