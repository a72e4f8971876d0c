"""Processes of variants use huge pages if the kernel has them and no setting forbids it."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from otel_quant.inference.subjects import with_huge_pages

ASKED = "glibc.malloc.hugetlb=1"


@pytest.mark.parametrize(
    ("given", "setting", "variables"),
    [
        (None, "always [madvise] never\n", {"GLIBC_TUNABLES": ASKED}),
        (None, "[always] madvise never\n", {"GLIBC_TUNABLES": ASKED}),
        (
            "glibc.malloc.check=1",
            "always [madvise] never\n",
            {"GLIBC_TUNABLES": f"glibc.malloc.check=1:{ASKED}"},
        ),
        ("glibc.malloc.hugetlb=0", "always [madvise] never\n", {}),
        (None, "always madvise [never]\n", {}),
        (None, None, {}),
    ],
)
def test_huge_pages_are_requested_if_available_and_not_configured_otherwise(
    given: str | None, setting: str | None, variables: dict[str, str], tmp_path: Path
) -> None:
    file = tmp_path / "enabled"
    if setting is not None:
        file.write_text(setting)
    environ = {} if given is None else {"GLIBC_TUNABLES": given}
    assert with_huge_pages(environ, file) == variables


HELD = """
held = bytearray(64 * 2**20)
print(next(line.split()[1] for line in open("/proc/self/smaps_rollup") if "AnonHugePages" in line))
"""


@pytest.mark.skipif(not with_huge_pages({}), reason="the kernel gives no huge pages")
def test_a_process_with_these_variables_has_huge_pages() -> None:
    found = subprocess.run(
        [sys.executable, "-c", HELD],
        env=os.environ | with_huge_pages({}),
        capture_output=True,
        text=True,
        check=True,
    )
    assert int(found.stdout) > 0
