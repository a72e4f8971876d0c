"""What a program is started with, and what is around it: counters of the kernel, limits, and what its own processes know."""

from __future__ import annotations

import json
import os
import resource
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from otel_quant.base.kernel_files import oom_counts
from otel_quant.capture.probes.memory import oom_counters
from otel_quant.launcher import surroundings
from otel_quant.launcher.start import (
    LAUNCHER_PID,
    ON_PYTHONPATH,
    RECORD,
    make_folder,
    program_environment,
    script_name,
    take_notes,
    why_no_step,
    why_nothing_sent,
)
from otel_quant.launcher.surroundings import (
    Exits,
    OomKills,
    ProcessUse,
    Surroundings,
    batch_job,
    cache_growth,
    disks,
)
from otel_quant.program.launched import exporter_settings
from otel_quant.schema import semconv
from otel_quant.schema.settings import OTEL_QUANT_LAUNCHER_PID, OTEL_QUANT_RECORD

V2_MOUNT = "31 23 0:28 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw,nsdelegate\n"
V1_MOUNT = "35 31 0:32 / /sys/fs/cgroup/memory rw,relatime shared:9 - cgroup cgroup rw,memory\n"


@pytest.mark.parametrize(
    ("group", "mount", "counter", "text"),
    [
        ("0::/job.scope\n", V2_MOUNT, "sys/fs/cgroup/job.scope/memory.events.local",
         "low 0\nhigh 0\nmax 12\noom 3\noom_kill 2\noom_group_kill 1\n"),
        ("0::/job.scope\n", V2_MOUNT, "sys/fs/cgroup/job.scope/memory.events", "low 0\nhigh 0\nmax 12\noom 3\noom_kill 2\n"),
        ("4:memory:/job\n", V1_MOUNT, "sys/fs/cgroup/memory/job/memory.oom_control",
         "oom_kill_disable 0\nunder_oom 0\noom_kill 2\n"),
    ],
    ids=["version 2", "version 2 before Linux 5.2", "version 1"],
)  # fmt: skip
def test_oom_kills_are_read_from_the_cgroup_of_the_process(
    tmp_path: Path, group: str, mount: str, counter: str, text: str
) -> None:
    files = {"proc/77/cgroup": group, "proc/self/mountinfo": mount, counter: text}
    for name, content in files.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(content)
    assert oom_counters(77, tmp_path) == [tmp_path / counter]
    assert oom_counts(tmp_path / counter)["oom_kill"] == 2


def test_a_kernel_without_the_counter_and_a_removed_cgroup_have_no_value(tmp_path: Path) -> None:
    old = tmp_path / "memory.oom_control"
    old.write_text("oom_kill_disable 0\nunder_oom 0\n")  # before Linux 4.13
    assert (oom_counts(old), oom_counts(tmp_path / "gone")) == ({}, {})


def test_only_kills_since_the_start_are_counted_in_any_of_the_cgroups(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    own, childs, late, host = (tmp_path / name for name in ("a", "b", "c", "vmstat"))
    of = {1: [own], 2: [childs], 3: [late]}
    monkeypatch.setattr(surroundings, "oom_counters", lambda pid: of[pid])
    monkeypatch.setattr(surroundings, "HOST_OOM_COUNTER", host)

    def count(path: Path, kills: int, groups: int = 0) -> None:
        path.write_text(f"oom_kill {kills}\noom_group_kill {groups}\n")

    around = Surroundings()
    assert around.oom_kills() is None
    count(host, 100)
    around.look(1)
    count(host, 103)
    assert around.oom_kills() == OomKills(host, True, 3, 0)
    count(own, 30)
    count(childs, 5)
    around.look(1, [2, 3])
    stood = around.oom_kills()
    assert stood in (OomKills(own, False, 0, 0), OomKills(childs, False, 0, 0))
    childs.unlink()  # the cgroup was removed with its counters
    assert around.oom_kills() == OomKills(host, True, 3, 0)
    count(own, 31)
    assert around.oom_kills() == OomKills(own, False, 1, 0)
    count(childs, 7, groups=1)
    around.look(1, [2])  # what has been counted before stays what it is compared with
    assert around.oom_kills() == OomKills(childs, False, 2, 1)


def test_the_limits_of_a_process_are_readable_until_it_is_reaped() -> None:
    def limited() -> None:
        for name, most in (
            (resource.RLIMIT_AS, 2 << 30), (resource.RLIMIT_FSIZE, 5000), (resource.RLIMIT_CPU, 1),
        ):  # fmt: skip
            resource.setrlimit(name, (most, most))

    around = Surroundings()
    code = "import sys; x = bytearray(1 << 30); del x; input()\nwhile True: pass"
    with (
        subprocess.Popen(
            [sys.executable, "-c", code], stdin=subprocess.PIPE, preexec_fn=limited
        ) as program,
        subprocess.Popen(["sleep", "9"]) as unlimited,
    ):
        assert program.stdin is not None
        program.stdin.write(b"\n")
        program.stdin.flush()
        os.waitid(os.P_PID, program.pid, os.WEXITED | os.WNOWAIT)
        around.meet((program.pid, unlimited.pid, 1 << 30))
        unlimited.kill()
    assert around.uses == {
        program.pid: ProcessUse(
            is_over=True, cpu_time=pytest.approx(1, abs=0.1), cpu_limit=1, last_cpu_limit=1,
            file_size_limit=5000, address_space=2 << 30, addresses=0,
        )
    }  # fmt: skip
    assert program.returncode == -signal.SIGKILL


@pytest.mark.parametrize(
    ("environ", "expected"),
    [
        ({"PATH": "/bin"}, None),
        (
            {"SLURM_JOB_ID": "7", "SLURM_JOB_START_TIME": "{began}", "SLURM_JOB_END_TIME": "{ends}", "SLURM_MEM_PER_NODE": "8000"},
            "Slurm job 7 had run for 1 h 00 min of 2 h 00 min (SLURM_JOB_END_TIME); 8.39 GB of memory a node (SLURM_MEM_PER_NODE)",
        ),
        (
            {"PBS_JOBID": "7.head", "PBS_WALLTIME": "3600"},
            "PBS job 7.head may run for 1 h 00 min (PBS_WALLTIME); the program ran for 2.00 s",
        ),
        ({"LSB_JOBID": "7", "PBS_WALLTIME": "x"}, "LSF job 7 has an unknown time limit; the program ran for 2.00 s"),
        ({"PBS_JOBID": "7", "PBS_WALLTIME": "9" * 5000}, "PBS job 7 has an unknown time limit; the program ran for 2.00 s"),
    ],
    ids=["none", "Slurm", "PBS", "LSF", "no number"],
)  # fmt: skip
def test_limits_of_batch_systems_are_read_from_the_environment(
    environ: dict[str, str], expected: str | None
) -> None:
    now = time.time()
    known = {
        name: text.format(began=round(now - 3600), ends=round(now + 3600))
        for name, text in environ.items()
    }
    assert batch_job(known, 2.0) == expected


def test_folders_on_the_same_disk_are_joined_and_pseudo_disks_left_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    found = disks(Path("/proc"), {"TMPDIR": str(tmp_path)})
    assert found[0].places.startswith("the current folder, temporary files")
    assert not any("the recording" in disk.places for disk in found)


def test_growth_of_cache_directories_comes_from_the_processes(tmp_path: Path) -> None:
    assert cache_growth(tmp_path) is None
    (tmp_path / "state.1.json").write_text(json.dumps({"attributes": {semconv.CACHE_GROWTH: 5}}))
    (tmp_path / "state.2.json").write_text(json.dumps({"attributes": {semconv.CACHE_GROWTH: 9}}))
    (tmp_path / "state.3.json").write_text('{"attributes": {"quant.cac')
    (tmp_path / "state.4.json").write_text('{"attributes": {}}')
    assert cache_growth(tmp_path) == 9


INTERVAL = {"OTEL_METRIC_EXPORT_INTERVAL": "10000"}
ENDPOINT = {"OTEL_EXPORTER_OTLP_ENDPOINT": "http://collector:4317"}
NOTES = (
    "absent /a/python", "old /o/python", "failed /f/python", "unsent /u/python",
    "instrumented /i/python",
)  # fmt: skip
NOT_CALLED = "no quantization library that otel-quant knows was called, nor otel_quant.step"


@pytest.mark.parametrize(
    ("command", "name"),
    [
        ("python quantize.py --out x.py", "quantize.py"),
        ("python -u -X dev scripts/quantize.py", "scripts/quantize.py"),
        ("python -m package.quantize", "package-quantize"),
        ("python -c pass x.py", "python"),
        ("torchrun --nproc-per-node 2 train.py", "train.py"),
        ("accelerate launch --config c.yaml train.py", "train.py"),
        ("optimum-cli onnxruntime quantize", "optimum-cli"),
        ("bash -x job.sh", "job.sh"),
        ("./job.sh", "./job.sh"),
        ("python -m", "python"),
        ("ls", "ls"),
    ],
)
def test_a_recording_is_named_after_the_script(command: str, name: str) -> None:
    assert script_name(command.split()) == name


def test_two_recordings_of_the_same_second_have_separate_folders(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("time.time", lambda: 1_800_000_000.0)
    made = [make_folder(None, ["python", "a.py"]) for _ in range(3)]
    assert made == [made[0], f"{made[0]}-2", f"{made[0]}-3"]
    assert Path(made[0]).parent == tmp_path


def test_tasks_of_srun_have_folders_beside_each_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = []
    for task, of in (("0", "2"), ("1", "2"), ("0", "1")):
        known = {"STEP_NUM_TASKS": of, "PROCID": task, "D_NODENAME": f"node-{task}"}
        for name, value in known.items():
            monkeypatch.setenv(f"SLURM{'' if name.startswith('D_') else '_'}{name}", value)
        made.append(make_folder(str(tmp_path / ("R" if of == "2" else "S")), ["python", "a.py"]))
    assert made == [str(tmp_path / each) for each in ("R/node-0-0", "R/node-1-1", "S")]


def exporters(traces: str, metrics: str, logs: str) -> dict[str, str]:
    return {
        "OTEL_TRACES_EXPORTER": traces,
        "OTEL_METRICS_EXPORTER": metrics,
        "OTEL_LOGS_EXPORTER": logs,
    }


@pytest.mark.parametrize(
    ("environ", "settings"),
    [
        ({}, {}),
        ({"OTEL_EXPORTER_OTLP_HEADERS": "a=b", "OTEL_SERVICE_NAME": "s"}, {}),
        (exporters("none", "none", "none"), {}),
        ({"OTEL_TRACES_EXPORTER": "quark_yaml"}, {}),
        (ENDPOINT, exporters("otlp", "otlp", "otlp") | INTERVAL),
        (ENDPOINT | {"OTEL_METRIC_EXPORT_INTERVAL": "0"}, exporters("otlp", "otlp", "otlp") | INTERVAL),
        (ENDPOINT | {"OTEL_METRIC_EXPORT_INTERVAL": "500"},
         exporters("otlp", "otlp", "otlp") | {"OTEL_METRIC_EXPORT_INTERVAL": "500"}),
        (ENDPOINT | exporters("console", "none", ""), exporters("console", "none", "otlp") | INTERVAL),
        ({"OTEL_EXPORTER_OTLP_LOGS_ENDPOINT": "http://c:4318/v1/logs"}, exporters("none", "none", "otlp") | INTERVAL),
        ({"OTEL_TRACES_EXPORTER": "otlp, quark_yaml"}, exporters("otlp,quark_yaml", "none", "none") | INTERVAL),
        ({"OTEL_CONFIG_FILE": "otel.yaml"}, INTERVAL),
        ({"OTEL_PYTHON_DISTRO": "other"}, INTERVAL),
        ({"OTEL_QUANT_OTLP_FILES": "true"}, exporters("otel_quant_files", "otel_quant_files", "otel_quant_files") | INTERVAL),
        (ENDPOINT | {"OTEL_QUANT_OTLP_FILES": "true", "OTEL_METRICS_EXPORTER": "none"},
         exporters("otel_quant_files,otlp", "otel_quant_files", "otel_quant_files,otlp") | INTERVAL),
    ],
)  # fmt: skip
def test_a_program_sends_only_the_configured_signals(
    environ: dict[str, str], settings: dict[str, str]
) -> None:
    assert exporter_settings(environ) == settings


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (None, ON_PYTHONPATH),
        ("", ON_PYTHONPATH),
        ("a:b", f"{ON_PYTHONPATH}:a:b"),
        ("a:", f"{ON_PYTHONPATH}:a:"),
        (f"{ON_PYTHONPATH}:a", f"{ON_PYTHONPATH}:a"),
    ],
)
def test_pythonpath_gets_one_folder_and_keeps_its_entries(
    monkeypatch: pytest.MonkeyPatch, before: str | None, after: str
) -> None:
    started_with = {"HOME": "/home/me"} | ({} if before is None else {"PYTHONPATH": before})
    module = "otel_quant.launcher.start.environment_at_start"
    monkeypatch.setattr(module, lambda: dict(started_with))
    assert program_environment("/recording", ["sh"], {"OTEL_QUANT_ARGUMENTS": "false"}) == {
        "HOME": "/home/me", "PYTHONPATH": after, "OTEL_QUANT_RECORD": "/recording",
        "OTEL_QUANT_LAUNCHER_PID": str(os.getpid()), "OTEL_QUANT_ARGUMENTS": "false",
    }  # fmt: skip


def test_environment_variables_are_named_after_the_settings() -> None:
    assert (RECORD, LAUNCHER_PID) == (OTEL_QUANT_RECORD, OTEL_QUANT_LAUNCHER_PID)


@pytest.mark.parametrize(
    ("count", "reason"),
    [
        (0, "no Python was started, or one with -S, -E or -I, which keep otel-quant out of it"),
        (1, "/a/python has no otel-quant: install it in that environment"),
        (2, "/o/python is older than Python 3.11"),
        (3, "automatic instrumentation failed, as the program's output shows"),
        (4, NOT_CALLED),
        (5, NOT_CALLED),
    ],
)
def test_the_reason_for_a_missing_step_comes_from_the_python_that_came_furthest(
    count: int, reason: str
) -> None:
    assert why_no_step(NOTES[:count]) == reason


def test_notes_are_removed_from_the_recording(tmp_path: Path) -> None:
    folder = make_folder(str(tmp_path / "recording"), ["ls"])
    (file,) = Path(folder).iterdir()
    file.write_text("old /o/python\n")
    assert (take_notes(folder), list(Path(folder).iterdir())) == (["old /o/python"], [])
    assert take_notes(folder) == ()


def test_a_python_without_an_sdk_is_named_with_what_it_needs() -> None:
    assert why_nothing_sent(["instrumented /usr/bin/python3"]) == ""
    assert why_nothing_sent(["instrumented /usr/bin/python3", "unsent /v/bin/python"]) == (
        "no telemetry was sent: /v/bin/python has no OpenTelemetry SDK; expected pip install "
        "'otel-quant[otlp]' there (otel-quant send sends this recording later)"
    )


@pytest.mark.skipif(sys.platform != "linux", reason="needs /proc")
def test_a_rank_that_fails_is_known_by_its_environment_and_its_workers_are_none(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    environ = {"RANK": "1", "WORLD_SIZE": "4", "TORCHELASTIC_RUN_ID": "q7"}
    for name in ("SLURM_JOB_ID", "RAY_JOB_ID", "JOB_COMPLETION_INDEX", "OTEL_RESOURCE_ATTRIBUTES"):
        monkeypatch.delenv(name, raising=False)
    exits, processes = Exits(), list[subprocess.Popen[bytes]]()
    for _ in range(2):  # the second stands for a worker of the first
        processes.append(subprocess.Popen(["sleep", "60"], env={**os.environ, **environ}))
        pids = [each.pid for each in processes]
        while not Path(f"/proc/{pids[-1]}/environ").read_bytes():
            pass  # for a moment after it has begun the kernel does not have it
        exits.look(pids, pids)
        exits.look(pids, pids)
    for process in processes:
        process.kill()
        os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
    exits.look(pids, ())
    for process in processes:
        process.wait()
    found = [(exits.failed[pid].code, exits.failed[pid].rank) for pid in pids]
    assert found == [(-9, {"rank": 1, "world_size": 4, "job": "torchrun q7"}), (-9, {})]
