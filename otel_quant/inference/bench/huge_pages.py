"""Has the processes of variants take memory in huge pages, so that two calls of the command agree.

Where the kernel happens to put pages of 4 KiB decides how often they get in each other's way in the
processor's caches, for as long as a process lives: medians of the same model differed by up to a
quarter between processes on an idle machine, while rounds of one process agreed within 5 %. In pages
of 2 MiB medians differed by 5 % at most.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Final

_SETTING: Final = Path("/sys/kernel/mm/transparent_hugepage/enabled")
_TUNABLES: Final = "GLIBC_TUNABLES"
_ASKED: Final = "glibc.malloc.hugetlb"
"""Documented in glibc's manual under Memory Allocation Tunables, since version 2.35; 1 has malloc ask
for transparent huge pages."""


def with_huge_pages(environ: Mapping[str, str], setting: Path = _SETTING) -> dict[str, str]:
    """Returns the variables that have a process ask for huge pages."""
    given = environ.get(_TUNABLES, "")
    try:
        text = setting.read_text()
    except OSError:
        return {}
    if _ASKED in given or "[never]" in text:
        return {}
    return {_TUNABLES: ":".join(filter(None, (given, f"{_ASKED}=1")))}
