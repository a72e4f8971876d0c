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
    """Locks a file for this process, until the file is closed or the process is gone.

    Args:
        descriptor: The file.
        shared: Whether others may have such a lock too: for a look at whether it is locked.

    Returns:
        False if another process has locked it; None if it cannot be known, as on a file system
        without locks.
    """
    if sys.platform == "win32" or not EXIST:
        return None
    try:
        fcntl.flock(descriptor, (fcntl.LOCK_SH if shared else fcntl.LOCK_EX) | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError:
        return None
    return True
