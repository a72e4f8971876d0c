"""Whether a process that the driver does not list uses 0 bytes.

A plain file ``ns/pid`` simulates a container.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from otel_quant.capture.probes.nvidia import INITIAL_PID_NAMESPACE, PidNamespace


@pytest.fixture
def container(tmp_path: Path) -> Path:
    (tmp_path / "proc/self/ns").mkdir(parents=True)
    (tmp_path / "proc/self/ns/pid").touch()
    (tmp_path / "dev").mkdir()
    (tmp_path / "dev/nvidia-uvm").touch()
    for pid, target in ((10, "/dev/nvidiactl"), (11, "/dev/nvidia-uvm")):
        (tmp_path / f"proc/{pid}/fd").mkdir(parents=True)
        (tmp_path / f"proc/{pid}/fd/0").symlink_to("/dev/null")
        (tmp_path / f"proc/{pid}/fd/7").symlink_to(target)
    (tmp_path / "proc/13").mkdir()
    (tmp_path / "proc/13/fd").touch()  # not a folder: cannot be listed
    return tmp_path


@pytest.mark.parametrize(
    ("pids", "is_unused"),
    [
        pytest.param([10, 11], False, id="one has started CUDA"),
        pytest.param([10], True, id="none has"),
        pytest.param([12], True, id="it has exited"),
        pytest.param([13], False, id="its files cannot be listed"),
    ],
)
def test_in_a_container_a_process_without_cuda_uses_none(
    container: Path, pids: list[int], is_unused: bool
) -> None:
    assert PidNamespace(container).unlisted_means_unused(pids) == is_unused


def test_without_the_device_file_of_cuda_the_use_is_unknown(container: Path) -> None:
    (container / "dev/nvidia-uvm").unlink()
    assert not PidNamespace(container).unlisted_means_unused([10])


def test_the_list_is_trusted_once_it_contained_one_of_our_processes(container: Path) -> None:
    namespace = PidNamespace(container)
    namespace.note_own_process_listed()
    assert namespace.unlisted_means_unused([10, 11])


def test_outside_containers_the_drivers_list_is_trusted() -> None:
    if os.stat("/proc/self/ns/pid").st_ino != INITIAL_PID_NAMESPACE:
        pytest.skip("this test runs in a container")
    assert PidNamespace().unlisted_means_unused([os.getpid()])
