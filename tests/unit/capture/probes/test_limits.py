"""The memory limit of the process, from files as kernels show them."""

from __future__ import annotations

import sys
from pathlib import Path

import psutil
import pytest

from otel_quant.capture.probes.limits import read_limits
from otel_quant.schema.records import Limits

GIB = 1 << 30
V1_UNLIMITED = "9223372036854771712"
V1_UNLIMITED_64K_PAGES = "9223372036854710272"

MEMINFO = "MemTotal:       67108864 kB\nMemFree:        1024 kB\n"  # 64 GiB
V2_MOUNT = "31 23 0:28 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw,nsdelegate\n"
V1_MOUNT = "35 31 0:32 / /sys/fs/cgroup/memory rw,relatime shared:9 - cgroup cgroup rw,memory\n"


def tree(root: Path, files: dict[str, str]) -> Path:
    for name, text in {"proc/meminfo": MEMINFO, **files}.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)
    return root


@pytest.mark.parametrize(
    ("files", "limits"),
    [
        pytest.param({}, Limits(64 * GIB, "physical"), id="no control groups"),
        pytest.param(
            {
                "proc/self/cgroup": "0::/user.slice/job.scope\n",
                "proc/self/mountinfo": V2_MOUNT,
                "sys/fs/cgroup/user.slice/job.scope/memory.max": f"{8 * GIB}\n",
                "sys/fs/cgroup/user.slice/memory.max": "max\n",
            },
            Limits(8 * GIB, "cgroup"),
            id="v2, limit of the process's own group",
        ),
        pytest.param(
            {
                "proc/self/cgroup": "0::/user.slice/job.scope\n",
                "proc/self/mountinfo": V2_MOUNT,
                "sys/fs/cgroup/user.slice/job.scope/memory.max": f"{8 * GIB}\n",
                "sys/fs/cgroup/user.slice/memory.max": f"{4 * GIB}\n",
            },
            Limits(4 * GIB, "cgroup"),
            id="v2, a group above limits more",
        ),
        pytest.param(
            {
                "proc/self/cgroup": "0::/\n",
                "proc/self/mountinfo": V2_MOUNT,
                "sys/fs/cgroup/memory.max": f"{2 * GIB}\n",
                "sys/fs/cgroup/memory.high": f"{GIB}\n",
            },
            Limits(2 * GIB, "cgroup"),
            id="v2, container with a namespace: memory.high does not kill",
        ),
        pytest.param(
            {
                "proc/self/cgroup": "0::/docker/abc/child\n",
                "proc/self/mountinfo": V2_MOUNT.replace(" / /sys", " /docker/abc /sys"),
                "sys/fs/cgroup/memory.max": f"{6 * GIB}\n",
                "sys/fs/cgroup/child/memory.max": f"{3 * GIB}\n",
            },
            Limits(3 * GIB, "cgroup"),
            id="v2, container without a namespace: path as the host sees it",
        ),
        pytest.param(
            {
                "proc/self/cgroup": "0::/../../other/job\n",
                "proc/self/mountinfo": V2_MOUNT,
                "sys/fs/cgroup/memory.max": f"{5 * GIB}\n",
                "sys/fs/cgroup/other/job/memory.max": f"{GIB}\n",
            },
            Limits(5 * GIB, "cgroup"),
            id="v2, group outside the namespace: not the one of that name inside",
        ),
        pytest.param(
            {
                "proc/self/cgroup": "0::/gone/away\n",
                "proc/self/mountinfo": V2_MOUNT,
                "sys/fs/cgroup/memory.max": f"{5 * GIB}\n",
            },
            Limits(5 * GIB, "cgroup"),
            id="v2, group not visible from here",
        ),
        pytest.param(
            {
                "proc/self/cgroup": "0::/job\n",
                "sys/fs/cgroup/job/memory.max": f"{7 * GIB}\n",
            },
            Limits(7 * GIB, "cgroup"),
            id="v2, mounts not readable",
        ),
        pytest.param(
            {
                "proc/self/cgroup": "0::/job\n",
                "proc/self/mountinfo": V2_MOUNT,
                "sys/fs/cgroup/job/memory.max": "max\n",
            },
            Limits(64 * GIB, "physical"),
            id="v2, no limit",
        ),
        pytest.param(
            {
                "proc/self/cgroup": "0::/job\n",
                "proc/self/mountinfo": V2_MOUNT,
                "sys/fs/cgroup/job/memory.max": f"{128 * GIB}\n",
            },
            Limits(64 * GIB, "physical"),
            id="v2, more than the machine has",
        ),
        pytest.param(
            {
                "proc/self/cgroup": "9:name=systemd:/\n4:memory:/docker/abc\n1:cpu:/\n",
                "proc/self/mountinfo": V1_MOUNT,
                "sys/fs/cgroup/memory/docker/abc/memory.limit_in_bytes": f"{4 * GIB}\n",
                "sys/fs/cgroup/memory/memory.limit_in_bytes": f"{V1_UNLIMITED}\n",
            },
            Limits(4 * GIB, "cgroup"),
            id="v1",
        ),
        pytest.param(
            {
                "proc/self/cgroup": "4:cpu,memory:/docker/abc\n",
                "proc/self/mountinfo": V1_MOUNT.replace(" / /sys", " /docker/abc /sys"),
                "sys/fs/cgroup/memory/memory.limit_in_bytes": f"{V1_UNLIMITED}\n",
                "sys/fs/cgroup/memory/memory.stat": (
                    f"cache 1\nhierarchical_memory_limit {3 * GIB}\n"
                    f"hierarchical_memsw_limit {GIB}\n"
                ),
            },
            Limits(3 * GIB, "cgroup"),
            id="v1, a group above, outside the container, limits",
        ),
        pytest.param(
            {
                "proc/self/cgroup": "4:memory:/job\n0::/job\n",
                "proc/self/mountinfo": V1_MOUNT
                + V2_MOUNT.replace("cgroup rw", "cgroup/unified rw"),
                "sys/fs/cgroup/memory/job/memory.limit_in_bytes": f"{2 * GIB}\n",
                "sys/fs/cgroup/memory/memory.stat": f"hierarchical_memory_limit {V1_UNLIMITED}\n",
            },
            Limits(2 * GIB, "cgroup"),
            id="both versions mounted, v1 has the memory controller",
        ),
        pytest.param(
            {
                "proc/meminfo": "MemFree: 1 kB\n",
                "proc/self/cgroup": "4:memory:/\n",
                "proc/self/mountinfo": V1_MOUNT,
                "sys/fs/cgroup/memory/memory.limit_in_bytes": f"{V1_UNLIMITED_64K_PAGES}\n",
            },
            Limits(),
            id="v1, no limit and nothing known of physical memory",
        ),
        pytest.param(
            {
                "proc/self/cgroup": "nonsense\n::\n0::\n",
                "proc/self/mountinfo": "nonsense\n1 2 - cgroup2\n",
                "sys/fs/cgroup/memory.max": "-1\n",
            },
            Limits(64 * GIB, "physical"),
            id="files that make no sense",
        ),
    ],
)
def test_the_smallest_hard_limit_counts(
    tmp_path: Path, files: dict[str, str], limits: Limits
) -> None:
    assert read_limits(tree(tmp_path, files)) == limits


@pytest.mark.skipif(sys.platform != "linux", reason="control groups are Linux's")
def test_on_this_machine_the_limit_is_at_most_its_memory() -> None:
    limits = read_limits()
    assert limits.memory is not None
    assert 0 < limits.memory <= psutil.virtual_memory().total
    assert (limits.memory_source == "physical") == (limits.memory == psutil.virtual_memory().total)
