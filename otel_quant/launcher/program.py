"""Runs a program as if nothing stood between it and whoever started it.

The program is in our process group and has our files, so the terminal treats both as one job. Its
signal mask and its ignored signals are the same that we were started with. A signal that is sent to
the process group (Ctrl-C, Ctrl-Z, a resized window) reaches it without us; one that is sent to this
process alone is passed on. When the terminal stops the program, this process stops; when it dies of a signal, this
process can die of the same: :func:`end_as`. When this process is killed, the program goes on.

A fork of this process, :class:`GroupWitness`, does what it cannot do itself.

The program waits for this module.
"""

from __future__ import annotations

import os
import select

TYPE_CHECKING = False  # not typing's, which takes a tenth of the time until the program starts
if TYPE_CHECKING:
    import signal
    from collections.abc import Callable, Iterable, Mapping, Sequence
    from contextlib import AbstractContextManager
    from typing import Final, NoReturn

    WhileStopped = Callable[[], AbstractContextManager[None]]
    """Makes room on the screen."""

    Ended = tuple[int, int | None]
    """The program's exit code, or the signal that ended it as -9; and the highest RSS of it, or of a process that it has
    waited for, in units of the system (kibibytes on Linux), or None if that is not known."""
else:
    import _signal as signal  # signal itself makes enumerations: half of Python's own start

_ON_ITS_WAY: Final = 0.02
"""Seconds that a signal to a group may take from its first process to its last."""

_HAS_IT: Final = b"\1"

_ANSWERS: Final = 1.0
"""Seconds after which a witness that does not answer, because it was stopped, is done without."""


def signal_name(number: int) -> str:
    """Returns the name of a signal: ``SIGKILL``."""
    from signal import Signals

    try:
        return Signals(number).name
    except ValueError:
        return f"signal {number}"  # a real-time signal


class Program:
    """A running program. To be started on the main thread, before any other thread exists."""

    def __init__(
        self, arguments: Sequence[str], environ: Mapping[str, str], output: str | None = None
    ) -> None:
        # Ignored ones too: the program may have a handler for them later.
        self._taken = signal.valid_signals() - {signal.SIGKILL, signal.SIGSTOP}
        # From here on they wait in the queue of this process until `wait` takes them.
        self._mask = signal.pthread_sigmask(signal.SIG_BLOCK, self._taken)
        self._witness = GroupWitness()
        ignores_ends = signal.getsignal(signal.SIGCHLD) is signal.SIG_IGN
        # Where it is ignored, the kernel keeps the exit codes of children to itself.
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        failed, failure = os.pipe()  # closed when the program is loaded
        self.pid = os.fork()
        if self.pid == 0:
            if ignores_ends:
                signal.signal(signal.SIGCHLD, signal.SIG_IGN)
            _become(list(arguments), environ, self._mask, failure, output)
        os.close(failure)
        with os.fdopen(failed, "rb") as pipe:
            number = int(pipe.read() or 0)
        if number:
            os.waitpid(self.pid, 0)
            self._witness.end()
            signal.pthread_sigmask(signal.SIG_SETMASK, self._mask)
            raise OSError(number, os.strerror(number), arguments[0])
        _let_go_of_input_and_output()

    def wait(self, while_stopped: WhileStopped, when_ended: Callable[[], object]) -> Ended:
        """Waits until the program has ended, and passes signals on in the meantime.

        `when_ended` is called while the kernel still has all that it knows of the program.
        The terminal's input and output stay the program's: nothing is read or written here.
        """
        while (ended := self._ended(while_stopped, when_ended)) is None:
            # Without a timeout: CPython returns numbers of no signal where a stop of this process outlasts one.
            arrived = signal.sigwaitinfo(self._taken)
            if arrived.si_signo == signal.SIGCHLD:
                continue
            # Asked of the program's own too: what it keeps would hide the next.
            was_for_all = self._witness.has(arrived.si_signo)
            if not was_for_all and arrived.si_pid not in (self.pid, os.getpid()):
                try:
                    os.kill(self.pid, arrived.si_signo)
                except ProcessLookupError:
                    pass  # it has just ended; the loop finds out
        while signal.sigtimedwait(self._taken, 0) is not None:
            pass  # the Ctrl-C that has ended the program is not to end what comes after it
        self._witness.end()
        signal.pthread_sigmask(signal.SIG_SETMASK, self._mask)
        return ended

    def _ended(self, while_stopped: WhileStopped, when_ended: Callable[[], object]) -> Ended | None:
        """Returns how the program ended; None if it has not. Stops when it has stopped."""
        while True:
            state = _state_of(self.pid)
            if state == "Z":
                when_ended()
            elif state not in ("T", ""):  # it runs; what has no states is waited for
                return None
            pid, status, usage = os.wait4(self.pid, os.WNOHANG | os.WUNTRACED)
            if not pid:
                return None
            if not os.WIFSTOPPED(status):
                return os.waitstatus_to_exitcode(status), usage.ru_maxrss
            # Whoever waits for us has to see the job stop. SIGCONT continues both, but whoever has stopped the
            # program alone continues it alone.
            number, is_continued = os.WSTOPSIG(status), signal.SIGCONT in signal.sigpending()
            if number != signal.SIGSTOP and _state_of(self.pid) == "T" and not is_continued:
                with while_stopped():
                    _stop(number)


def _become(
    arguments: list[str], environ: Mapping[str, str], mask: Iterable[int], failure: int,
    output: str | None,
) -> NoReturn:  # fmt: skip
    """Turns this process, a fork, into the program, or writes the error's number and ends."""
    try:
        # Python itself ignores two of these and handles the third; a program is not started that way.
        for number in (signal.SIGPIPE, signal.SIGXFSZ):
            signal.signal(number, signal.SIG_DFL)
        if signal.getsignal(signal.SIGINT) is not signal.SIG_IGN:
            signal.signal(signal.SIGINT, signal.SIG_DFL)
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)
        if output is not None:
            file = os.open(output, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o666)
            os.dup2(file, 1)
            os.dup2(file, 2)
        os.execvpe(arguments[0], arguments, environ)  # noqa: S606 # what the user asks for
    except OSError as error:
        os.write(failure, str(error.errno).encode())
    finally:
        os._exit(127)


def _stop(number: int) -> None:
    """Stops this process by a signal, as the program was stopped, until it is continued."""
    mask = signal.pthread_sigmask(signal.SIG_BLOCK, {number})
    os.kill(os.getpid(), number)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {number})  # stops here
    signal.pthread_sigmask(signal.SIG_SETMASK, mask)


def _state_of(pid: int) -> str:
    """Returns the letter that the kernel has for what a process does; empty for one that is gone."""
    try:
        with open(f"/proc/{pid}/stat") as file:  # noqa: PTH123 - the program waits for pathlib
            return file.read().rpartition(")")[2].split()[0]
    except OSError:
        return ""


def _let_go_of_input_and_output() -> None:
    """Has a pipe close when the program closes it, although this process was given it too."""
    null = os.open(os.devnull, os.O_RDWR)
    for descriptor in (0, 1):
        os.dup2(null, descriptor)
    if null > 1:
        os.close(null)


class GroupWitness:
    """Distinguishes a signal that was sent to the process group from one that was sent to us alone.

    Ctrl-C, ``kill %1`` in a shell, ``timeout``, and whoever ends every process of a container send a
    signal to the program as well as to the launcher: passed on, the program would have it twice. A
    second SIGTERM interrupts what it does on the first; after Ctrl-Z and ``fg`` it would have SIGCONT
    twice. The signal itself does not show which processes it was sent to. So a third process of the
    group, which blocks every signal, is asked whether it has it too.
    To be made with the signals in question blocked, before any thread.
    """

    def __init__(self) -> None:
        questions, self._questions = os.pipe()
        self._answers, answers = os.pipe()
        self._pid = _fork_witness(questions, answers)
        self._is_lost = False  # it was killed or stopped

    def has(self, number: int) -> bool:
        """Tells whether a signal that this process has just taken was sent to the witness too."""
        if self._is_lost:
            return False
        try:
            os.write(self._questions, bytes([number]))
            if select.select([self._answers], [], [], _ANSWERS)[0]:
                return os.read(self._answers, 1) == _HAS_IT
        except BrokenPipeError:
            pass  # it was killed
        self._is_lost = True
        return False

    def end(self) -> None:
        """Ends the process by its pipe. To kill it would look like a failure to another `otel-quant run` around."""
        os.close(self._questions)
        os.close(self._answers)
        os.kill(self._pid, signal.SIGCONT)  # it may be stopped
        looks = 0
        while not os.waitpid(self._pid, os.WNOHANG)[0]:
            select.select([], [], [], _ANSWERS / 1000)
            looks += 1
            if looks == 1000:
                os.kill(self._pid, signal.SIGKILL)


def _fork_witness(questions: int, answers: int) -> int:
    """Starts a fork that answers until the launcher has ended, however it did; returns its process id.

    It has these descriptors alone: a pipe of the user's is not to stay open because of it.
    """
    pid = os.fork()
    if pid == 0:
        try:
            signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
            first, second = sorted((questions, answers))
            os.closerange(0, first)
            os.closerange(first + 1, second)
            os.closerange(second + 1, os.sysconf("SC_OPEN_MAX"))
            while question := os.read(questions, 1):
                has_it = signal.sigtimedwait([question[0]], _ON_ITS_WAY) is not None
                os.write(answers, _HAS_IT if has_it else b"\0")
        finally:
            os._exit(0)
    os.close(questions)
    os.close(answers)
    return pid


class ProgramElsewhere:
    """The same on a system other than Linux, where nothing tells who else was sent a signal, or what has stopped.

    Ctrl-C reaches the program from the terminal, as it reaches this process; SIGTERM is passed on.
    """

    def __init__(
        self, arguments: Sequence[str], environ: Mapping[str, str], output: str | None = None
    ) -> None:
        import subprocess

        with open(output or os.devnull, "ab") as file:  # noqa: PTH123 - likewise
            shown = None if output is None else file
            self._process = subprocess.Popen(  # noqa: S603 - what the user asks for
                arguments, env=environ, stdout=shown, stderr=shown
            )
        self.pid = self._process.pid

    def wait(self, while_stopped: WhileStopped, when_ended: Callable[[], object]) -> Ended:
        """Waits until the program has ended; `while_stopped` is not needed, as this process stops alone."""
        handlers = {
            signal.SIGINT: lambda *_: None,
            signal.SIGTERM: lambda *_: self._process.terminate(),
        }
        before = {number: signal.signal(number, handler) for number, handler in handlers.items()}
        code = self._process.wait()
        when_ended()
        for number, handler in before.items():
            signal.signal(number, handler)
        return code, None


def end_as(code: int) -> int:
    """Ends this process as the program ended, if a signal ended it, which is -9 then; else returns its exit code."""
    if code >= 0:
        return code
    import resource

    number = -code
    # The program's core file is the useful one. The kernel makes none for a limit of one byte, not
    # even for a program that takes core files from a pipe and so gets them whatever the limit.
    _, most = resource.getrlimit(resource.RLIMIT_CORE)
    least = 0 if most == 0 else 1
    resource.setrlimit(resource.RLIMIT_CORE, (least, least))
    if number != signal.SIGKILL:
        signal.signal(number, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {number})
    os.kill(os.getpid(), number)
    return 128 + number  # a signal that does not end this process: the first of a container
