"""When "the driver does not list it" means 0 bytes. A plain ``ns/pid`` file is a container."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from otel_quant.probes.pid_namespace import INITIAL_PID_NAMESPACE, PidNamespace


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
    return tmp_path


def test_in_a_container_a_process_that_started_cuda_may_use_any_amount(container: Path) -> None:
    assert not PidNamespace(container).unlisted_means_none([10, 11])


def test_in_a_container_a_process_that_has_not_started_cuda_uses_none(container: Path) -> None:
    assert PidNamespace(container).unlisted_means_none([10])


def test_a_process_that_has_exited_uses_none(container: Path) -> None:
    assert PidNamespace(container).unlisted_means_none([12])


def test_without_the_device_file_of_cuda_nothing_is_known(container: Path) -> None:
    (container / "dev/nvidia-uvm").unlink()
    assert not PidNamespace(container).unlisted_means_none([10])


def test_a_driver_that_has_listed_one_of_ours_lists_them_all(container: Path) -> None:
    namespace = PidNamespace(container)
    namespace.saw_ours()
    assert namespace.unlisted_means_none([10, 11])


def test_a_process_whose_files_cannot_be_listed_may_use_any_amount(container: Path) -> None:
    (container / "proc/13").mkdir()
    (container / "proc/13/fd").touch()  # no folder: fails as one without permission does
    assert not PidNamespace(container).unlisted_means_none([13])


def test_outside_containers_the_drivers_list_is_complete() -> None:
    if os.stat("/proc/self/ns/pid").st_ino != INITIAL_PID_NAMESPACE:
        pytest.skip("this test runs in a container")
    assert PidNamespace().unlisted_means_none([os.getpid()])
