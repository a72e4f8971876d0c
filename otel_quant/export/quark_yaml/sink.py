"""Writes the local file: a run as YAML in the format of AMD Quark's profiler.

A checkpoint is on disk when the sink's method returns, so the file of a killed run lacks only its
end; see :mod:`otel_quant.export.quark_yaml.file`. Five things are not in Quark's file, and ``strict`` leaves
them out: records of steps that Quark's profiler declares but does not report, last keys
``error_message`` and ``error`` in the End record of a failed step, comments below a record (the
step's peaks; new facts about the run), the sections ``run`` and ``run_end`` with what made the
run and how it went, and a last section ``onnx_model_cost`` with the static cost of the models. What
reads Quark's file ignores them. ``run`` stands before the records, so that the file of a killed run has
it too.

A step may last for hours: of a run that is killed in it, a file beside the local file has what the run
was doing and using a second before. It is what a recording has as ``state.<pid>.json``. Its name has the
run's id, so that a later run at the same path leaves it alone; the end of the run removes it.

Values of any kind are one line that every YAML reader reads in the same way. Quark's file quotes every string and
prints every other value as Python does. We do the same where that is valid YAML: strings are escaped, numbers have
the form that YAML 1.1 and 1.2 share, and a value of any other type becomes a string.
"""

from __future__ import annotations

import functools
import re
import threading
from collections.abc import Callable, Iterator, Mapping, Set
from json.encoder import encode_basestring
from pathlib import Path
from typing import Any, Final

from otel_quant.base.fault_boundary import FAULTS
from otel_quant.export.quark_yaml import file as profile_file
from otel_quant.export.quark_yaml.columns import Kind, ProgramMetrics
from otel_quant.export.quark_yaml.file import beside
from otel_quant.format.event_file import LAST_READING, StateFile
from otel_quant.format.fields import PEAK_SOURCE, PROFILE_RUN, PROFILE_RUN_END
from otel_quant.schema import semconv
from otel_quant.schema.events import Attributes, Event, Sink, encodable, present
from otel_quant.schema.figures import GPU, GPU_MEMORY
from otel_quant.schema.readings import AT_LEAST, CostedModel, Peaks, Reading

_PLAIN_KEY: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_.-]*")
# Without quotes, these are null or booleans in YAML 1.1.
_RESERVED_WORDS: Final = frozenset({"null", "true", "false", "yes", "no", "on", "off", "y", "n"})
# Characters that are not printable in YAML, are a line break for some reader, or change the direction of text.
_UNPRINTABLE: Final = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028\u2029\u200e\u200f\u202a-\u202e\u2066-\u2069\ufeff\ufffe\uffff]"
)
_COMMENT_BREAK: Final = re.compile("\r\n|[\n\r\x85\u2028\u2029]")


@functools.lru_cache(maxsize=256)
def quoted(text: str) -> str:
    """Writes a string as a YAML double-quoted scalar, which has all escapes of JSON."""
    return _printable(encode_basestring(encodable(text)))


def _printable(text: str) -> str:
    return _UNPRINTABLE.sub(lambda match: f"\\u{ord(match.group()):04x}", text)


@functools.lru_cache(maxsize=256)
def key(name: str) -> str:
    """Writes a mapping's key, in quotes only if YAML needs them."""
    if _PLAIN_KEY.fullmatch(name) and name.lower() not in _RESERVED_WORDS:
        return name
    return quoted(name)


def inline(value: object) -> str:
    """Writes a value on one line. One that contains itself raises RecursionError."""
    match value:
        case float():
            return number(value)
        case str():
            return quoted(value)
        case bool() | None:
            return "null" if value is None else repr(value)
        case int():
            return int.__repr__(value)
        case Mapping():
            items = (f"{key(str(name))}: {inline(item)}" for name, item in value.items())
            return f"{{{', '.join(items)}}}"
        case list() | tuple() | Set():
            return f"[{', '.join(map(inline, value))}]"
    to_list = getattr(value, "tolist", None)  # numpy and torch: gives Python numbers
    return inline(to_list()) if callable(to_list) else quoted(str(value))


def comment(text: str) -> list[str]:
    """Splits a text into lines for a comment; no line can end the comment early."""
    return [_printable(line) for line in _COMMENT_BREAK.split(encodable(text))]


def number(value: float) -> str:
    """Writes a number with a fraction."""
    text = float.__repr__(value)  # the repr of numpy's subclass contains its type
    if "." in text:
        return text
    # YAML 1.1 reads 1e-05 as a string: a number needs a decimal point.
    return {"nan": ".nan", "inf": ".inf", "-inf": "-.inf"}.get(text) or text.replace("e", ".0e")


# --- the file -----------------------------------------------------------------------------

_HEADER: Final = "# Quark Profiling Results\n\n"
_RUN: Final = "run:\n"
_RECORDS: Final = "memory_usage:\n"
_RUN_END: Final = "\nrun_end:\n"
_SUMMARY: Final = "\n# Summary Metrics\n"
_DEFINITIONS: Final = "\n# Metric Definitions:\n#\n# Checkpoint Metrics (per record):\n"
_SUMMARY_DEFINITIONS: Final = "#\n# Summary Metrics (overall):\n"
_COST: Final = "\nonnx_model_cost:\n"

_PEAKS: Final = (
    ("peak_memory_mb", semconv.MEMORY_PEAK), ("peak_gpu_memory_mb", semconv.GPU_MEMORY_PEAK),
)  # fmt: skip

_MIB: Final = 1 << 20
_SHARE_DIGITS: Final = 4


class QuarkYamlSink(Sink):
    """Writes a run's file, and beside it the newest reading while the run goes on.

    Without a path, the text is only kept in memory, if that is asked for.
    """

    name = "quark_yaml"

    def __init__(
        self, path: str | Path | None, metrics: ProgramMetrics, *, strict: bool = False,
        makes_folders: bool = False, keeps_last_reading: bool = True,
    ) -> None:  # fmt: skip
        self._requested = None if path is None else Path(path)
        self._metrics, self._strict = metrics, strict
        self._makes_folders, self._keeps_last_reading = makes_folders, keeps_last_reading
        self._file: profile_file.ProfileFile | None = None
        self._last_reading: StateFile | None = None
        self._is_over = False
        self._outputs: list[Callable[[str], None]] = []  # What takes the text once the run begins
        self._costs: list[CostedModel] = []
        self._facts: dict[str, Any] = {}  # What is known of the run by its steps so far, by key
        self._told: set[object] = set()  # Libraries of the steps so far, with their versions
        self._items: list[int | None] = []  # In the samples of each step
        # Reentrant: a signal handler may close a step while another is being written.
        self._lock = threading.RLock()

    @property
    def path(self) -> Path | None:
        """Path of the file; before the run begins, the requested path."""
        return self._file.path if self._file is not None else self._requested

    def keep(self, pieces: list[str]) -> bool:
        """Keeps the text in memory too, before the run begins; not for a strict file."""
        if not self._strict:
            self._outputs = [pieces.append]
        return not self._strict

    def move(self, path: str | Path) -> None:
        """Moves the file to another path, before the run begins or during it."""
        self._requested = Path(path)
        if self._file is not None:
            self._file.move(self._requested)

    def move_off(self, path: str | Path) -> None:
        """Moves the file aside if another program is about to write to its path."""
        if self._file is not None and self._file.path == Path(path).resolve():
            self._file.move(beside(self._file.path, "otel"))

    def run_started(self, event: Event) -> None:
        """Creates the file with the header and the first record."""
        of_run = _mapping(_section(PROFILE_RUN, event.attributes), "  ", "  ")
        text = _HEADER if self._strict else f"{_HEADER}{_RUN}{of_run}\n"
        text += _RECORDS + self._record(event)
        self._put(text)
        if self._requested is not None:
            self._file = profile_file.create(self._requested, text, parents=self._makes_folders)
            self._outputs.append(self._file.write)

    def step_started(self, event: Event) -> None:
        """Writes the record; a strict file contains only the steps that Quark's file has."""
        if not self._leaves_out(event):
            self._put(self._record(event) + self._new_facts(event))

    def step_ended(self, event: Event) -> None:
        """Writes the record, and below it the step's peaks."""
        if not self._leaves_out(event):
            text = self._record(event)
            if text and not self._strict:
                text += _peaks(event.attributes)
            self._put(text + self._new_facts(event))

    def checkpoint(self, event: Event) -> None:
        """Writes the record."""
        if self._outputs:
            self._put(self._record(event))

    def models_costed(self, event: Event) -> None:
        """Stores the costs; they are written at the end of the file, after all records."""
        self._costs.extend(each for each in event.models if not each.is_checkpoint)

    def reading_taken(self, event: Event) -> None:
        """Writes the reading over the one before."""
        file, baseline = self._file, event.baseline
        if not self._keeps_last_reading or file is None or baseline is None:
            return
        path = file.path.with_name(f"{file.path.stem}.{event.run.id}{LAST_READING}")
        steps = ((it.info.index, it.counts, event.lines.get(it.info.index)) for it in event.steps)
        with self._lock:
            if self._is_over or not file.path.is_file():  # a device
                return
            if self._last_reading is None or self._last_reading.path != path:  # moved
                self._remove_last_reading()
                self._last_reading = StateFile(path)
            self._last_reading.write(event, steps, began=baseline.time_ns)

    def run_ended(self, event: Event) -> None:
        """Writes the last record, the summary, the definitions and the costs, and closes the file."""
        try:
            for piece in self._last_pieces(event) if self._outputs else ():
                # If the disk has no room for one piece, the next ones are still tried.
                with FAULTS.kept_in(f"sink {self.name}"):
                    self._put(piece)
        finally:
            if self._file is not None:
                self._file.close()
            with self._lock:
                self._is_over = True
                self._remove_last_reading()

    def forget(self) -> None:
        """Closes the child's copies of the descriptors, and leaves the files alone."""
        self._lock = threading.RLock()
        for file in (self._file, self._last_reading):
            if file is not None:
                file.forget()
        self._file = self._last_reading = None
        self._outputs = []

    # --- within -----------------------------------------------------------------------------

    def _put(self, text: str) -> None:
        for write in self._outputs:
            write(text)

    def _remove_last_reading(self) -> None:
        if self._last_reading is not None:
            self._last_reading.remove()
            self._last_reading = None

    def _last_pieces(self, event: Event) -> Iterator[str]:
        yield self._record(event)
        yield _SUMMARY + _mapping(self._metrics.summary(event), "", "")
        of_records = _DEFINITIONS + self._definitions("checkpoint_metrics")
        yield of_records + _SUMMARY_DEFINITIONS + self._definitions("summary_metrics")
        if self._strict:
            return
        yield _RUN_END + _mapping(self._section_at_end(event), "  ", "  ")
        costs = (
            {"role": each.role, "path": each.path, **each.figures, "error": each.error}
            for each in self._costs
        )
        if text := "".join(_mapping(present(cost), "- ", "  ") for cost in costs):
            yield _COST + text

    def _section_at_end(self, event: Event) -> dict[str, object]:
        assert event.peaks is not None
        assert event.baseline is not None
        # Not before the end: a later step may turn out not to tell.
        items = None if None in self._items else sum(filter(None, self._items)) or None
        return {
            "ended": f"with {event.error}" if event.error else "without an exception",
            **self._facts,
            **present({"calibration_items": items}),
            **_section(PROFILE_RUN_END, event.attributes),
            **present({"gpu_memory_limit_share": _highest_gpu_share(event.peaks, event.baseline)}),
        }

    def _leaves_out(self, event: Event) -> bool:
        is_ours = event.step is not None and event.step.filled_in
        return not self._outputs or (self._strict and is_ours)

    def _record(self, event: Event) -> str:
        columns = self._metrics.columns(event, strict=self._strict)
        text = _mapping(columns, "- ", "  ")
        if text and event.error and not self._strict:
            for name, value in (("error_message", event.error_message), ("error", event.error)):
                if value and name not in columns:
                    text += f"  {name}: {quoted(value)}\n"
        return text

    def _new_facts(self, event: Event) -> str:
        """Returns, as comments, facts about the run that a step has and that were not known before it."""
        step, method = event.step, event.attributes.get(semconv.CALIBRATION_METHOD)
        assert step is not None
        of_step = step.library, step.library_version
        is_known = of_step in self._told and (method is None or "calibration_method" in self._facts)
        samples = event.counts.samples
        if self._strict or (is_known and not samples):
            return ""
        with self._lock:  # steps of several threads may begin and end at the same time
            self._told.add(of_step)
            before, now = self._facts, dict(self._facts)
            if step.library is not None:
                library = " ".join(filter(None, of_step))
                now["libraries"] = list(dict.fromkeys((*now.get("libraries", ()), library)))
            if method is not None:
                now.setdefault("calibration_method", method)
            if samples:
                now["calibration_samples"] = now.get("calibration_samples", 0) + samples
                self._items.append(event.items)
            self._facts = now
        new = {name: value for name, value in now.items() if before.get(name) != value}
        return "".join(f"  # {name}: {inline(value)}\n" for name, value in new.items())

    def _definitions(self, kind: Kind) -> str:
        text = ""
        for name, definition in self._metrics.definitions(kind, strict=self._strict):
            first, *rest = comment(f"{name}: {definition}")
            text += f"# - {first}\n" + "".join(f"#{line}\n" for line in rest)
        return text


def _section(keys: Mapping[str, str], attributes: Attributes) -> dict[str, object]:
    """Returns a section on the run: its keys, and the attributes that they are."""
    found: dict[str, Any] = {}
    for name, attribute in keys.items():
        value = attributes.get(attribute)
        if name.endswith("_mb") and isinstance(value, int | float):
            value = round(value / _MIB, 2)
        elif isinstance(value, float):
            value = round(value, _SHARE_DIGITS)
        found[name] = value
    return dict(present(found))


def _highest_gpu_share(peaks: Peaks, first: Reading) -> float | None:
    """Returns how much of its memory the fullest GPU has used."""
    shares = [
        used / gpu.limit
        for gpu in first.gpus
        if gpu.limit
        and (used := peaks.devices.get(GPU.name, {}).get(gpu.index, {}).get(GPU_MEMORY.name))
    ]
    return round(max(shares), _SHARE_DIGITS) if shares else None


def _peaks(attributes: Attributes) -> str:
    """Writes a step's peaks as comments: Quark's file has no key for them."""
    found = ((name, attributes.get(attribute)) for name, attribute in _PEAKS)
    known = ((name, value) for name, value in found if isinstance(value, int | float))
    text = "".join(f"  # {name}: {value / _MIB:.2f}\n" for name, value in known)
    is_low = attributes.get(semconv.MEMORY_PEAK_SOURCE) == AT_LEAST
    return f"{text}  # {PEAK_SOURCE}: {AT_LEAST}\n" if is_low else text


def _mapping(values: Mapping[str, object], first: str, indent: str) -> str:
    """Writes a mapping, one line for each key; a value that cannot be written is left out."""
    lines = []
    for name, value in values.items():
        # Most are of these two kinds, which cannot fail.
        if type(value) is float:
            shown = repr(value)
            if "." not in shown:
                shown = number(value)
        elif type(value) is str:
            shown = quoted(value)
        else:
            shown = ""
            with FAULTS.kept_in(f"value of {name} for the local file"):
                shown = inline(value)
            if not shown:
                continue
        lines.append(f"{key(name)}: {shown}\n")
    return first + indent.join(lines) if lines else ""
