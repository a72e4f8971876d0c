"""Runs a program as if nothing stood between it and whoever started it.

The program is in our process group and has our files, so the terminal treats both as one job. Its
signal mask and its ignored signals are those that we were started with. Signals that the kernel
sends to the whole group (Ctrl-C, Ctrl-Z, a resized window) reach it without us. One that was sent
to this process alone is passed on. When it stops, this process stops; when it dies of a signal, this
process can die of the same: :func:`end_as`.
"""

from __future__ import annotations

import os
import resource
import signal
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

_NOT_PASSED_ON: Final = frozenset(
    {signal.SIGKILL, signal.SIGSTOP, signal.SIGCHLD, signal.SIGSEGV, signal.SIGBUS, signal.SIGFPE,
     signal.SIGILL, signal.SIGTRAP, signal.SIGABRT, signal.SIGSYS, signal.SIGPIPE}
)  # fmt: skip
"""Signals that nobody can take, that tell us of the program, or that mean a fault of our own."""

_SENT_BY_A_PROCESS: Final = frozenset({0, -1, -6})
"""``si_code`` of kill, sigqueue and tgkill; the terminal's signals have another."""


@dataclass(frozen=True, slots=True)
class Ending:
    """How the program ended.

    Attributes:
        code: Its exit code; None if a signal ended it.
        signal: Number of the signal that ended it; None if it exited.
        max_rss: Highest RSS of it, or of a process that it has waited for, in units of the system
            (kibibytes on Linux); None if it is not known.
    """

    code: int | None = None
    signal: int | None = None
    max_rss: int | None = None


class Program:
    """A running program. To be started on the main thread, before any other thread exists.

    Args:
        arguments: The program, looked up in ``PATH``, and its arguments.
        environ: Its environment.

    Raises:
        OSError: It does not exist (``FileNotFoundError``) or cannot be run.
    """

    def __init__(self, arguments: Sequence[str], environ: Mapping[str, str]) -> None:
        self._taken = {
            number
            for number in signal.valid_signals()
            if number not in _NOT_PASSED_ON and signal.getsignal(number) is not signal.SIG_IGN
        } | {signal.SIGCHLD}
        # From here on they wait in the queue of this process until `wait` takes them.
        self._mask = signal.pthread_sigmask(signal.SIG_BLOCK, self._taken)
        try:
            self.pid = os.posix_spawnp(
                arguments[0],
                list(arguments),
                dict(environ),
                setsigmask=self._mask,
                # Python itself ignores these two; a program is not started that way.
                setsigdef=(signal.SIGPIPE, signal.SIGXFSZ),
            )
        except OSError:
            signal.pthread_sigmask(signal.SIG_SETMASK, self._mask)
            raise

    def wait(self) -> Ending:
        """Waits until the program has ended, and passes signals on in the meantime.

        The terminal's input and output stay the program's: nothing is read or written here.
        """
        while True:
            ending = self._ending()
            if ending is not None:
                return ending
            arrived = signal.sigwaitinfo(self._taken)
            if arrived.si_signo == signal.SIGCHLD or arrived.si_pid == self.pid:
                continue
            if arrived.si_code in _SENT_BY_A_PROCESS:
                self._pass_on(arrived.si_signo)

    def _ending(self) -> Ending | None:
        """Returns how the program ended; None if it has not. Stops when it has stopped."""
        while True:
            pid, status, usage = os.wait4(self.pid, os.WNOHANG | os.WUNTRACED)
            if not pid:
                return None
            if os.WIFSTOPPED(status):
                # Whoever waits for us has to see the job stop. Continues at SIGCONT.
                os.kill(os.getpid(), signal.SIGSTOP)
                continue
            if os.WIFSIGNALED(status):
                return Ending(signal=os.WTERMSIG(status), max_rss=usage.ru_maxrss)
            return Ending(code=os.WEXITSTATUS(status), max_rss=usage.ru_maxrss)

    def _pass_on(self, number: int) -> None:
        try:
            os.kill(self.pid, number)
        except ProcessLookupError:
            pass  # it has just ended; the loop finds out


def end_as(ending: Ending) -> int:
    """Ends this process as the program ended, if a signal ended it; else returns its exit code.

    Args:
        ending: How the program ended.

    Returns:
        The exit code for this process.
    """
    if ending.signal is None:
        return ending.code or 0
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))  # the program's core file is the useful one
    if ending.signal != signal.SIGKILL:
        signal.signal(ending.signal, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {ending.signal})
    os.kill(os.getpid(), ending.signal)
    return 128 + ending.signal  # a signal whose default is not to end a process
