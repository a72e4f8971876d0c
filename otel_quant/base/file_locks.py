"""Locks of files, which say that the process that writes a file is alive.

Windows has none of these: there nobody knows.
"""

from __future__ import annotations

import sys
from typing import Final

if sys.platform != "win32":
    import fcntl

EXIST: Final = sys.platform != "win32"
"""Whether this system can lock files."""


def try_lock(descriptor: int, *, shared: bool = False) -> bool | None:
    """Locks a file for this process, until the file is closed or the process is gone."""
    if sys.platform == "win32" or not EXIST:
        return None
    try:
        fcntl.flock(descriptor, (fcntl.LOCK_SH if shared else fcntl.LOCK_EX) | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError:
        return None
    return True
