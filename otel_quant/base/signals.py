"""Numbers of signals that end a process; of one that this system lacks, a number that no process ends with."""

from __future__ import annotations

import signal
from typing import Final

_LACKED: Final = -1

SIGABRT: Final[int] = signal.SIGABRT
SIGBUS: Final[int] = getattr(signal, "SIGBUS", _LACKED)
SIGHUP: Final[int] = getattr(signal, "SIGHUP", _LACKED)
SIGINT: Final[int] = signal.SIGINT
SIGKILL: Final[int] = getattr(signal, "SIGKILL", _LACKED)
SIGSEGV: Final[int] = signal.SIGSEGV
SIGTERM: Final[int] = signal.SIGTERM
SIGUSR1: Final[int] = getattr(signal, "SIGUSR1", _LACKED)
SIGUSR2: Final[int] = getattr(signal, "SIGUSR2", _LACKED)
SIGXCPU: Final[int] = getattr(signal, "SIGXCPU", _LACKED)
SIGXFSZ: Final[int] = getattr(signal, "SIGXFSZ", _LACKED)
