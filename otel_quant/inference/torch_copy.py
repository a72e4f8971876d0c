"""Runs a model once more in a forked copy of the process, for what cannot be seen in the process itself.

oneDNN writes what it runs to the standard output, which belongs to the program and its other threads; the kernel's mark of memory is the program's too. Without the copy nobody would know how much
memory a run needs on a CPU, nor whether int8 runs on vector instructions made for it. The copy runs the
model in a thread of its own: OpenMP's threads are not copied, and a new thread gets new ones.
"""

from __future__ import annotations

import ctypes
import faulthandler
import gc
import io
import json
import os
import select
import signal
import sys
import tempfile
import threading
import warnings
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, Final, NoReturn

from otel_quant.base.fault_boundary import LastResort
from otel_quant.cost.graph import printable
from otel_quant.inference.child import reset_mark, status
from otel_quant.inference.results import BackendKernel, backend_kernels
from otel_quant.inference.torch_parts import in_quotes, module_ranges, path_in

MODULE: Final = "otel-quant module "
"""Prefix of a line that names the module that runs from there on."""

_LONGEST: Final = 120


def read_verbose(text: str) -> tuple[tuple[BackendKernel, ...], Mapping[str, str]]:
    """Reads what was written in a run: kernels, the most frequent first, and instruction sets."""
    facts: dict[str, str] = {}
    ran: list[tuple[tuple[str, str, str, str], str]] = []
    module = ""
    for line in text.splitlines():
        if line.startswith(MODULE):
            module = path_in(line[len(MODULE) :])
        elif line.startswith("onednn_verbose,"):
            fields = line.split(",")
            for each in fields:
                if each.startswith("isa:"):
                    facts["oneDNN's instruction set"] = printable(each[4:], _LONGEST)
            # Behind it: engine, primitive, implementation, direction, descriptors of memory, and more.
            rest = fields[fields.index("exec") + 1 :] if "exec" in fields else []
            if len(rest) > 4 and "graph" not in fields:
                types = (descriptor.split(":")[:2] for descriptor in rest[4].split())
                shown = " ".join(":".join(filter(None, pair)) for pair in types)
                ran.append((("oneDNN", rest[1], rest[2], shown), module))
    return backend_kernels(ran), facts


_LEAST_SECONDS: Final = 30.0
_RUNS_AT_MOST: Final = 50
"""Time that the copy has, in runs of the model; it makes four, and shares the cores."""

_M_MMAP_THRESHOLD: Final = -3
_SMALL: Final = 1 << 14
"""Bytes from which the copy's allocator gives memory back at once."""

_PR_SET_PDEATHSIG: Final = 1
"""Has a process end with the one that has started it (prctl(2))."""


@dataclass(frozen=True, slots=True)
class Copied:
    """What was seen in the copy."""

    peak: int | None = None  # The kernel's mark while the model ran, in bytes
    growth: int | None = None  # How far it was above what was held before
    kernels: tuple[BackendKernel, ...] = ()  # What libraries report to have run
    facts: Mapping[str, str] = field(default_factory=dict)  # Instruction sets by library
    problem: str = ""  # Why nothing was seen; empty if something was


def run_in_copy(model: Any, run: Callable[[], object], seconds: float) -> Copied:
    """Runs a model in a copy of this process."""
    if sys.platform != "linux":
        return Copied(problem="a copy of the process can be made on Linux alone")
    limit = max(_LEAST_SECONDS, _RUNS_AT_MOST * seconds)
    read, write = os.pipe()
    with tempfile.TemporaryFile("w+b") as output, os.fdopen(read, "rb") as answers:
        with warnings.catch_warnings():
            # Python 3.12 warns that a copy has no other threads; it needs none.
            warnings.simplefilter("ignore", DeprecationWarning)
            pid = os.fork()
        if pid == 0:
            _be_the_copy(model, run, output.fileno(), write)
        os.close(write)
        try:
            waiting = select.poll()  # a program may have more descriptors than select takes
            waiting.register(read)
            ready = waiting.poll(1000 * limit)
            answer = answers.readline() if ready else b""  # the last thing that the copy does
        finally:
            with suppress(ProcessLookupError, ChildProcessError):
                # The program may wait for any child, or for none.
                os.kill(pid, signal.SIGKILL)
                os.waitpid(pid, 0)
        if not ready:
            return Copied(problem=f"a copy of the process did not end within {limit:.0f} s")
        if not answer:
            return Copied(problem="a copy of the process could not run the model")
        output.seek(0)
        text = output.read().decode("utf-8", "replace")
    peak, growth = json.loads(answer)
    return Copied(peak, growth, *read_verbose(text))


def _be_the_copy(model: Any, run: Callable[[], object], output: int, write: int) -> NoReturn:
    """Is the copy: nothing of it reaches the program's output, its handlers or its exit."""
    import resource  # Windows has none

    import torch

    try:
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, int(signal.SIGKILL))
        faulthandler.disable()
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        nothing = os.open(os.devnull, os.O_RDWR)
        for number, target in ((0, nothing), (1, output), (2, nothing)):
            os.dup2(target, number)
        sys.stdout = sys.stderr = io.TextIOWrapper(io.FileIO(nothing, "w"))
        threads = torch.get_num_threads()  # OpenMP's number is one of each thread
        thread = threading.Thread(target=_look, args=(model, run, write, threads))
        thread.start()
        thread.join()
    finally:
        os._exit(0)


def _look(model: Any, run: Callable[[], object], write: int, threads: int) -> None:
    import torch

    gc.disable()  # it would write to every page
    torch.set_num_threads(threads)
    libc = ctypes.CDLL(None)
    if hasattr(libc, "mallopt"):  # what is given back is not kept, so that the mark shows the need
        libc.mallopt(_M_MMAP_THRESHOLD, _SMALL)
    with LastResort(), torch.no_grad():
        run()  # its memory and its files are mapped again, page by page
        run()
        is_set = reset_mark()
        before = status("VmRSS")
        run()
        peak = status("VmHWM") if is_set else None
        growth = max(0, peak - before) if peak is not None and before is not None else None
        _listen(model, run)
        os.write(write, json.dumps([peak, growth]).encode() + b"\n")


def _listen(model: Any, run: Callable[[], object]) -> None:
    """Has libraries write what they run, with the modules in between."""
    import torch

    at: list[str] = [""]

    def tell() -> None:
        os.write(1, f"{MODULE}{in_quotes(at[-1])}\n".encode())

    def enter(path: str) -> Callable[[], object]:
        at.append(path)
        tell()

        def leave() -> None:
            at.pop()
            tell()

        return leave

    library: Any = torch.backends.mkldnn  # not all of it has types
    if library.is_available():
        with library.verbose(library.VERBOSE_ON), module_ranges(model, enter):
            run()
