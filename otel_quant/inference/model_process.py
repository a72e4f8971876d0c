"""The parent's side of a model's process: starts it, asks it, ends it.

``child.py`` is the other side. A request and its answer are a JSON object in a line each.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final, Literal

from otel_quant.cost.graph import printable

Runtime = Literal["onnx", "torch"]

_FOLDERS: Final = ("TMPDIR", "TORCHINDUCTOR_CACHE_DIR", "TRITON_CACHE_DIR")
"""Variables that name a folder for what a process leaves behind: onnxruntime has a file of its own
among the temporary ones, and what compilers leave would make the next call of the command faster."""

_SHOWN: Final = 300
"""Characters of an error that are shown."""

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
        text = setting.read_text()
    except OSError:
        return {}
    if _HUGE in given or "[never]" in text:
        return {}
    return {_TUNABLES: ":".join(filter(None, (given, f"{_HUGE}=1")))}


class ModelError(Exception):
    """A model could not be measured; the text says why, without the model's name."""


class Worker:
    """A process that answers requests."""

    def __init__(
        self,
        runtime: Runtime = "onnx",
        variables: Mapping[str, str] = MappingProxyType({}),
        folder: Path | None = None,
    ) -> None:
        self.folder = folder or Path(tempfile.mkdtemp(prefix="otel-quant-inference-"))
        theirs, ours = os.pipe()
        answers, to_us = os.pipe()
        self._said = (self.folder / "said").open("w+", encoding="utf-8", errors="replace")
        command = [sys.executable, "-P", "-m", "otel_quant.inference.child", runtime]
        try:
            self._process = subprocess.Popen(  # noqa: S603  # this Python, and files of our own
                [*command, str(theirs), str(to_us), str(self.folder)],
                stdin=subprocess.DEVNULL,
                stdout=self._said,
                stderr=self._said,
                env={**os.environ, **variables, **dict.fromkeys(_FOLDERS, str(self.folder))},
                pass_fds=(theirs, to_us),
                start_new_session=True,  # Ctrl-C is for this process, which ends that one
            )
        finally:
            os.close(theirs)
            os.close(to_us)
        self._requests = os.fdopen(ours, "w", encoding="utf-8")
        self._answers = os.fdopen(answers, encoding="utf-8")

    @property
    def pid(self) -> int:
        """Its process id."""
        return self._process.pid

    def ask(self, request: str, **arguments: Any) -> Any:
        """Has the process do something and returns its answer."""
        try:
            self._requests.write(json.dumps({"do": request, **arguments}) + "\n")
            self._requests.flush()
        except BrokenPipeError:
            pass  # it has died: the missing answer tells
        line = self._answers.readline()
        if not line.endswith("\n"):
            raise ModelError(self._death())
        answer = json.loads(line)
        if "error" in answer:
            raise ModelError(_first_line(answer["error"]))
        return answer["result"]

    def _death(self) -> str:
        code = self._process.wait()
        self._said.flush()
        self._said.seek(0)
        lines = [line for line in self._said.read().splitlines() if line.strip()]
        why = f"; its last line: {_first_line(lines[-1])}" if lines else ""
        if code >= 0:
            return f"the process that ran it ended with exit code {code}{why}"
        name = signal.Signals(-code).name
        memory = " (probably out of memory)" if name == "SIGKILL" else ""
        return f"the process that ran it was ended by {name}{memory}{why}"

    def close(self) -> None:
        """Ends the process and removes its files."""
        self.end()
        shutil.rmtree(self.folder, ignore_errors=True)

    def end(self) -> None:
        """Ends the process; its files stay."""
        try:
            os.killpg(self.pid, signal.SIGKILL)  # its session: a compiler starts processes
        except ProcessLookupError:
            pass
        self._process.wait()
        for file in (self._answers, self._said):
            file.close()
        try:
            self._requests.close()
        except BrokenPipeError:
            pass


class ModelProcess:
    """The process of a model, one after another: it starts when it is asked first."""

    def __init__(
        self, runtime: Runtime = "onnx", variables: Mapping[str, str] = MappingProxyType({})
    ) -> None:
        self._runtime, self._variables = runtime, variables
        self._worker: Worker | None = None

    def ask(self, request: str, **arguments: Any) -> Any:
        """Asks the process; it ends where that fails."""
        try:
            return self._started().ask(request, **arguments)
        except ModelError as error:
            self.close()
            raise ModelError(printable(str(error), 2 * _SHOWN)) from error

    def restart(self) -> None:
        """Ends the process, if there is one, and starts another one that finds its files."""
        if (before := self._worker) is not None:
            with _uninterrupted():
                # First the new one: if this command is killed, a process is there to remove the files.
                self._worker = Worker(self._runtime, self._variables, before.folder)
                before.end()

    def _started(self) -> Worker:
        if self._worker is None:
            with _uninterrupted():
                self._worker = Worker(self._runtime, self._variables)
        return self._worker

    @property
    def folder(self) -> Path:
        """Where files of the process go."""
        return self._started().folder

    def close(self) -> None:
        """Ends the process and removes its files."""
        if self._worker is not None:
            self._worker.close()
            self._worker = None


@contextmanager
def _uninterrupted() -> Iterator[None]:
    """Has Ctrl-C wait, which in the middle would leave a process that nobody knows."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT, signal.SIGTERM})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _first_line(text: str) -> str:
    line = " ".join(text.split())
    return line if len(line) <= _SHOWN else f"{line[:_SHOWN]}..."
