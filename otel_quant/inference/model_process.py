"""Starts the process of a model, asks it and ends it; ``child.py`` is that process's own side.

A request and its answer are a JSON object in a line each.
"""

from __future__ import annotations

import json
import os
import select
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from contextlib import suppress
from math import inf
from pathlib import Path
from typing import Any, Final, Literal

from otel_quant.cost.graph import printable

_FOLDERS: Final = ("TMPDIR", "TORCHINDUCTOR_CACHE_DIR", "TRITON_CACHE_DIR")
"""Variables that name a folder for what a process leaves behind: onnxruntime has a file of its own
among the temporary ones, and what compilers leave would make the next call of the command faster."""

_SHOWN: Final = 300  # Characters of an error that are shown
_PAGES: Final = Path("/sys/kernel/mm/transparent_hugepage/enabled")
_TUNABLES: Final = "GLIBC_TUNABLES"
_HUGE: Final = "glibc.malloc.hugetlb"
"""Documented in glibc's manual under Memory Allocation Tunables, since version 2.35; 1 has malloc ask
for transparent huge pages."""


def with_huge_pages(environ: Mapping[str, str], setting: Path = _PAGES) -> dict[str, str]:
    """Returns the variables that have a process ask for huge pages.

    Without them two calls of the command differ: where the kernel happens to put pages of 4 KiB
    decides how often they get in each other's way in the caches, for as long as a process lives, and
    medians of the same model differed by up to a quarter on an idle machine; by 5 % in huge pages.
    """
    given = environ.get(_TUNABLES, "")
    try:
        text = setting.read_text("utf-8")
    except OSError:
        return {}
    if _HUGE in given or "[never]" in text:
        return {}
    return {_TUNABLES: ":".join(filter(None, (given, f"{_HUGE}=1")))}


class ModelError(Exception):
    """A model could not be measured; the text is the reason, without the model's name."""


class ModelProcess:
    """The process of a model, one after another: it starts when it is asked first."""

    def __init__(
        self, runtime: Literal["onnx", "torch"], *, huge_pages: bool, timeout: float | None = None
    ) -> None:
        self._command = [sys.executable, "-P", "-m", "otel_quant.inference.child", runtime]
        self.variables = with_huge_pages(os.environ) if huge_pages else {}
        self._timeout = timeout  # seconds for an answer; None for as long as it takes
        self._folder: Path | None = None
        self._running: _Running | None = None

    @property
    def folder(self) -> Path:
        """Where files of the process go."""
        if self._folder is None:
            self._start()
            assert self._folder is not None
        return self._folder

    def _start(self) -> _Running:
        # Ctrl-C waits, which in the middle would leave a process that nobody knows.
        before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT, signal.SIGTERM})
        try:
            self._folder = self._folder or Path(tempfile.mkdtemp(prefix="otel-quant-inference-"))
            variables = {**self.variables, **dict.fromkeys(_FOLDERS, str(self._folder))}
            self._running = _Running(self._command, variables, self._folder)
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)
        return self._running

    def ask(self, request: str, **arguments: Any) -> Any:
        """Has the process do something and returns its answer; the process ends where that fails."""
        running = self._running or self._start()
        answer = running.answer({"do": request, **arguments}, self._timeout)
        if "error" not in answer:
            return answer["result"]
        self.close()
        raise ModelError(printable(" ".join(answer["error"].split()), _SHOWN))

    def restart(self) -> None:
        """Ends the process, if there is one, and starts another one that finds its files."""
        if (before := self._running) is not None:
            # First the new one: if this command is killed, a process is there to remove the files.
            self._start()
            before.end()

    def close(self) -> None:
        """Ends the process and removes its files."""
        if self._running is not None:
            self._running.end()
            self._running = None
        if self._folder is not None:
            shutil.rmtree(self._folder, ignore_errors=True)
            self._folder = None


class _Running:
    """A process that answers requests."""

    def __init__(self, command: list[str], variables: Mapping[str, str], folder: Path) -> None:
        answers, to_us = os.pipe()
        self._answers = os.fdopen(answers, encoding="utf-8")
        self._output = (folder / "output").open("w+", encoding="utf-8", errors="replace")
        try:
            self._process = subprocess.Popen(  # noqa: S603  # this Python, and files of our own
                [*command, str(to_us), str(folder)],
                stdin=subprocess.PIPE,
                stdout=self._output,
                stderr=self._output,
                env={**os.environ, **variables},
                pass_fds=(to_us,),
                start_new_session=True,  # Ctrl-C is for this process, which ends that one
                encoding="utf-8",
            )
        finally:
            os.close(to_us)

    def answer(self, request: Mapping[str, Any], timeout: float | None) -> Mapping[str, Any]:
        assert self._process.stdin is not None
        with suppress(BrokenPipeError):  # it has died: the missing answer tells
            self._process.stdin.write(json.dumps(request) + "\n")
            self._process.stdin.flush()
        until = inf if timeout is None else time.monotonic() + timeout
        while not select.select([self._answers], [], [], 0.2)[0]:
            if self._process.poll() is not None:  # what it has started may hold the pipe open
                return {"error": self._death()}
            if time.monotonic() >= until:
                return {"error": f"no answer within {timeout:g} s (--timeout)"}
        line = self._answers.readline()
        return dict(json.loads(line)) if line.endswith("\n") else {"error": self._death()}

    def _death(self) -> str:
        code = self._process.wait()
        self._output.seek(0)
        lines = [line for line in self._output.read().splitlines() if line.strip()]
        why = f"; its last line: {lines[-1]}" if lines else ""
        if code >= 0:
            return f"the process that ran it ended with exit code {code}{why}"
        name = signal.Signals(-code).name
        memory = " (probably out of memory)" if name == "SIGKILL" else ""
        return f"the process that ran it was ended by {name}{memory}{why}"

    def end(self) -> None:
        """Ends the process; its files stay."""
        with suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)  # a compiler starts processes
        self._process.wait()
        self._answers.close()
        self._output.close()
        assert self._process.stdin is not None
        with suppress(BrokenPipeError):
            self._process.stdin.close()
