"""Tells a signal that was sent to the whole process group from one that was sent to us alone.

Ctrl-C, ``kill %1`` in a shell, ``timeout``, and whoever ends every process of a container send a
signal to the program as well as to the launcher: passed on, the program would have it twice, and a
second SIGTERM interrupts what it does on the first. The signal itself does not say whom else it was
sent to. So a third process of the group, which blocks every signal, is asked whether it has it too.
"""

from __future__ import annotations

import os
import select
import signal
import time
from typing import Final

_ON_ITS_WAY: Final = 0.02
"""Seconds that a signal to a group may take from its first process to its last."""

_ANSWERS: Final = 1.0
"""Seconds after which a witness that does not answer, because it was stopped, is done without."""


class GroupWitness:
    """The third process. To be made with the signals in question blocked, before any thread."""

    def __init__(self) -> None:
        questions, self._questions = os.pipe()
        self._answers, answers = os.pipe()
        self._asked = 0
        self._pid = os.fork()
        if self._pid == 0:
            _be_witness(questions, answers)
        os.close(questions)
        os.close(answers)

    def has(self, number: int) -> bool:
        """Tells whether a signal that this process has just taken was sent to the witness too."""
        self._asked = (self._asked + 1) % 256
        try:
            os.write(self._questions, bytes([number, self._asked]))
        except BrokenPipeError:
            return False  # it was killed
        ends = time.monotonic() + _ANSWERS
        while select.select([self._answers], [], [], max(0.0, ends - time.monotonic()))[0]:
            answer = os.read(self._answers, 2)
            if not answer:
                break  # it was killed
            if answer[1] == self._asked:  # else one that came late
                return answer[0] == 1
        return False

    def end(self) -> None:
        """Ends the process."""
        os.close(self._questions)
        os.close(self._answers)
        os.waitpid(self._pid, 0)


def _be_witness(questions: int, answers: int) -> None:
    """Answers until the launcher has ended, however it did."""
    signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
    # A pipe of the user's is not to stay open because of this process.
    low, high = sorted((questions, answers))
    for first, end in ((0, low), (low + 1, high), (high + 1, os.sysconf("SC_OPEN_MAX"))):
        os.closerange(first, end)
    while question := os.read(questions, 2):
        has_it = signal.sigtimedwait([question[0]], _ON_ITS_WAY) is not None
        try:
            os.write(answers, bytes([has_it, question[1]]))
        except BrokenPipeError:
            break
    os._exit(0)
