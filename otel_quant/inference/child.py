"""The process of a model: ``python -m otel_quant.inference.child RUNTIME ANSWERS FOLDER``.

It reads requests from its standard input and answers each on a pipe, and ends when the parent does, with
its own children. A request is the name of a method of the runtime's session and its arguments. What
libraries print goes where the parent has sent it.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import sys
import time
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from queue import SimpleQueue
from threading import Thread
from typing import Final, NoReturn

from otel_quant.base.fault_boundary import LastResort

_RESETS_MARK: Final = "5"
"""Written to ``clear_refs``, it sets the kernel's mark of the highest RSS to the RSS (proc(5))."""


def answer_requests(runtime: str, answers: int, folder: Path) -> NoReturn:
    """Answers requests as long as the parent lives."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the parent's, which ends this process
    read = os.dup(0)
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)  # a script that reads its input does not get ours
    requests: SimpleQueue[str] = SimpleQueue()
    Thread(target=_take_requests, args=(read, requests, folder), daemon=True).start()
    module = import_module(f"otel_quant.inference.{runtime}_session")
    session = getattr(module, f"{runtime.title()}Session")(folder)
    with os.fdopen(answers, "w", encoding="utf-8") as out:
        while True:
            request = json.loads(requests.get())
            with LastResort() as end:
                answer = {"result": getattr(session, request.pop("do"))(**request)}
            if end.error is not None:
                answer = {"error": module.text_of(end.error)}
            print(json.dumps(answer), file=out, flush=True)


def _take_requests(read: int, requests: SimpleQueue[str], folder: Path) -> None:
    """Takes requests as long as the parent lives; without it this process ends in any run."""
    with os.fdopen(read, encoding="utf-8") as lines:
        for line in lines:
            requests.put(line)
    shutil.rmtree(folder, ignore_errors=True)  # the parent may have been killed
    os.killpg(0, signal.SIGKILL)  # a session of its own: itself, and what a compiler has started


def timed(
    call: Callable[[], object], count: int, clock: Callable[[], float] = time.perf_counter
) -> list[float]:
    """Calls a model so often; returns the seconds of each call."""
    found = []
    for _ in range(count):
        began = clock()
        call()
        found.append(clock() - began)
    return found


def timed_round(call: Callable[[], object], count: int) -> dict[str, list[float]]:
    """Calls a model so often; returns of each call its seconds and those of CPU time, of all threads."""
    wall, cpu = [], []
    for _ in range(count):
        used = time.process_time()
        wall += timed(call, 1)
        cpu.append(time.process_time() - used)
    return {"wall": wall, "cpu": cpu}


def status(key: str) -> int | None:
    """Returns a line of ``/proc/self/status`` in bytes; None where there is none."""
    try:
        text = Path("/proc/self/status").read_text(encoding="ascii", errors="replace")
    except OSError:
        return None
    found = re.search(rf"^{key}:\s*([0-9]+) kB$", text, re.MULTILINE)
    return None if found is None else int(found[1]) * 1024


def growth(before: int | None, after: int | None) -> int | None:
    """Returns how many bytes were added; None where one of the two is not known."""
    return None if before is None or after is None else max(0, after - before)


def reset_mark() -> bool:
    """Sets the kernel's mark of the highest RSS to the RSS; returns whether it could."""
    try:
        Path("/proc/self/clear_refs").write_text(_RESETS_MARK, encoding="ascii")
    except OSError:
        return False
    return True


class MemoryMark:
    """The kernel's mark of the highest RSS, as long as it could be set back."""

    def __init__(self) -> None:
        self._is_known = True

    def take(self, resets: bool) -> int | None:
        """Returns the mark in bytes, and sets it back."""
        found = status("VmHWM") if self._is_known else None
        if resets:
            self._is_known = reset_mark()
        return found


if __name__ == "__main__":
    answer_requests(sys.argv[1], int(sys.argv[2]), Path(sys.argv[3]))
