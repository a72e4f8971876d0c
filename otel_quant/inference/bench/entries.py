"""The parent's side of a variant: what its process is asked, and what it has answered."""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from math import ceil
from statistics import median
from typing import Any, Final

from otel_quant.cost import CostError, InputSpec
from otel_quant.cost.graph import printable
from otel_quant.inference.bench.huge_pages import with_huge_pages
from otel_quant.inference.feeds import tensor_text
from otel_quant.inference.file_graph import FileGraph
from otel_quant.inference.measure import options_of
from otel_quant.inference.measurement import is_quantized
from otel_quant.inference.options import Options
from otel_quant.inference.subjects import UnreadableError, measured_model
from otel_quant.inference.worker import ModelProcess

_TORCH_PROCESS: Final = "otel_quant.inference.bench.torch_process"

_MOST_RUNS: Final = 1000
_NANO: Final = 1e-9


def torch_process() -> ModelProcess:
    """Returns the process of a script's variant; it starts when it is asked first."""
    return ModelProcess(_TORCH_PROCESS, with_huge_pages(os.environ))


@dataclass(frozen=True, slots=True)
class OnnxInputs:
    """What ONNX files are fed."""

    # Shapes, and perhaps values, of inputs
    inputs: Mapping[str, InputSpec] = field(default_factory=dict)
    dims: Mapping[str, int] = field(default_factory=dict)  # Lengths of dimensions
    data: str | None = None  # File of numpy with the inputs; None for random ones


class Entry(ABC):
    """A variant while it is measured."""

    kind: str  # What runs it

    def __init__(self, name: str, process: ModelProcess) -> None:
        self.name, self.process = name, process
        self.problem = self.provider = self.no_outputs = ""
        self.fed: Sequence[str] = ()
        self.facts: Mapping[str, str] = {}
        self.loading = self.compile = 0.0
        self.quantize: float | None = None
        self.first: Sequence[float] = ()
        self.processes: list[list[Sequence[float]]] = [[]]
        self.marks: list[Mapping[str, int | None]] = []
        self.disk: int | None = None
        self.is_quantized: bool | None = None
        self.outputs: tuple[Sequence[str], bytes] | None = None

    def medians(self) -> Sequence[Sequence[float]]:
        """Returns the seconds of a call in each round, by process."""
        return [[median(each) for each in rounds] for rounds in self.processes]

    def rounds(self) -> Sequence[Sequence[float]]:
        """Returns the seconds of a call in each block of each round of all processes."""
        return [each for rounds in self.processes for each in rounds]

    @abstractmethod
    def prepare(self) -> None:
        """Makes the variant and calls it for the first times."""

    def repeat(self) -> None:
        """Makes and calls it in a new process, since a process may be slow for as long as it lives."""
        self.processes.append([])
        self.process.restart()
        self._make()

    @abstractmethod
    def _make(self) -> Any:
        """Makes the variant in its process and calls it there; None if that failed."""

    @abstractmethod
    def time(self, seconds: float) -> None:
        """Adds a round of about so many seconds."""

    @abstractmethod
    def finish(self) -> None:
        """Takes what is to be known after the rounds."""

    def ask(self, doing: str, request: str, **arguments: Any) -> Any:
        """Asks the process; None if something has failed, or does now."""
        if self.problem:
            return None
        found = self.process.ask(request, **arguments)
        if self.process.problem:
            number = len(self.processes)
            which = f" in process {number}" if number > 1 else ""
            self.problem = f"{doing}{which} failed: {self.process.problem}"
        return found

    def take_outputs(self) -> None:
        """Takes the outputs of a call; if that fails, the times stand all the same."""
        if self.problem:
            return
        path = self.process.folder / "outputs.npz"
        names = self.process.ask("outputs", path=str(path))
        self.no_outputs = self.process.problem
        if names is not None:
            self.outputs = names, path.read_bytes()


class TorchEntry(Entry):
    """A variant of a script that torch runs."""

    kind = "torch"

    def __init__(
        self,
        name: str,
        reference: str,
        threads: int | None,
        process: ModelProcess | None,
        fed: Sequence[str],
    ) -> None:
        super().__init__(name, process or torch_process())
        self._needs_script = process is None
        self._reference, self._threads, self.fed = reference, threads, fed

    def prepare(self) -> None:
        """Makes the variant and calls it for the first times."""
        found = self._make()
        marks = self.ask("its first call", "marks", resets=True)
        if found is None or marks is None:
            return
        made, first = found
        self.quantize, self.first, self.marks = made["took"], first, [marks]
        self.provider = "cuda" if made["gpu"] else "cpu"
        self.facts = {
            "torch": made["version"],
            "threads of torch": str(made["threads"]),
            "GPU": made["gpu"],
        }

    def _make(self) -> Any:
        if self._needs_script:
            loaded = self.ask("loading the script", "load", reference=self._reference)
            if len(self.processes) == 1:  # whose outputs are compared
                self.fed = loaded["fed"] if loaded is not None else ()
        self._needs_script = True  # another process has not loaded it
        made = self.ask("making it", "make", name=self.name, threads=self._threads)
        first = self.ask("its first call", "first")
        return None if made is None or first is None else (made, first)

    def time(self, seconds: float) -> None:
        """Adds a round by torch's ``Timer``; of one call at least."""
        times = self.ask("timing it", "time", seconds=seconds)
        if times is not None:
            self.processes[-1].append(times)

    def finish(self) -> None:
        """Takes the marks of memory, the size of the state dict and the outputs."""
        marks = self.ask("timing it", "marks", resets=False)
        if marks is None:
            return
        self.marks.append(marks)
        weights = self.process.ask("weights")
        if weights is not None:
            self.disk, self.is_quantized = weights["bytes"], weights["is_quantized"]
        self.take_outputs()  # last: its process ends where they cannot be had


class OnnxEntry(Entry):
    """A variant that is an ONNX file."""

    kind = "onnx"

    def __init__(self, name: str, path: str, fed: OnnxInputs, options: Options) -> None:
        super().__init__(name, ModelProcess(variables=with_huge_pages(os.environ)))
        self._path, self._fed, self._options = path, fed, options
        self._request: Mapping[str, Any] = {}
        self._warm = 1.0
        self._has_mark = False
        self._saved = ""

    def take_inputs(self, script: ModelProcess, fed: Sequence[str]) -> None:
        """Has the process of a script leave its inputs for the file."""
        path = self._saved = str(self.process.folder / "inputs.npz")
        try:
            names = list(FileGraph(self._path, {}, self._fed.dims).bound.values)
        except CostError as error:
            self._cannot_load(str(error))
            return
        problem = script.ask("save_inputs", path=path, names=names) or script.problem
        if problem:
            self._cannot_load(problem)
        self._fed, self.fed = replace(self._fed, data=path), fed

    def _cannot_load(self, why: str) -> None:
        self.problem = f"loading it failed: {printable(why.removeprefix(f'{self._path}: '), 600)}"
        self.process.close()

    def prepare(self) -> None:
        """Makes the session and runs it for the first times."""
        if self.problem:
            return
        try:
            model = measured_model(self._path, self._fed.inputs, self._fed.dims, self._fed.data)
        except UnreadableError as error:
            self._cannot_load(str(error))
            return
        self._request = {
            "path": self._path,
            "options": asdict(options_of(model, self._options)),
            "subject": asdict(model.subject),
        }
        loaded = self._make()
        if loaded is None:
            if self._saved:  # a temporary file, of which nobody knows
                self.problem = self.problem.replace(self._saved, "the script's inputs")
            return
        self.first, self.compile = [loaded["first"] * _NANO], loaded["made"] * _NANO
        self._has_mark = loaded["mark_reset"]
        self.marks = [{"process": loaded["load_peak"]}]
        self.provider = loaded["providers"][0]
        self.facts = {
            "onnxruntime": loaded["version"],
            "threads of onnxruntime": str(self._options.threads or "its choice"),
            "providers": ", ".join(loaded["providers"]),
            "assumed": ", ".join(model.subject.assumed),
        }
        self.fed = self.fed or [
            f"{name} {tensor_text(dtype, shape)}"
            for name, (dtype, *shape) in loaded["inputs"].items()
        ]
        self.disk = model.file.file_bytes
        self.is_quantized = is_quantized(model.file)

    def _make(self) -> Any:
        loaded = self.ask("loading it", "load", **self._request)
        if loaded is not None:
            self._warm = loaded["warm"] * _NANO
        return loaded

    def time(self, seconds: float) -> None:
        """Adds a round of as many runs as fit by the usual one, at most 1,000."""
        times = min(_MOST_RUNS, ceil(seconds / self._warm))
        found = self.ask("timing it", "run", times=times)
        if found is not None:
            self.processes[-1].append([each * _NANO for each in found])

    def finish(self) -> None:
        """Takes the mark of memory and the outputs."""
        memory = self.ask("timing it", "memory")
        if memory is not None:
            self.marks.append({"process": memory["peak"] if self._has_mark else None})
            self.take_outputs()
