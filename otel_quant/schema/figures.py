"""Every figure that is measured or computed, spelled out once.

A :class:`Figure` defines how it is read from a probe's record, how it is summed over steps and
processes, what it is a measure of, when a difference of it matters, and under which names it is
shown and sent. Made from it: attributes of spans and log records, metrics, columns of Quark's file,
series of curves, columns of tables, what `otel-quant compare` and `runs` know, the documentation.
To add a figure, add it to the table of its resource; to rename one, write the former name into
`former`, and old recordings are read under the new one.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from operator import attrgetter
from typing import Any, Final, Literal, TypeAlias

from otel_quant.schema.dataclass import dataclass, field, replace

Number: TypeAlias = int | float

Part: TypeAlias = Literal["start", "end", "delta", "peak"]
"""Part of a figure on a step: its value at the step's start and at its end, the difference, and the
highest value in between."""

Instrument: TypeAlias = Literal[
    "histogram", "counter", "gauge", "observable_gauge", "observable_counter"
]
"""No up-down counter, as the conventions have for ``hw.gpu.memory.*``: it has a time at which it began, and
Prometheus with ``created-timestamp-zero-ingestion`` writes a value of 0 there, which nobody measured."""

Kind: TypeAlias = Literal["time", "memory", "gpu", "disk", "cost", "accuracy", "activity"]
"""What a figure is a measure of. It decides which differences of machines change the figure."""

Over: TypeAlias = Literal["sum", "highest"]
"""How several values become one: they are added up, or the highest counts."""

LEVEL: tuple[Part, ...] = ("start", "end", "delta", "peak")
"""The parts of a figure that rises and falls."""

TOTAL: tuple[Part, ...] = ("delta",)
"""The part of a figure that only rises: the amount that the step has added."""

PREFIX: Final = "quant."  # Beginning of every name of ours

MATTERS: Final[Mapping[str, float]] = {"s": 0.25, "By": 8 << 20, "J": 25.0}
"""By unit, the smallest difference that matters: identical runs differ by as much."""


@dataclass(frozen=True, slots=True)
class Metric:
    """One metric."""

    name: str
    instrument: Instrument
    unit: str  # UCUM unit
    brief: str  # Description
    # Keys of the points' attributes. A resource leaves them out: they follow from the labels of the
    # series that show its figures.
    attributes: tuple[str, ...] = ()
    # Boundaries of a histogram's buckets, in ``unit``. Each is a series of every kind of step of every run: none where
    # the sum and the count say it all.
    buckets: tuple[float, ...] = ()
    former: tuple[str, ...] = ()  # Names that it had before; dashboards show series with those too


@dataclass(frozen=True, slots=True)
class Series:
    """A metric that shows a figure. Several figures may share one if their labels differ."""

    metric: Metric
    part: Part = "delta"  # The part that a step's metric records
    labels: Mapping[str, str] = field(default_factory=dict)  # Attributes of the points


@dataclass(frozen=True, slots=True)
class YamlColumn:
    """The key of a figure in the local file."""

    key: str  # At each checkpoint, for example ``network_received_mb``
    definition: str = ""  # What it is and in which unit, for the comment that ends the file
    scale: int = 1 << 20  # Divisor of the figure: bytes are written in MiB
    # Whether Quark's own profile has the key. If so, the class of that name in
    # :mod:`otel_quant.export.quark_yaml.metrics` writes it, in strict mode too. Strict mode leaves
    # all other columns out.
    in_quark: bool = False


@dataclass(frozen=True, slots=True)
class Figure:
    """One number of a resource.

    Raises:
        ValueError: A metric of steps shows a part that the figure does not have.
    """

    # Stem of its attributes on spans: ``memory`` gives ``quant.memory.start``, ``.end``, ``.delta``,
    # and ``.peak``. A figure with one part only, or of which the difference is what counts, has an
    # attribute of its own name: ``quant.disk.read``.
    name: str
    unit: str  # UCUM unit
    brief: str  # Description without a full stop: "RSS of the process tree"
    of: Callable[[Any], Number | None]  # Takes it from the probe's record; None if that lacks it
    parts: tuple[Part, ...]  # The parts that spans have; empty for none
    example: str
    # Attribute of checkpoint records, below ``quant.checkpoint.``; empty for none. For a figure that
    # only rises, it is the amount since the run began.
    checkpoint: str = ""
    steps: tuple[Series, ...] = ()  # Metrics that are recorded when a step ends
    live: Series | None = None  # Metric that shows it during a run
    column: YamlColumn | None = None  # Of the local file
    kind: Kind = "activity"
    # Above its columns in tables; empty for a figure that only its name brings up
    heading: str = ""
    curve: str = ""  # Its series in a curve; of a device figure, what follows ``gpu.<index>.``
    over_processes: Over | None = None  # None: totals are added up, of levels the highest counts
    is_smaller_better: bool = True
    matters: float | None = None  # Smallest difference that matters; None for the unit's default
    former: tuple[str, ...] = ()  # Names that it had in older recordings
    is_total: bool = field(init=False)  # It only rises: only its differences have a meaning

    def __post_init__(self) -> None:
        object.__setattr__(self, "is_total", self.parts == TOTAL)

    def value(self, record: Any) -> Number | None:
        """Returns the figure of a probe's record; None if it was not measured."""
        return None if record is None else self.of(record)

    def since(self, first: Any, record: Any) -> Number | None:
        """Returns the figure; if it only rises, the amount since the run's first record."""
        value = None if record is None else self.of(record)
        if value is None or not self.is_total:
            return value
        before = None if first is None else self.of(first)
        return None if before is None else value - before

    @property
    def series(self) -> tuple[Series, ...]:
        """All metrics that show it."""
        return (*self.steps, *filter(None, (self.live,)))

    @property
    def live_metric(self) -> str:
        """The name of the metric that shows it during a run; empty for none."""
        return "" if self.live is None else self.live.metric.name

    def attribute(self, part: Part = "delta", stem: str = PREFIX) -> str:
        """Returns the name of the attribute that has a part; `stem` differs for devices."""
        if self.parts in (TOTAL, ("end",)):
            return stem + self.name
        return f"{stem}{self.name}.{part}"


@dataclass(frozen=True, slots=True)
class Resource:
    """What one probe reads. `capture/probes/readers.py` has the probe of each, by its name."""

    name: str  # Its name in readings, for example ``disk``
    figures: tuple[Figure, ...]
    # The figures of each device, if the probe returns a tuple of devices with an ``index``, an ``id``
    # and a ``name``. They are on no span, because a host may have many devices and a span keeps a
    # limited number of attributes. They are on metrics by ``hw.id``, and on one log record for each
    # device and step: ``memory`` gives ``quant.gpu.device.memory.start``.
    device_figures: tuple[Figure, ...] = ()
    is_sampled: bool = False  # It is also read between checkpoints, for peaks
    # Its probe reads ``/proc``. One thread at a time reads such probes, so that the disk probe can
    # subtract the bytes that we have read there.
    reads_proc: bool = True

    @property
    def device_stem(self) -> str:
        """The beginning of the names of attributes of one device."""
        return f"{PREFIX}{self.name}.device."

    def devices(self, first: Any, last: Any) -> Iterator[tuple[Any, Any]]:
        """Yields each device's records at two readings, by index; None where one lacks it."""
        before = {device.index: device for device in first}
        after = {device.index: device for device in last}
        for index in sorted(before.keys() | after.keys()):
            yield before.get(index), after.get(index)


# fmt: off
# --- process memory -----------------------------------------------------------------------

STEP_MEMORY_PEAK: Final = Metric("quant.step.memory.peak", "histogram", "By", "Highest RSS of the process tree during a step.")
STEP_MEMORY_GROWTH: Final = Metric("quant.step.memory.growth", "gauge", "By", "RSS of the process tree at a step's end minus that at its start; for a step that ran more than once, the last time.")
TREE_MEMORY: Final = Figure(
    "memory", "By", "RSS of the process tree", attrgetter("tree_rss"), LEVEL, "806092800", checkpoint="memory",
    steps=(Series(STEP_MEMORY_PEAK, "peak"), Series(STEP_MEMORY_GROWTH)),
    live=Series(Metric("quant.run.memory.usage", "observable_gauge", "By", "RSS of the process tree now.")),
    column=YamlColumn("cpu_memory_mb", in_quark=True), kind="memory", heading="MEM", curve="memory",
)
_PROCESS_MEMORY: Final = Figure("process_memory", "By", "RSS of the main process", attrgetter("rss"), (), "806092800", checkpoint="process_memory", kind="memory")

MEMORY: Final = Resource("memory", (TREE_MEMORY, _PROCESS_MEMORY), is_sampled=True)

# --- GPUs ---------------------------------------------------------------------------------
# fmt: on


def _on_all(name: str) -> Callable[[Collection[Any]], Any]:
    """Returns what adds up an attribute of all GPUs: None while one of them cannot be read, or has it not."""
    of = attrgetter(name)

    def on_all(gpus: Collection[Any]) -> Any:
        total = 0
        for gpu in gpus:
            value = of(gpu)
            if value is None or not gpu.is_whole:
                return None
            total += value
        return total if gpus else None

    return on_all


total_used: Final = _on_all("used")
"""Bytes in use on all GPUs."""

tree_used: Final = _on_all("process_used")
"""Bytes that the process tree has of all GPUs."""


def _of_torch(name: str) -> Callable[[Any], Number | None]:
    of = attrgetter(name)
    return lambda gpu: None if gpu.torch is None else of(gpu.torch)


def _of_device(metric: str, brief: str, figure: Figure) -> Figure:
    """Returns a figure of each GPU with its metric of runs."""
    # Other devices have some of the conventions' metrics too.
    labels = {} if ".gpu." in metric else {"hw.type": "gpu"}
    of_gpu = metric.removeprefix("hw.").removeprefix("gpu.")
    before = (f"quant.run.gpu.{of_gpu}",) if metric.startswith("hw.") else ()
    live = Series(
        Metric(metric, "observable_gauge", figure.unit, brief, former=before), labels=labels
    )
    return replace(figure, live=live, kind="gpu" if figure.unit == "By" else "activity")


def _activity(
    name: str, metric: str, unit: str, brief: str, example: str, curve: str = ""
) -> Figure:
    """Returns a figure of what a GPU does: a metric, and the peak on records of a device."""
    figure = Figure(
        name, unit, brief, lambda gpu: getattr(gpu.activity, name, None), ("peak",), example,
        curve=curve,
    )  # fmt: skip
    return _of_device(metric, f"{brief}.", figure)


# fmt: off
ALL_GPUS_MEMORY: Final = Figure(
    "gpu.memory", "By", "Memory in use on all visible GPUs, by all processes; absent while one of them cannot be read",
    total_used, LEVEL, "2147483648", checkpoint="gpu_memory", column=YamlColumn("gpu_memory_mb", in_quark=True), kind="gpu", heading="GPU (ALL)", curve="gpu.memory",
)
TREE_GPU_MEMORY: Final = Figure(
    "gpu.process_memory", "By", "Memory of the process tree on all visible GPUs; absent while it is not known of one of them",
    tree_used, LEVEL, "1610612736", checkpoint="gpu_process_memory", kind="gpu", heading="GPU", curve="gpu.process_memory",
)
STEP_GPU_MEMORY_PEAK: Final = Metric("quant.step.gpu.memory.peak", "gauge", "By", "Highest memory in use on a visible GPU during a step, by all processes; for a step that ran more than once, the last time.")
GPU_MEMORY: Final = _of_device(
    "hw.gpu.memory.usage", "Memory in use on a visible GPU, by all processes.",
    Figure("memory", "By", "Memory in use on the device, by all processes", attrgetter("used"), LEVEL, "2147483648", steps=(Series(STEP_GPU_MEMORY_PEAK, "peak"),), curve="used"),
)
GPU_MEMORY_LIMIT: Final = _of_device(
    "hw.gpu.memory.limit", "What programs can have of the memory of a visible GPU: its size less what the driver keeps for itself.",
    Figure("memory.limit", "By", "What programs can have of the device's memory: its size less what the driver keeps for itself", attrgetter("limit"), ("end",), "150754820096"),
)
PROCESS_GPU_MEMORY: Final = _of_device(
    "quant.run.gpu.process_memory.usage", "Memory of the process tree on a visible GPU, where the driver reports it.",
    Figure("process_memory", "By", "Memory of this process tree on the device, where the driver reports it", attrgetter("process_used"), LEVEL, "1610612736", curve="process_used"),
)
TORCH_ALLOCATED: Final = _of_device(
    "quant.run.gpu.torch_allocated.usage", "Bytes that torch's caching allocator has allocated on a visible GPU.",
    Figure("torch_allocated", "By", "Bytes that torch's caching allocator has allocated, if torch is in use", _of_torch("allocated"), LEVEL, "536870912"),
)
TORCH_RESERVED: Final = _of_device(
    "quant.run.gpu.torch_reserved.usage", "Bytes that torch's caching allocator has reserved on a visible GPU.",
    Figure("torch_reserved", "By", "Bytes that torch's caching allocator has reserved, if torch is in use", _of_torch("reserved"), LEVEL, "1073741824"),
)
TORCH_RETRIES: Final = Figure("torch_retries", "{retry}", "How often torch's caching allocator could reserve no more, freed its cache and tried again", _of_torch("retries"), TOTAL, "2")
GPU_UTILIZATION: Final = _activity("utilization", "hw.gpu.utilization", "1", "Share of the last moments in which the GPU computed", "0.97", "utilization")
GPU_POWER: Final = _activity("power", "hw.power", "W", "Electric power of the GPU", "612.4", "power")
GPU_TEMPERATURE: Final = _activity("temperature", "hw.temperature", "Cel", "Temperature of the GPU's chip", "71")
GPU_CLOCK: Final = _activity("clock", "quant.run.gpu.clock", "Hz", "Clock of the GPU's processors", "1755000000")
_MEMORY_CLOCK: Final = _activity("memory_clock", "quant.run.gpu.memory_clock", "Hz", "Clock of the GPU's memory", "2619000000")

STEP_ENERGY: Final = Metric("quant.step.energy", "counter", "J", "Energy that the GPUs, or the processors, used during steps, whatever program used it.")


def _energy(name: str, of: str, value: Callable[[Any], Number | None], example: str) -> Figure:
    """Returns the energy that the machine has used: each process reads the same."""
    brief = f"Energy that {of} used, whatever program used it; absent unless all of them count it"
    series = (Series(STEP_ENERGY, labels={"hw.type": name.removesuffix(".energy")}),)
    return Figure(name, "J", brief, value, TOTAL, example, steps=series, kind="time", heading=name.upper().replace(".", " "), curve=name, over_processes="highest")


GPU_ENERGY: Final = _energy("gpu.energy", "all visible GPUs", _on_all("energy"), "48211.7")
_DEVICE_ENERGY: Final = Figure("energy", "J", "Energy that the device used, whatever program used it", attrgetter("energy"), TOTAL, "48211.7", kind="time")

_OF_GPU: Final = (
    GPU_MEMORY, GPU_MEMORY_LIMIT, PROCESS_GPU_MEMORY, TORCH_ALLOCATED, TORCH_RESERVED, TORCH_RETRIES,
    GPU_UTILIZATION, GPU_POWER, GPU_TEMPERATURE, GPU_CLOCK, _MEMORY_CLOCK, _DEVICE_ENERGY,
)
GPU: Final = Resource("gpu", (TREE_GPU_MEMORY, ALL_GPUS_MEMORY, GPU_ENERGY), _OF_GPU, is_sampled=True, reads_proc=False)

# --- disk ---------------------------------------------------------------------------------

STEP_DISK_IO: Final = Metric("quant.step.disk.io", "counter", "By", "Bytes moved to or from storage during steps.")
_RUN_DISK_IO: Final = Metric("quant.run.disk.io", "observable_counter", "By", "Bytes that the process tree moved to or from storage since the run began.")
# fmt: on


def _transfer(way: str, verb: str, example: str, heading: str) -> Figure:
    """Returns the bytes that the process tree moved to or from storage."""
    labels = {"disk.io.direction": way}
    return Figure(
        f"disk.{way}", "By", f"Bytes that the process tree {verb} storage", attrgetter(way), TOTAL, example,
        checkpoint=f"disk_{way}",
        steps=(Series(STEP_DISK_IO, labels=labels),), live=Series(_RUN_DISK_IO, labels=labels),
        column=YamlColumn(f"disk_{way}_mb", in_quark=True),
        kind="disk", heading=heading, curve=f"disk.{way}",
    )  # fmt: skip


# fmt: off
DISK_READ: Final = _transfer("read", "fetched from", "102400000", "READ")
DISK_WRITE: Final = _transfer("write", "sent to", "26214400", "WRITTEN")

DISK: Final = Resource(
    "disk",
    (
        DISK_READ,
        DISK_WRITE,
        Figure("disk.read_chars", "By", "Bytes read through system calls, including those that were in the page cache", attrgetter("read_chars"), TOTAL, "204800000", kind="disk"),
        Figure("disk.write_chars", "By", "Bytes written through system calls", attrgetter("write_chars"), TOTAL, "26214400", kind="disk"),
    ),
)

# --- processors ---------------------------------------------------------------------------

STEP_CPU_TIME: Final = Metric("quant.step.cpu.time", "counter", "s", "CPU time spent during steps.")
CPU_USER: Final = Figure("cpu.user", "s", "CPU time of the process tree in user mode", attrgetter("user"), TOTAL, "12.51", steps=(Series(STEP_CPU_TIME, labels={"cpu.mode": "user"}),), kind="time")
CPU_SYSTEM: Final = Figure("cpu.system", "s", "CPU time of the process tree in the kernel", attrgetter("system"), TOTAL, "0.73", steps=(Series(STEP_CPU_TIME, labels={"cpu.mode": "system"}),), kind="time")
MAJOR_FAULTS: Final = Figure("page_faults.major", "{fault}", "Page faults that had to wait for storage", attrgetter("major_faults"), TOTAL, "3", kind="disk", matters=1000)
CPU_WAIT: Final = Figure("cpu.wait", "s", "Time for which the main thread was ready to run and waited for a processor that other threads or programs used", attrgetter("wait"), TOTAL, "0.31", kind="time", curve="cpu.wait", over_processes="highest")

CPU_ENERGY: Final = _energy("cpu.energy", "the processors' packages", attrgetter("energy"), "5120.4")

CPU: Final = Resource("cpu", (CPU_USER, CPU_SYSTEM, MAJOR_FAULTS, CPU_WAIT, CPU_ENERGY))

# --- cache directories --------------------------------------------------------------------

_STEP_CACHE_PEAK: Final = Metric("quant.step.cache.disk.peak", "histogram", "By", "Largest growth of a cache directory during a step.")
CACHE_GROWTH: Final = Figure(
    "cache.disk", "By", "Growth on disk of the cache directory that has grown most since it was made", lambda growth: growth, ("peak",), "306429952",
    steps=(Series(_STEP_CACHE_PEAK, "peak"),),
    live=Series(Metric("quant.run.cache.disk.usage", "observable_gauge", "By", "Growth on disk of the cache directory that has grown most since it was made, now.")),
    kind="disk", heading="CACHES", curve="cache",
)

CACHE: Final = Resource("cache", (CACHE_GROWTH,), is_sampled=True, reads_proc=False)
# fmt: on

RESOURCES: Final[tuple[Resource, ...]] = (MEMORY, GPU, DISK, CPU, CACHE)
"""In the order of the documentation."""

_CURVES: Final = tuple(
    (resource.name, figure) for resource in RESOURCES for figure in resource.figures if figure.curve
)
_CPU_TIME: Final = Figure(
    "cpu.time", "s", "CPU time of the process tree", lambda cpu: cpu.user + cpu.system,
    TOTAL, "13.24", curve="cpu",
)  # fmt: skip
_TOTALS: Final = (*(row for row in _CURVES if row[1].is_total), (CPU.name, _CPU_TIME))
_LEVELS: Final = tuple(row for row in _CURVES if not row[1].is_total)
_OF_GPUS: Final = tuple(figure for figure in GPU.device_figures if figure.curve)


def curve_totals(
    records: Mapping[str, Any], first: Mapping[str, Any] | None = None
) -> dict[str, Number]:
    """Returns the totals that a curve has of the records of probes, by the name of the series.

    They are the amounts since `first`; without it, since the measured program began.
    """
    found: dict[str, Number] = {}
    for name, figure in _TOTALS:
        record = records.get(name)
        value = figure.value(record) if first is None else figure.since(first.get(name), record)
        if value is not None:
            found[figure.curve] = round(value, 3)
    if _CPU_TIME.curve in found:  # the kernel's sums may fall by a tick
        found[_CPU_TIME.curve] = max(0.0, found[_CPU_TIME.curve])
    return found


def curve_levels(records: Mapping[str, Any]) -> dict[str, Number]:
    """Returns the levels that a curve has of the records of probes, each GPU's levels included."""
    found = {figure.curve: figure.value(records.get(name)) for name, figure in _LEVELS}
    found |= {
        f"gpu.{device.index}.{figure.curve}": figure.value(device)
        for device in records.get(GPU.name, ())
        for figure in _OF_GPUS
    }
    return {name: value for name, value in found.items() if value is not None}


# --- costed models ------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class ModelFigure:
    """One number, or list of texts, of a costed model: ``quant.model.<role>.<name>``."""

    name: str
    unit: str  # UCUM unit; empty for texts
    brief: str
    example: str
    type: Literal["int", "double", "string", "string[]"] = "int"
    heading: str = ""  # In tables; empty for a figure that only its name brings up
    compared: str = ""  # What `compare` calls it; empty if it does not compare it
    is_smaller_better: bool = True


_VIEW = (
    "in the fused view: operators as onnxruntime runs them, see [cost](cost.md#two-views-of-memory)"
)

MODEL_FIGURES: Final = (
    ModelFigure("size", "By", "Size of the model's file, external data included.", "102400000", heading="file and external data", compared="size of the file, external data included"),
    ModelFigure("sha256", "", "SHA-256 of the model's file, without external data, if OTEL_QUANT_HASH asks for it.", "e3b0c44298fc1c14...", "string"),
    ModelFigure("params", "{element}", "Elements of the model's static tensors, each counted once.", "25557032", heading="parameters", compared="elements of the static tensors"),
    ModelFigure("macs", "{mac}", "Forward MACs of all nodes.", "4117000000", heading="MACs", compared="forward MACs"),
    ModelFigure("macs_contraction", "{mac}", "Forward MACs of contractions only (Conv, Gemm, MatMul, recurrent, attention).", "4089000000", heading="MACs of contractions"),
    ModelFigure("backward_macs", "{mac}", "Estimated MACs of one backward pass.", "8178000000", heading="backward MACs"),
    ModelFigure("weight_bytes", "By", "Bytes of the weights as stored.", "102228128", heading="weights", compared="bytes of the weights as stored"),
    ModelFigure("memory", "By", f"Weights plus every node's outputs, {_VIEW}.", "210000000", heading="memory", compared="weights and the outputs of all nodes"),
    ModelFigure("peak_activation_bytes", "By", "Largest total size of the tensors in memory at one time, in the fused view: see [cost](cost.md#two-views-of-memory).", "9633792", heading="peak of activations", compared="tensors in memory at one time"),
    ModelFigure("nodes", "{node}", "Nodes of the graph.", "122", heading="nodes", compared="nodes"),
    ModelFigure("qdq_nodes", "{node}", "QuantizeLinear and DequantizeLinear nodes.", "343", heading="(De)QuantizeLinear nodes"),
    ModelFigure("max_memory_node", "", "Node with the largest estimated memory.", "/layer1/conv1/Conv", "string", heading="node with the most memory"),
    ModelFigure("integer_mac_share", "1", "Share of contraction MACs that ask for int8 or narrower, by QuantizeLinear and DequantizeLinear or by the type of their operands.", "0.998", "double", heading="contractions that ask for integers", compared="share of MACs that ask for int8 or narrower", is_smaller_better=False),
    ModelFigure("expected_integer_mac_share", "1", "Share of contraction MACs that `runtime` is expected to execute in int8 or narrower.", "0.998", "double", heading="contractions expected to run in integers", compared="share of MACs expected to run in int8 or narrower", is_smaller_better=False),
    ModelFigure("stored.<type>", "1", "Share of the bytes of the weights that are stored in that type.", "0.998", "double"),
    ModelFigure("precision.<type>", "1", "Share of contraction MACs that ask for that type.", "0.998", "double"),
    ModelFigure("expected_precision.<type>", "1", "Share of contraction MACs that `runtime` is expected to execute in that type.", "0.998", "double"),
    ModelFigure("runtime", "", "The onnxruntime and processor that this is expected of: the installed version, else the newest that is known. Absent where nothing is dequantized.", "onnxruntime 1.32.0 on an x86-64 CPU", "string", heading="expected of"),
    ModelFigure("in_float", "", "Why contractions of integers are expected to run in float; absent where none is.", "the bias is int8 (Conv 53, the first 'conv_0'; an own bias of int32 with the scale of the products would change it)", "string[]", heading="contractions expected in float"),
    ModelFigure("left_in_float", "", "How much of a quantized model was not quantized, and why; absent where that is below 1 % of the MACs.", "2 of 10 contractions, 29.8 % of their MACs, stay in float, because onnxruntime's quantizer has no dynamic form of ConvTranspose (ConvTranspose 2, the first '/up0/ConvTranspose'; cannot be fixed in the model)", "string", heading="contractions left in float"),
    ModelFigure("audit.problem_count", "{problem}", "Problems that an [audit](audit.md) found in the model that was written; 0 if it passes. Absent if no audit was made.", "2", heading="problems that an audit found", compared="problems that an audit finds"),
    ModelFigure("audit.answer", "", "Result of the audit of the model that was written, in a sentence; absent when OTEL_QUANT_PATHS is off.", "as configured: 224 of 224 layers int4, lm_head left out, 4.10 GB as forecast", "string"),
    ModelFigure("audit.problems", "", "Problems that an audit found in the model that was written, the worst first; absent if it passes, and when OTEL_QUANT_PATHS is off.", "/layers.2/up/MatMul is float32, and others like it are int8", "string[]"),
    ModelFigure("input_shapes", "", "Shapes of inputs that the figures are for, as the calibration's first sample has them; absent where there was no calibration, or its samples do not fit the model.", "input=8x3x224x224", "string[]", heading="shapes of inputs"),
    ModelFigure("assumed", "", "Lengths of inputs that neither the model nor a calibration gives, and which the figures take as 1, and branches of an If whose condition is data, of which they take the dearer; absent if there are none.", "batch=1", "string[]", heading="assumed"),
    ModelFigure("uncosted_ops", "", "Op types without a cost rule, each with its number of nodes.", "Custom:2", "string[]", heading="nodes without known MACs"),
)  # fmt: skip
"""In the order of tables."""
