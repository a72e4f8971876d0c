"""How a program has ended, and how this process ends as it did."""

from __future__ import annotations

import os
import signal
import sys

if sys.platform != "win32":
    import resource


class Ending:
    """How the program ended."""

    def __init__(
        self,
        code: int | None = None,  # Its exit code; None if a signal ended it
        signal: int | None = None,  # Number of the signal that ended it; None if it exited
        # Highest RSS of it, or of a process that it has waited for, in units of the system (kibibytes
        # on Linux); None if it is not known
        max_rss: int | None = None,
    ) -> None:
        self.code, self.signal, self.max_rss = code, signal, max_rss


def end_as(ending: Ending) -> int:
    """Ends this process as the program ended, if a signal ended it; else returns its exit code."""
    if ending.signal is None:
        return ending.code or 0
    # The program's core file is the useful one. The kernel makes none for a limit of one byte, not
    # even for a program that takes core files from a pipe and so gets them whatever the limit.
    _, most = resource.getrlimit(resource.RLIMIT_CORE)
    least = 0 if most == 0 else 1
    resource.setrlimit(resource.RLIMIT_CORE, (least, least))
    if ending.signal != signal.SIGKILL:
        signal.signal(ending.signal, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {ending.signal})
    os.kill(os.getpid(), ending.signal)
    return 128 + ending.signal  # a signal that does not end this process: the first of a container
