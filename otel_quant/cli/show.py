"""``otel-quant show``: the steps of a profile as a table, JSON or CSV."""

from __future__ import annotations

import argparse
import csv
import io
import json
import math
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from otel_quant.cli.command import Command, UserError
from otel_quant.cli.rendering.model_cost import cost_text
from otel_quant.cli.rendering.table import printable, table
from otel_quant.profile.last_reading import last_reading_of
from otel_quant.profile.profile_steps import Step, numbers, steps_of
from otel_quant.profile.reader import NotAProfileError, Profile, Record, parse

_TIME, _MEMORY, _GPU = "relative_time_secs", "cpu_memory_mb", "gpu_memory_mb"
_LIMIT = "memory_limit_mb"
_READ, _WRITE = "disk_read_mb", "disk_write_mb"
_PEAK, _GPU_PEAK = "peak_memory_mb", "peak_gpu_memory_mb"
_KNOWN: Final = frozenset(
    {"step", "timestamp", _TIME, _MEMORY, _GPU, _READ, _WRITE, _PEAK, _GPU_PEAK, "error"}
)


@dataclass(frozen=True, slots=True)
class Column:
    """One figure of a step.

    Attributes:
        key: Its name in JSON and CSV.
        heading: Its name in the table.
        value: Computes it from the records and the step.
        shown: Formats it for the table.
        unless: Key of another column; if that column is in the table, this one is left out.
    """

    key: str
    heading: str
    value: Callable[[Sequence[Record], Step], object]
    shown: Callable[[object], str]
    unless: str = ""


def _number(record: Record, key: str) -> float | None:
    return next(numbers((record,), key), None)


def _at_start(key: str) -> Callable[[Sequence[Record], Step], object]:
    return lambda records, step: _number(records[step.first], key)


def _at_end(key: str) -> Callable[[Sequence[Record], Step], object]:
    return lambda records, step: (
        _number(records[step.last], key) if step.state == "ended" else None
    )  # fmt: skip


def _change(key: str) -> Callable[[Sequence[Record], Step], object]:
    def change(records: Sequence[Record], step: Step) -> object:
        before, after = _number(records[step.first], key), _number(records[step.last], key)
        if step.state != "ended" or before is None or after is None:
            return None
        return round(after - before, 9)  # the records have no more decimals

    return change


def _highest(key: str) -> Callable[[Sequence[Record], Step], object]:
    return lambda records, step: max(
        numbers(records[step.first : step.last + 1], key), default=None
    )  # fmt: skip


def _status(records: Sequence[Record], step: Step) -> object:
    if step.state == "ended":
        return str(records[step.last].get("error", "ok"))
    return step.state


def _fixed(digits: int) -> Callable[[object], str]:
    return lambda value: f"{value:.{digits}f}" if isinstance(value, int | float) else "-"


def _signed(value: object) -> str:
    return f"{value:+.2f}" if isinstance(value, int | float) else "-"


_COLUMNS: Final[tuple[Column, ...]] = (
    Column("start_secs", "START s", _at_start(_TIME), _fixed(2)),
    Column("duration_secs", "TIME s", _change(_TIME), _fixed(2)),
    Column("cpu_memory_start_mb", "MEM START", _at_start(_MEMORY), _fixed(1)),
    Column("cpu_memory_end_mb", "MEM END", _at_end(_MEMORY), _fixed(1)),
    Column("cpu_memory_delta_mb", "MEM +/-", _change(_MEMORY), _signed),
    Column("cpu_memory_peak_mb", "MEM PEAK", _at_end(_PEAK), _fixed(1)),
    Column("cpu_memory_seen_mb", "MEM SEEN", _highest(_MEMORY), _fixed(1), "cpu_memory_peak_mb"),
    Column("gpu_memory_start_mb", "GPU START", _at_start(_GPU), _fixed(1)),
    Column("gpu_memory_end_mb", "GPU END", _at_end(_GPU), _fixed(1)),
    Column("gpu_memory_peak_mb", "GPU PEAK", _at_end(_GPU_PEAK), _fixed(1)),
    Column("gpu_memory_seen_mb", "GPU SEEN", _highest(_GPU), _fixed(1), "gpu_memory_peak_mb"),
    Column("disk_read_mb", "READ", _change(_READ), _fixed(2)),
    Column("disk_write_mb", "WRITTEN", _change(_WRITE), _fixed(2)),
)
_SEEN: Final = (
    "(memory and disk in MiB; SEEN is the highest at the checkpoints, not between them)\n"
)
_STATUS: Final = Column("status", "STATUS", _status, str)


def _columns(profile: Profile, steps: Sequence[Step]) -> Iterator[Column]:
    """Yields the columns in which a step has a value; custom metrics come last."""
    custom = dict.fromkeys(key for record in profile.records for key in record if key not in _KNOWN)
    for column in (*_COLUMNS, *(_custom_column(key) for key in custom)):
        if any(column.value(profile.records, step) is not None for step in steps):
            yield column
    yield _STATUS


def _custom_column(key: str) -> Column:
    def value(records: Sequence[Record], step: Step) -> object:
        return records[step.last if step.state == "ended" else step.first].get(key)

    return Column(key, key, value, lambda value: "-" if value is None else str(value))


def _as_table(profiles: Mapping[str, Profile]) -> str:
    text = ""
    for name, profile in profiles.items():
        if len(profiles) > 1:
            text += f"{printable(name)}\n"
        text += _one_table(profile) + "\n"
    return text.removesuffix("\n")


def _one_table(profile: Profile) -> str:
    steps = steps_of(profile.records)
    text = _steps_table(profile, steps) if steps else "no steps\n"
    if profile.summary:
        text += "\n" + _pairs(profile.summary)
    for cost in profile.costs:
        text += "\n" + cost_text(cost)
    return text + _end(profile) + _warning(profile, steps)


def _steps_table(profile: Profile, steps: Sequence[Step]) -> str:
    columns = list(_columns(profile, steps))
    keys = {column.key for column in columns}
    columns = [column for column in columns if column.unless not in keys]
    text = table(
        ("STEP", *(column.heading for column in columns)),
        [
            (
                "  " * step.depth + step.name,
                *(column.shown(column.value(profile.records, step)) for column in columns),
            )
            for step in steps
        ],
    )
    return text + ("(memory and disk in MiB)\n" if "cpu_memory_peak_mb" in keys else _SEEN)


def _end(profile: Profile) -> str:
    """Returns a line with the exception that ended the run; empty if there was none."""
    last = profile.records[-1] if profile.records else {}
    if last.get("step") != "End" or "error" not in last:
        return ""
    return f"\nthe run ended with {printable(str(last['error']))}\n"


def _pairs(values: Mapping[str, object]) -> str:
    width = max((len(key) for key in values), default=0)
    shown = (
        (key, round(value, 4) if isinstance(value, float) else value)
        for key, value in values.items()
    )
    return "".join(f"{printable(f'{key:{width}}  {value}')}\n" for key, value in shown)


def _warning(profile: Profile, steps: Sequence[Step]) -> str:
    """Returns what is missing, the open steps and the last figures; empty if nothing is missing."""
    if profile.complete:
        return ""
    records = profile.records
    if not records:
        return "\ntruncated: the file has no complete checkpoint\n"
    if records[-1].get("step") == "End":
        return "\ntruncated: all checkpoints are complete, but the text after them is not\n"
    open_steps = [printable(step.name) for step in steps if step.state == "open"]
    figures = _figures(records[-1], _LAST_FIGURES)
    text = (
        f"  last checkpoint: {printable(str(records[-1].get('step', '')))}"
        f"{f' ({figures})' if figures else ''}\n"
    )
    if (last := profile.last_reading) is not None:
        open_steps = list(_progress(last))
        figures = _figures(last, (*_LAST_FIGURES, *_PEAK_FIGURES))
        text += f"  last reading:    {_ago(_number(last, 'age_secs'))} ago ({figures})\n"
    return (
        "\ntruncated: the run has no End: it is still running, or it was killed\n"
        f"  open steps:      {' > '.join(open_steps) or 'none'}\n" + text
    )


_LAST_FIGURES: Final = ((_TIME, "{:.2f} s"), (_MEMORY, "{:.2f} MiB"), (_GPU, "{:.2f} MiB on GPUs"))
_PEAK_FIGURES: Final = (
    (_PEAK, "peak {:.2f} MiB"),
    (_GPU_PEAK, "peak on GPUs {:.2f} MiB"),
    (_LIMIT, "limit {:.2f} MiB"),
)
_SPANS: Final = ((86_400, "days"), (3_600, "h"), (60, "min"))


def _figures(record: Record, shown: Sequence[tuple[str, str]]) -> str:
    return ", ".join(
        text.format(value) for key, text in shown if (value := _number(record, key)) is not None
    )


def _ago(seconds: float | None) -> str:
    seconds = seconds or 0.0
    for length, unit in _SPANS:
        if seconds >= 2 * length:
            return f"{seconds / length:.0f} {unit}"
    return f"{seconds:.0f} s"


def _progress(last: Record) -> Iterator[str]:
    """Yields the steps that were open at a last reading, with their samples."""
    steps = last.get("open_steps")
    if (more := last.get("more_open_steps")) is not None:
        yield printable(f"{more} more")
    for step in steps if isinstance(steps, list) else ():
        if isinstance(step, dict):
            total = f" of {step['expected_samples']}" if "expected_samples" in step else ""
            samples = f" ({step['samples']}{total} samples)" if "samples" in step else ""
            yield printable(f"{step.get('step', '')}{samples}")


def _as_json(profiles: Mapping[str, Profile]) -> str:
    documents = []
    for name, profile in profiles.items():
        steps = steps_of(profile.records)
        columns = list(_columns(profile, steps))
        documents.append(
            {
                "file": name,
                "truncated": not profile.complete,
                "steps": [
                    {
                        "step": step.name,
                        "depth": step.depth,
                        **{column.key: column.value(profile.records, step) for column in columns},
                    }
                    for step in steps
                ],
                "summary": profile.summary,
                "onnx_model_cost": profile.costs,
                **({"last_reading": profile.last_reading} if profile.last_reading else {}),
            }
        )
    return json.dumps(_finite(documents), indent=2, default=str) + "\n"


def _finite(value: object) -> object:
    """Replaces numbers that JSON does not have (NaN, infinity) by their names."""
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    if isinstance(value, dict):
        return {str(key): _finite(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_finite(item) for item in value]
    return value


def _as_csv(profiles: Mapping[str, Profile]) -> str:
    rows: list[dict[str, object]] = []
    for name, profile in profiles.items():
        steps = steps_of(profile.records)
        columns = list(_columns(profile, steps))
        for step in steps:
            row: dict[str, object] = {"file": name, "step": step.name, "depth": step.depth}
            for column in columns:
                row[column.key] = column.value(profile.records, step)
            rows.append({key: printable(str(v)) for key, v in row.items() if v is not None})
    order = ["file", "step", "depth", *(column.key for column in _COLUMNS), "status"]
    present = {key for row in rows for key in row}
    fields = [key for key in order if key in present]
    fields += [key for row in rows for key in row if key not in order]
    stream = io.StringIO()
    writer = csv.DictWriter(stream, list(dict.fromkeys(fields)), lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return stream.getvalue()


_FORMATS: Final[Mapping[str, Callable[[Mapping[str, Profile]], str]]] = {
    "table": _as_table,
    "json": _as_json,
    "csv": _as_csv,
}


def _add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("files", nargs="+", metavar="FILE", help="a quark_profile.yaml")
    parser.add_argument(
        "--format", choices=tuple(_FORMATS), default="table", help="default: %(default)s"
    )


def _run(options: argparse.Namespace) -> int:
    profiles: dict[str, Profile] = {}
    for name in options.files:
        try:
            text = Path(name).read_bytes().decode("utf-8", "replace")
            profile = profiles[name] = parse(text)
            profile.last_reading = last_reading_of(Path(name), profile)
        except NotAProfileError as error:
            raise UserError(f"{printable(name)}: not a quark_profile.yaml: {error}") from error
        except OSError as error:
            raise UserError(f"{printable(name)}: {error.strerror}") from error
    sys.stdout.write(_FORMATS[options.format](profiles))
    return 0


COMMAND: Final = Command(
    name="show",
    brief="print the steps of a quark_profile.yaml",
    description=(
        "Prints the steps of profiles with their time, memory and disk I/O. Reads the files of "
        "otel-quant and of Quark's own profiler, including those of killed runs, with the last "
        "reading that is beside them."
    ),
    add_arguments=_add_arguments,
    run=_run,
)
