"""What the processes of models have in common: requests and answers, and the kernel's mark.

They read requests from one pipe and answer each on another, a JSON object a line, and end when the
parent does, with their own children. What libraries print goes where the parent has sent it.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from queue import SimpleQueue
from threading import Thread
from typing import Any, Final, NoReturn

from otel_quant.base.fault_boundary import LastResort

_RESETS_MARK: Final = "5"
"""Written to ``clear_refs``, it sets the kernel's mark of the highest RSS to the RSS (proc(5))."""


def answer_requests(
    arguments: Sequence[str],
    answers_of: Callable[[Path], Mapping[str, Callable[..., Any]]],
    text_of: Callable[[Exception], str],
) -> NoReturn:
    """Answers requests as long as the parent lives."""
    read, write, folder = int(arguments[0]), int(arguments[1]), Path(arguments[2])
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the parent's, which ends this process
    requests: SimpleQueue[str] = SimpleQueue()
    Thread(target=_take_requests, args=(read, requests, folder), daemon=True).start()
    answers = answers_of(folder)
    with os.fdopen(write, "w", encoding="utf-8") as out:
        while True:
            request = json.loads(requests.get())
            with LastResort() as end:
                result = answers[request.pop("do")](**request)
                answer = {"result": result}
            if end.error is not None:
                answer = {"error": text_of(end.error)}
            out.write(json.dumps(answer) + "\n")
            out.flush()


def _take_requests(read: int, requests: SimpleQueue[str], folder: Path) -> None:
    """Takes requests as long as the parent lives; without it this process ends in any run."""
    with os.fdopen(read, encoding="utf-8") as lines:
        for line in lines:
            requests.put(line)
    shutil.rmtree(folder, ignore_errors=True)  # the parent may have been killed
    os.killpg(0, signal.SIGKILL)  # a session of its own: itself, and what a compiler has started


def status(key: str) -> int | None:
    """Returns a line of ``/proc/self/status`` in bytes; None where there is none."""
    try:
        text = Path("/proc/self/status").read_text(encoding="ascii", errors="replace")
    except OSError:
        return None
    found = re.search(rf"^{key}:\s*([0-9]+) kB$", text, re.MULTILINE)
    return None if found is None else int(found[1]) * 1024


def reset_mark() -> bool:
    """Sets the kernel's mark of the highest RSS to the RSS; returns whether it could."""
    try:
        Path("/proc/self/clear_refs").write_text(_RESETS_MARK, encoding="ascii")
    except OSError:
        return False
    return True
