"""The memory limit of the process, from files as kernels show them."""

from __future__ import annotations

import os
from pathlib import Path

import psutil
import pytest

from otel_quant.capture.probes.limits import read_limits
from otel_quant.schema.records import Limits

GIB = 1 << 30
NONE, NONE_64K_PAGES = "9223372036854771712", "9223372036854710272"  # of version 1
PHYSICAL = Limits(64 * GIB, "physical")

V2_MOUNT = "31 23 0:28 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw,nsdelegate\n"
V1_MOUNT = "35 31 0:32 / /sys/fs/cgroup/memory rw,relatime shared:9 - cgroup cgroup rw,memory\n"
BOTH_MOUNTS = V1_MOUNT + V2_MOUNT.replace("cgroup rw", "cgroup/unified rw")
STAT = f"cache 1\nhierarchical_memory_limit {3 * GIB}\nhierarchical_memsw_limit {GIB}\n"


def in_docker(mount: str) -> str:
    """Returns the line of a mount of the container's own group."""
    return mount.replace(" / /sys", " /docker/abc /sys")


def cgroup(gigabytes: int) -> Limits:
    return Limits(gigabytes * GIB, "cgroup")


@pytest.mark.parametrize(
    ("groups", "mounts", "files", "limits"),
    [
        pytest.param(None, None, {}, PHYSICAL, id="no control groups"),
        pytest.param(
            "0::/user.slice/job.scope", V2_MOUNT,
            {"user.slice/job.scope/memory.max": 8 * GIB, "user.slice/memory.max": "max"}, cgroup(8),
            id="v2, limit of the process's own group",
        ),
        pytest.param(
            "0::/user.slice/job.scope", V2_MOUNT,
            {"user.slice/job.scope/memory.max": 8 * GIB, "user.slice/memory.max": 4 * GIB}, cgroup(4),
            id="v2, a group above limits more",
        ),
        pytest.param(
            "0::/", V2_MOUNT, {"memory.max": 2 * GIB, "memory.high": GIB}, cgroup(2),
            id="v2, container with a namespace: memory.high does not kill",
        ),
        pytest.param(
            "0::/docker/abc/child", in_docker(V2_MOUNT),
            {"memory.max": 6 * GIB, "child/memory.max": 3 * GIB}, cgroup(3),
            id="v2, container without a namespace: path as the host sees it",
        ),
        pytest.param(
            "0::/../../other/job", V2_MOUNT,
            {"memory.max": 5 * GIB, "other/job/memory.max": GIB}, cgroup(5),
            id="v2, group outside the namespace: not the one of that name inside",
        ),
        pytest.param(
            "0::/gone/away", V2_MOUNT, {"memory.max": 5 * GIB}, cgroup(5),
            id="v2, group not visible from here",
        ),
        pytest.param(
            "0::/job", None, {"job/memory.max": 7 * GIB}, cgroup(7), id="v2, mounts not readable"
        ),
        pytest.param("0::/job", V2_MOUNT, {"job/memory.max": "max"}, PHYSICAL, id="v2, no limit"),
        pytest.param(
            "0::/job", V2_MOUNT, {"job/memory.max": 128 * GIB}, PHYSICAL,
            id="v2, more than the machine has",
        ),
        pytest.param(
            "9:name=systemd:/\n4:memory:/docker/abc\n1:cpu:/", V1_MOUNT,
            {"memory/docker/abc/memory.limit_in_bytes": 4 * GIB, "memory/memory.limit_in_bytes": NONE},
            cgroup(4),
            id="v1",
        ),
        pytest.param(
            "4:cpu,memory:/docker/abc", in_docker(V1_MOUNT),
            {"memory/memory.limit_in_bytes": NONE, "memory/memory.stat": STAT}, cgroup(3),
            id="v1, a group above, outside the container, limits",
        ),
        pytest.param(
            "4:memory:/job\n0::/job", BOTH_MOUNTS,
            {
                "memory/job/memory.limit_in_bytes": 2 * GIB,
                "memory/memory.stat": f"hierarchical_memory_limit {NONE}",
            },
            cgroup(2),
            id="both versions mounted, v1 has the memory controller",
        ),
        pytest.param(
            "4:memory:/", V1_MOUNT,
            {"memory/memory.limit_in_bytes": NONE_64K_PAGES, "../../../proc/meminfo": "MemFree: 1 kB"},
            Limits(),
            id="v1, no limit and nothing known of physical memory",
        ),
        pytest.param(
            "nonsense\n::\n0::", "nonsense\n1 2 - cgroup2\n", {"memory.max": -1}, PHYSICAL,
            id="files that make no sense",
        ),
    ],
)  # fmt: skip
def test_the_smallest_hard_limit_is_used(
    tmp_path: Path,
    groups: str | None,
    mounts: str | None,
    files: dict[str, object],
    limits: Limits,
) -> None:
    found = {
        "proc/meminfo": "MemTotal:       67108864 kB\nMemFree:        1024 kB",  # 64 GiB
        "proc/self/cgroup": groups,
        "proc/self/mountinfo": mounts,
        **{f"sys/fs/cgroup/{name}": text for name, text in files.items()},
    }
    for name, text in found.items():
        if text is not None:
            path = tmp_path / os.path.normpath(name)
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(f"{text}\n")
    assert read_limits(tmp_path) == limits


def test_on_this_machine_the_limit_is_at_most_its_memory() -> None:
    limits = read_limits()
    assert limits.memory is not None
    assert 0 < limits.memory <= psutil.virtual_memory().total
    assert (limits.memory_source == "physical") == (limits.memory == psutil.virtual_memory().total)
