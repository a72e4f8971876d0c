"""Models that are measured in processes of their own: what these are asked, and what they have answered."""

from __future__ import annotations

import time
from abc import abstractmethod
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, closing, contextmanager, suppress
from copy import copy
from dataclasses import dataclass, field, replace
from functools import wraps
from operator import attrgetter
from pathlib import Path
from typing import Any, Concatenate, Final, ParamSpec, TypeVar

from otel_quant.cost import CostError, InputSpec
from otel_quant.cost.graph import CARRIES, QDQ, TypedNode, dtypes, printable
from otel_quant.inference.accuracy_findings import FINDINGS
from otel_quant.inference.arrays import saved_arrays
from otel_quant.inference.fix.fix_results import sidecar
from otel_quant.inference.model_process import ModelError, ModelProcess
from otel_quant.inference.onnx_findings import QUARK, SATURATING, ExactSums, OnnxEvidence, ran_in
from otel_quant.inference.onnx_kernels import CPU, FileGraph, Part, RanGraph, placed, read_profile
from otel_quant.inference.onnx_session import EXACT_SUMS
from otel_quant.inference.outputs import PROBABILITIES
from otel_quant.inference.results import Accuracy, Ran, TensorError, alike_inputs, tensor_text
from otel_quant.inference.rounds import MeasuredModel, latency, take_turns
from otel_quant.inference.torch_profile import read_verbose
from otel_quant.inference.torch_session import VariantsError
from otel_quant.schema.units import duration_text, types_text

_MOST_SAVED: Final = 1 << 30
"""Bytes of weights from which the graph that onnxruntime makes is not written to disk."""

_MOST_COMPARED: Final = 1 << 28
"""Bytes of two models together whose layers are compared unasked: they run once more, without optimizations."""

_EVENTS: Final = 40_000
"""Events of kernels in a profile, at most."""

_MOST_PROFILED: Final = 40
_FEWEST_PROFILED: Final = 2
"""Runs of the profiled session after its first one."""

_OWN_KERNELS: Final = frozenset(f"{it}ExecutionProvider" for it in ("CPU", "CUDA", "ROCM", "Azure"))
"""Providers that compile nothing. The graph of others cannot be written, and to try it would have
them compile the model once more."""
_USUAL: Final = frozenset({(), ("", "uint8", "int8"), ("ConvInteger", "uint8", "uint8")})
"""Products that are not tried: unknown ones, and the fastest ones on x86-64."""
_MUCH_CLOSER: Final = 3.0
"""dB by which sums of 32 bits have to be closer to the float model: half of the noise."""
_FOR_SUMS: Final = 1.0
"""Seconds in which a model is timed with and without these."""
_OPENVINO: Final = "OpenVINOExecutionProvider"
_MOST_PROBABLE: Final = 1.01
"""The highest value of a probability, where steps of a quantization are coarse."""


@dataclass(frozen=True, slots=True)
class Options:
    """What the user asks for; arguments of the commands have the same names."""

    # Execution providers in order of preference, each with its options
    providers: tuple[tuple[str, Mapping[str, str]], ...] = ()
    threads: int | None = None  # Threads within a kernel; None for the runtime's own choice
    # Level of graph optimization: ``disable``, ``basic``, ``extended`` or ``all``
    level: str = "all"
    disabled: Sequence[str] = ()  # Optimizers that are left out
    # Entries of the session's configuration
    entries: Mapping[str, str] = field(default_factory=dict)
    custom_ops: Sequence[str] = ()  # Libraries of custom operators
    runs: int | None = None  # Timed runs of each model; None for as many as fit into ``seconds``
    seconds: float = 3.0  # Time for the timed runs of each model
    warmup: int = 3  # Runs of each model that are not timed
    samples: int = 1  # Inputs of which outputs are compared, where they are random
    session: bool = False  # Whether a file beside a model has options of its session
    layers: bool = False  # Whether to compare each tensor with the first model's
    baseline: str | None = None  # Variant that the others are compared with; None for the first
    # Processes of each variant, one after the other; None for as many as its making allows
    processes: int | None = None
    one_by_one: bool = False  # Whether a variant's process ends before the next one's begins
    # Seconds for anything that a process is asked; None for as long as it takes
    timeout: float | None = None
    # What ONNX files are fed: shapes of inputs, perhaps with values; lengths of dimensions; a file of
    # numpy with the inputs
    inputs: Mapping[str, InputSpec] = field(default_factory=dict)
    dims: Mapping[str, int] = field(default_factory=dict)
    data: str | None = None
    # Values between which random inputs lie: those that have codes where a model quantizes them
    ranges: Mapping[str, tuple[float, float]] = field(default_factory=dict)
    # Returns joules that the machine has used, by ``gpu`` and ``cpu``, as far as they are counted
    joules: Callable[[], Mapping[str, float]] = dict

    @property
    def runs_text(self) -> str:
        """How many runs of each model are timed, in words."""
        return f"{self.seconds:g} s each" if self.runs is None else str(self.runs)


_Model = TypeVar("_Model", bound="InProcess")
_Given = ParamSpec("_Given")


def attempted(
    method: Callable[Concatenate[_Model, _Given], None],
) -> Callable[Concatenate[_Model, _Given], None]:
    """Has a method do nothing of a model that has failed, and end where the model fails."""

    @wraps(method)
    def attempt(model: _Model, /, *given: _Given.args, **named: _Given.kwargs) -> None:
        if not model.problem:
            with suppress(ModelError):
                method(model, *given, **named)

    return attempt


class InProcess(MeasuredModel):
    """A model in processes of its own, one after another."""

    kind: str  # What runs it

    def __init__(self, name: str, process: ModelProcess) -> None:
        super().__init__(name)
        self.process = process
        # Its inputs: type and shape, with a checksum where the script of a variant gives them
        self.fed: Mapping[str, str] = {}
        self.providers: Sequence[str] = ()
        self.facts: Mapping[str, str] = {}
        self.assumed: tuple[str, ...] = ()  # lengths that nothing gives, as options
        self.loading = self.compile = 0.0  # seconds
        self.quantize: float | None = None  # seconds
        self.marks: list[Mapping[str, int | None]] = []  # bytes, until it is timed and meanwhile
        self.disk: int | None = None  # bytes
        self.memory: Mapping[str, int | None] = {}  # bytes; what else is known, as in MemoryUse
        self.detail: Mapping[str, Any] = {}  # what a profiler has seen, as in ModelResult
        self.is_quantized: bool | None = None
        self.no_outputs = ""  # why there are none
        self._asks_outputs_of: Mapping[str, int] = {}  # samples
        self.is_finished = False  # whether all is known but the times of more rounds
        # A round of its own, until it has those beside others
        self._early = self.processes, self.cpu

    @abstractmethod
    def prepare(self) -> None:
        """Makes the model and calls it for the first times."""

    @abstractmethod
    def _make(self) -> Any:
        """Makes the model in its process and calls it there."""

    @attempted
    def finish(self) -> None:
        """Takes what is to be known after the rounds; if a call fails, the times stand all the same."""
        self.no_outputs = ""
        self.take_marks(resets=False)
        path = self.process.folder / "outputs.npz"
        try:
            self._weigh()
            names = self.process.ask("outputs", path=str(path), **self._asks_outputs_of)
            self.outputs = saved_arrays(names, path)
        except ModelError as error:
            self.no_outputs = str(error)

    def _weigh(self) -> None:
        """Asks for the size of the weights, if only the process knows it."""

    def time_early(self, seconds: float) -> None:
        """Takes a round as soon as it is made: the command may be stopped."""
        self.time(seconds, None)
        self.mark_again()
        self.no_outputs = "the command was stopped before it was asked for any"
        self.is_finished = not self.problem
        self._early, self.processes, self.cpu = (self.processes, self.cpu), [[]], [[]]

    @attempted
    def mark_again(self) -> None:
        """Takes the mark of memory after a round."""
        self.take_marks(resets=False)

    def stop(self) -> None:
        """Leaves out processes without a round, and a variant that is not finished."""
        if not any(self.processes):
            self.processes, self.cpu = self._early
        self.processes, self.cpu = list(filter(None, self.processes)), list(filter(None, self.cpu))
        if not self.is_finished:
            self.problem = self.problem or "stopped before it was measured"

    def accuracy(self, base: MeasuredModel) -> Accuracy:
        """Compares the outputs with the base's, if both have been fed the same."""
        assert isinstance(base, InProcess)
        if alike_inputs(self.fed) != alike_inputs(base.fed):
            return Accuracy(problem=f"it has other inputs than {base.name}")
        for each in (base, self):
            if each.no_outputs:
                return Accuracy(problem=f"there are no outputs of {each.name}: {each.no_outputs}")
        return self._with_layers(super().accuracy(base), base)

    def _with_layers(self, found: Accuracy, base: InProcess) -> Accuracy:
        """Adds how far each tensor is off from the base's, where that is asked for."""
        return found

    @attempted
    def repeat(self) -> None:
        """Makes and calls it in a new process, since a process may be slow for as long as it lives."""
        self.processes.append([])
        self.cpu.append([])
        self.spent = 0.0
        self.process.restart()
        self._make()

    def ask(self, doing: str, request: str, **arguments: Any) -> Any:
        """Asks the process; where that fails, the model has failed."""
        try:
            return self.process.ask(request, **arguments)
        except ModelError as error:
            number = len(self.processes)
            which = f" in process {number}" if number > 1 else ""
            self.problem = f"{doing}{which} failed: {error}"
            raise

    def take_marks(self, resets: bool) -> None:
        """Takes the marks of the highest memory."""
        doing = "its first call" if resets else "timing it"
        self.marks.append(self.ask(doing, "marks", resets=resets))


class TorchVariant(InProcess):
    """A variant of a script that torch runs."""

    kind = "torch"
    runs_are_known = False

    def __init__(self, name: str, reference: str, options: Options) -> None:
        super().__init__(name, ModelProcess("torch", huge_pages=True, timeout=options.timeout))
        self.has_script = False  # whether the process has loaded the script already
        self._reference, self._threads = reference, options.threads

    @attempted
    def prepare(self) -> None:
        """Makes the variant and calls it for the first times."""
        made, self.first = self._make()
        self.take_marks(resets=True)
        self.quantize, self.facts = made["took"], made["facts"]
        self.providers = [made["provider"]]
        self.is_on_one_thread = (made["threads"], made["provider"]) == (1, "cpu")

    def _make(self) -> Any:
        if not self.has_script:
            loaded = self.ask("loading the script", "load", reference=self._reference)
            self.fed = self.fed or loaded["fed"]  # of the first process, whose outputs are compared
        self.has_script = False  # another process has not loaded it
        made = self.ask("making it", "make", name=self.name, threads=self._threads)
        return made, self.ask("its first call", "first")

    @attempted
    def time(self, seconds: float, runs: int | None) -> None:
        """Adds a round of so many seconds by torch's ``Timer``; of one call at least."""
        self.take_round(self.ask("timing it", "time", seconds=seconds))

    def _weigh(self) -> None:
        weights = self.process.ask("weights")
        self.disk, self.is_quantized = weights["bytes"], weights["is_quantized"]


class Script:
    """A script of variants, loaded in a process that becomes its first torch variant's."""

    def __init__(self, reference: str, options: Options) -> None:
        self.reference = reference
        self.process = ModelProcess("torch", huge_pages=True, timeout=options.timeout)
        self._options = options
        self._fed: Mapping[str, str] = {}
        self._loading = 0.0  # seconds

    def load(self) -> Sequence[InProcess]:
        """Loads the script; returns its variants, which are torch's or ONNX files."""
        began = time.perf_counter()
        try:
            loaded = self.process.ask("load", reference=self.reference)
        except ModelError as error:
            text, path = str(error), self.reference.rpartition(":")[0] or self.reference
            why = text if text.startswith(path) else f"{self.reference}: {text}"
            raise VariantsError(why) from error
        self._fed, self._loading = loaded["fed"], time.perf_counter() - began
        return [
            TorchVariant(name, self.reference, self._options)
            if path is None
            else OnnxModel(name, path, self._options, is_profiled=False)
            for name, path in loaded["onnx"].items()
        ]

    def hand_over(self, variants: Sequence[InProcess]) -> None:
        """Leaves its inputs for ONNX files, and its process to the first variant that needs the script."""
        for file in variants:
            if isinstance(file, OnnxModel):
                file.take_inputs(self.process, self._fed)
        for first in (each for each in variants if isinstance(each, TorchVariant)):
            first.process, first.has_script = self.process, True
            first.fed, first.loading = self._fed, self._loading
            return
        self.process.close()


class OnnxModel(InProcess):
    """An ONNX file: its session is timed, and if wanted another one is profiled beside it."""

    kind = "onnx"

    def __init__(self, name: str, path: str, options: Options, *, is_profiled: bool) -> None:
        process = ModelProcess("onnx", huge_pages=not is_profiled, timeout=options.timeout)
        super().__init__(name, process)
        self.path, self.options, self.is_profiled = path, options, is_profiled
        self._asks_outputs_of = {"samples": options.samples}
        self.file: FileGraph
        self.base: OnnxModel | None = None  # What its layers are compared with
        self.layers: tuple[TensorError, ...] = ()  # The worst first
        self._no_layers = ""  # why there are none
        # Outputs that are probabilities -> the operator that makes them, and the dB in front of it
        self._in_front: Mapping[str, tuple[str, float | None]] = {}
        self.sums: ExactSums | None = None  # where its own saturate, and that matters
        self._grown: int | None = None  # bytes, by the session
        self._feed: Mapping[str, Any] = {}  # shapes, values, file of the inputs
        self.ran_in: Mapping[TypedNode, str] = {}  # Types of contractions, as far as they were seen
        self._loads: Mapping[str, Any] = {}  # how its process is asked to load it
        self._of_script = ""  # file of the inputs that a script has left

    @attempted
    def take_inputs(self, script: ModelProcess, fed: Mapping[str, str]) -> None:
        """Has the process of a script leave its inputs for the file."""
        path = self._of_script = str(self.process.folder / "inputs.npz")
        with self._loading():
            names = list(FileGraph(self.path, {}, self.options.dims).bound.values)
            if problem := script.ask("save_inputs", path=path, names=names):
                raise ModelError(problem)
        self.options, self.fed = replace(self.options, data=path, ranges={}), fed

    @contextmanager
    def _loading(self) -> Iterator[None]:
        """Has the model fail where it cannot be read or fed."""
        try:
            yield
        except (CostError, ModelError) as error:
            why = printable(str(error).removeprefix(f"{self.path}: "), 600)
            self.problem = f"loading it failed: {why}"
            self.process.close()
            raise ModelError(why) from error

    @attempted
    def prepare(self) -> None:
        """Reads the file, makes the session and runs it for the first times."""
        with self._loading():
            self._read()
        try:
            loaded = self._make()
            self.take_marks(resets=True)
        finally:
            if self._of_script:  # a temporary file, of which nobody knows
                self.problem = self.problem.replace(self._of_script, "the script's inputs")
        self.first, self.compile, self._grown = [loaded["first"]], loaded["made"], loaded["grown"]
        self.fed = self.fed or {
            printable(name, 120): tensor_text(dtype, shape)
            for name, (dtype, *shape) in loaded["inputs"].items()
        }
        self.providers = loaded["providers"]
        self.is_on_one_thread = self.options.threads == 1 and set(self.providers) == {CPU}
        self.facts = {
            "onnxruntime": loaded["version"],
            "threads of onnxruntime": str(self.options.threads or "its choice"),
            "providers": ", ".join(self.providers),
        }
        if ranges := self.options.ranges.items():
            texts = (f"{name} from {low:.3g} to {high:.3g}" for name, (low, high) in ranges)
            shown = f"{', '.join(texts)}; other values have no codes in the quantized model"
            self.facts |= {"random inputs": shown}

    def _read(self) -> None:
        """Reads the file, and finds out what it is fed."""
        data, inputs = self.options.data, self.options.inputs
        self.file = _fed(self.path, self.options)
        shapes = {name: value.shape for name, value in self.file.bound.values.items()}
        for name, shape in shapes.items():
            if shape is None or None in shape:
                why, like = f"the shape of input {name!r} is not known", f"{name}=1x3x8x8"
                raise CostError(self.path, why, expected=f"--input {like} or the like")
        values = {name: each.data for name, each in inputs.items() if each.data is not None}
        self._feed = {
            "shapes": shapes, "values": values, "data": data, "ranges": self.options.ranges,
        }  # fmt: skip
        if data is None:
            self.assumed = tuple(each.option for each in self.file.bound.assumed)
        self.is_quantized = self.file.is_quantized
        self.disk = self.file.file_bytes

    def _make(self) -> Any:
        names = "providers", "threads", "level", "disabled", "entries", "custom_ops", "warmup"
        options = {name: getattr(self.options, name) for name in names}
        beside = sidecar(self.path)
        options["session"] = str(beside) if self.options.session and beside.exists() else ""
        self.is_told = bool(options["session"] or options["disabled"])
        if not any(op.kind.startswith(QUARK) for op in self.file.ops):
            # Quark's library takes 700 MB, which others need not have.
            options["custom_ops"] = [each for each in options["custom_ops"] if each != "quark"]
        self._loads = {"path": self.path, "options": options, "feed": self._feed}
        loaded = self.ask("loading it", "load", **self._loads)
        self.warm = loaded["warm"]
        return loaded

    @attempted
    def time(self, seconds: float, runs: int | None) -> None:
        """Adds a round: of so many runs, or of as many as fit into so many seconds."""
        times = runs or self.runs_in(seconds)
        self.take_round(self.ask("timing it", "run", times=times))

    def finish(self) -> None:
        """Takes the mark of memory and the outputs, and profiles another session if that is wanted."""
        super().finish()
        if self.is_profiled:
            self.problem = self.problem or self.no_outputs
            self._profile()

    @attempted
    def _profile(self) -> None:
        fitting = int(self.options.seconds / self.warm)
        asked = [name for name, _ in self.options.providers]
        compiles = not _OWN_KERNELS.issuperset(asked)
        saves = self.file.weight_bytes <= _MOST_SAVED and not compiles
        most = min(_MOST_PROFILED, _EVENTS // max(1, len(self.file.ops)), fitting)
        runs = max(_FEWEST_PROFILED, most)
        names = any(not op.node.name for op in self.file.ops if op.kind != "Constant")
        found = self.ask("profiling it", "profile", runs=runs, saves_graph=saves, names=names)
        profile, graph = read_profile(Path(found["file"])), RanGraph(found["graph"])
        if not profile.runs:
            self.problem = "onnxruntime left no profile of its runs"
            self.process.close()
            return
        used, weights = profile.arena_used, graph.weight_bytes
        self.memory = {"grown": self._grown, "arena_used": used, "weights_in_memory": weights}
        parts = [Part(*each) for each in found["assigned"]]
        kernels = placed(profile, self.file, graph, parts)
        slowest = sorted((each.ran for each in kernels), key=lambda each: -each.micros)
        ran = Ran(len(profile.runs), profile.run_micros, tuple(slowest))
        kinds = {each.ran.multiplies for each in kernels if each.ran.provider == CPU}
        is_small = self.file.file_bytes <= _MOST_SAVED  # it is loaded once more
        if SATURATING in kinds and is_small and self.base and not self.base.is_quantized:
            sums = self.exact_sums()
            self.sums = sums if sums and sums.latency else None
        seen = {**self._look_at_layers(), "sums": self.sums}
        pairs = sorted(kinds - _USUAL)
        tried = self.ask("trying products", "products", kinds=pairs) if pairs else ()
        slower = dict(zip(pairs, tried, strict=True))
        below = self._below() if any(each.ran.provider == _OPENVINO for each in kernels) else ()
        if compiles:
            first, again = map(duration_text, (self.compile, found["made"]))
            self.facts = {**self.facts, "session": f"made in {first}, and again in {again}"}
        what = self.file, kernels, asked, self.options.level, parts, self.layers
        evidence = OnnxEvidence(*what, below=below, slower=slower, is_told=self.is_told, **seen)
        findings = FINDINGS.of(evidence, ran.kernel_micros)
        assigned = dict(Counter(part.provider for part in parts for _ in part.nodes)) or None
        self.ran_in = ran_in(kernels, self.file)
        self.facts = {**self.facts, "types": self._types()}
        self.detail = {"assigned": assigned, "ran": ran, "findings": findings, "backend": below}

    def _below(self) -> Sequence[Any]:
        """Returns what oneDNN reports to run within OpenVINO: to a process of its own, which that slows down."""
        process = ModelProcess("onnx", huge_pages=False, timeout=self.options.timeout)
        process.variables["ONEDNN_VERBOSE"] = "1"
        with closing(process), suppress(ModelError):  # what was measured before stands
            process.ask("load", **self._loads)
            return read_verbose(process.ask("printed"))[0]
        return ()

    def _types(self) -> str:
        """Returns what weights are stored in, contractions ask for and ran in, by their MACs."""
        asked, found = Counter[str](), Counter[str]()
        for op, each in self.file.contractions.items():
            asked[each.asked] += each.macs
            found[self.ran_in.get(op, "what was not seen").removeprefix("u")] += each.macs
        if not asked.total():
            return ""
        macs, both = asked.total(), (asked, found)
        asks, runs = (types_text({it: n / macs for it, n in each.most_common()}) for each in both)
        return f"weights stored in {types_text(self.file.stored)}; contractions ask for {asks}, ran in {runs}"

    def _compared_with(self) -> OnnxModel | None:
        """Returns another model that has run and was fed the same, with which it is compared."""
        base = self.base
        if base is None or base is self or base.problem:
            return None
        return base if alike_inputs(self.fed) == alike_inputs(base.fed) else None

    def exact_sums(self) -> ExactSums | None:
        """Runs it with sums of 32 bits too, where this processor's saturate; timed only where that is much closer to the base.

        Where onnxruntime refuses that, it runs a copy in which each node has weights of its own.
        """
        from otel_quant.inference.fix.rewriting import write_own_weights

        base, own = self._compared_with(), self.process.folder / "own_weights.onnx"
        if base is None or not self.ask("trying a product", "saturates"):
            return None
        options = replace(self.options, entries=EXACT_SUMS)
        with ExitStack() as kept:
            for path in (self.path, str(own)):
                exact = OnnxModel(self.name, path, options, is_profiled=False)
                kept.callback(exact.process.close)
                exact.prepare()
                if not exact.problem or not write_own_weights(self.path, own):
                    break
            exact.finish()
            before, after = (it.accuracy(base).lowest_sqnr for it in (self, exact))
            if before is None or after is None:
                return None
            found = ExactSums(before, after, exact.path != self.path)
            if after < before + _MUCH_CLOSER:
                return found
            usual = copy(self)  # whose rounds beside the base stay as they are
            usual.processes, usual.cpu, usual.spent = [[]], [[]], 0.0
            take_turns([usual, exact], min(_FOR_SUMS, self.options.seconds), self.options.runs)
            return found._replace(latency=None if exact.problem else latency(exact, usual))

    def _look_at_layers(self) -> Mapping[str, Any]:
        """Compares its layers with the base's; returns what else is seen of it: see :class:`OnnxEvidence`.

        Of large models, or of two float ones, only where that is asked for.
        """
        base, floats = self._compared_with(), (dtypes.FLOAT, dtypes.FLOAT16)
        if base is None:
            return {}
        tensors = {  # what an If hands on has the name within it
            name: it.dtype
            for op in self.file.main
            for name, it in zip(op.node.outputs, op.outputs, strict=False)
            if name and it.dtype in floats
        }
        is_other = self.is_quantized or dtypes.FLOAT16 in tensors.values()
        size = self.file.file_bytes + base.file.file_bytes
        if not self.options.layers and (base.is_quantized or not is_other or size > _MOST_COMPARED):
            return {}
        try:
            found = self.process.ask("layers", first=base.path, floats=list(tensors))
        except ModelError as error:  # what was measured before stands
            self._no_layers = str(error)
            return {}
        layers = [TensorError(**each) for each in found["layers"]]
        self.layers = tuple(sorted(layers, key=attrgetter("worst")))
        self._in_front = {} if self.sums else found["in_front"]  # which is of exact sums
        return {"not_finite": found["not_finite"], "outputs": found["outputs"]}

    def _with_layers(self, found: Accuracy, base: InProcess) -> Accuracy:
        """Adds how far each layer is off from the base's, and what probabilities are made of.

        They are not compared with what they are made of.
        """
        is_by_place = base.outputs.keys().isdisjoint(self.outputs)
        likes = zip(self.outputs, base.outputs if is_by_place else self.outputs, strict=False)
        for name, like in likes if isinstance(base, OnnxModel) else ():
            own, other = _has_probabilities(self, name), _has_probabilities(base, like)
            values: Any = base.outputs[like] if own else self.outputs[name]
            # A HardSigmoid, as Quark's XINT8 writes it, has values like a Sigmoid's
            if own != other and ((values < 0) | (values > _MOST_PROBABLE)).any():
                why = f"a Softmax or Sigmoid makes output {name!r} of one of the two alone"
                others = tuple(it for it in found.outputs if it.name != name)
                found = replace(found, outputs=others, problem=why)
        outputs = [
            replace(it, behind=operator, sqnr_in_front=decibels)
            for it in found.outputs
            for operator, decibels in [self._in_front.get(it.name, (None, None))]
        ]
        of_layers = None if self.sums is None else self.sums.exact
        found = replace(found, outputs=tuple(outputs), sqnr_of_layers=of_layers)
        if self.options.layers and not self.layers:
            why = self._no_layers or "no tensor of the model is quantized and dequantized again"
            return replace(found, problem=f"--layers: {why}")
        return replace(found, layers=self.layers)


def _has_probabilities(model: Any, output: str) -> bool:
    op = model.file.past(model.file.maker_of(output), {*QDQ, *CARRIES})
    return op is not None and op.kind in PROBABILITIES


def _fed(path: str, options: Options) -> FileGraph:
    return FileGraph(path, {**_shapes_in(options.data), **options.inputs}, options.dims)


def with_ranges(options: Options, paths: Iterable[str]) -> Options:
    """Has random inputs lie within what calibration has seen, by the codes of the models that quantize them."""
    if options.data is not None:
        return options
    given = {name for name, each in options.inputs.items() if each.data is not None}
    ranges: dict[str, tuple[float, float]] = {}
    for path in paths:
        with suppress(CostError, ModelError):  # of which the model itself tells
            for name, low, high in _fed(path, options).input_ranges():
                known = ranges.get(name, (low, high))
                ranges[name] = max(low, known[0]), min(high, known[1])
    narrow = {
        name: (low, high)
        for name, (low, high) in ranges.items()
        if name not in given and low < high and (low > -_SPREAD or high < _SPREAD)
    }
    return replace(options, ranges=narrow)


_SPREAD: Final = 2.0
"""Standard deviations to both sides that have to have codes for inputs of a normal distribution, else they are uniform."""


def fed_by(path: str, options: Options) -> Mapping[str, str]:
    """Returns what a file is fed: the shapes of its inputs, and their types but for the width of floats."""
    values = _fed(path, options).bound.values.items()
    texts = {name: tensor_text(dtypes.name_of(it.dtype), it.shape or ()) for name, it in values}
    return alike_inputs(texts)


def _shapes_in(path: str | None) -> dict[str, InputSpec]:
    """Returns the shapes of a file's arrays; what does not fit a model is reported when it is fed."""
    import numpy as np

    if path is None:
        return {}
    try:
        with np.load(path, allow_pickle=False) as file:
            return {name: InputSpec(file[name].shape, if_fits=True) for name in file.files}
    except (OSError, ValueError, AttributeError) as error:
        reason = getattr(error, "strerror", None) or "is not a file of numpy.savez"
        raise CostError(path, reason, expected="arrays by the names of inputs") from error
