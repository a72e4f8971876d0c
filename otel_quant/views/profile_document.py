"""A profile as parts: its steps, what made the run and how it went, its models, what is missing."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from otel_quant.recordings.profile_steps import Step, steps_of
from otel_quant.recordings.quark_yaml import Profile, Record
from otel_quant.views.former_document import Facts, Lines, Part, Table
from otel_quant.views.model_cost import cost_facts, with_ratios
from otel_quant.views.step_columns import (
    GPU,
    GPU_PEAK,
    MEMORY,
    MESSAGE,
    PEAK,
    STATUS,
    TIME,
    columns_of,
    highest,
    number,
)
from otel_quant.views.text import listed, shortened

_UP_TO: Final = frozenset({"checkpoints", "last reading"})
"""Sources of a peak that may have been higher: what a run without an End has shown until then."""

_LAST_FIGURES: Final = ((TIME, "{:.2f} s"), (MEMORY, "{:.2f} MiB"), (GPU, "{:.2f} MiB on GPUs"))
_READING_FIGURES: Final = (
    *_LAST_FIGURES,
    (PEAK, "peak {:.2f} MiB"),
    (GPU_PEAK, "peak on GPUs {:.2f} MiB"),
    ("memory_limit_mb", "limit {:.2f} MiB"),
)

_SEEN: Final = "(SEEN is the highest at the checkpoints, not between them)"
_SEEN_AND_READ: Final = "(SEEN is the highest at the checkpoints and in the last reading)"
_WHY: Final[Mapping[str | None, str]] = {
    None: "it is still running, or it was killed",
    "running": "it is still running",
    "killed": "it was killed",
    "failed": "the program failed",
    "lost": "its process is gone without having said why",
}
_LONGEST_STATUS: Final = 72
_SPARE: Final = ("MEM START", "GPU START", "MEM END", "GPU END", "START", "READ", "OF LIMIT")
"""Columns that a narrow terminal does without."""

_LIMITS: Final[Mapping[str, str]] = {
    "cgroup": "of the control group",
    "physical": "physical memory",
}


def parts_of(profile: Profile, most_steps: int | None = None) -> list[Part]:
    """Returns the parts that are printed of a profile."""
    return list(_parts(profile, most_steps))


def run_facts(profile: Profile) -> Record:
    """Returns what is known of a run; of one without an End, the memory that its records show."""
    facts = dict(profile.run)
    seen, source = highest(profile.records, MEMORY, PEAK), "checkpoints"
    later = number(profile.last_reading or {}, PEAK)
    if later is not None and (seen is None or later > seen):
        seen, source = later, "last reading"
    if not facts or "tree_peak_memory_mb" in facts or seen is None:
        return facts
    limit = number(facts, "memory_limit_mb")
    share = {"memory_limit_share": round(seen / limit, 4)} if limit else {}
    return {
        **facts, "tree_peak_memory_mb": seen, "tree_peak_memory_source": source, **share,
    }  # fmt: skip


def _parts(profile: Profile, most_steps: int | None) -> Iterator[Part]:
    steps = steps_of(profile.records)
    if steps:
        shown = _most_telling(profile, steps, most_steps)
        table = _steps_table(profile, shown)
        yield table
        if len(shown) < len(steps):
            yield Lines((f"(shorter steps that are left out: {len(steps) - len(shown):,})",))
        if any(heading.endswith(" SEEN") for heading in table.header):
            yield Lines((_SEEN_AND_READ if profile.last_reading else _SEEN,))
    else:
        yield Lines(("no steps",))
    if facts := tuple(_facts(run_facts(profile))):
        yield Facts(facts)
    if profile.summary:
        yield Facts(tuple((key, _rounded(value)) for key, value in profile.summary.items()))
    for cost in with_ratios(profile.costs):
        yield cost_facts(cost)
    last = profile.records[-1] if profile.records else {}
    if last.get("step") == "End" and "error" in last and "ended" not in profile.run:
        yield Lines((f"the run ended with {last['error']}",))
    if not profile.complete:
        yield Lines(tuple(_missing(profile, steps)))


def _steps_table(profile: Profile, steps: Sequence[Step]) -> Table:
    columns = [column for column in columns_of(profile, steps) if column.heading]
    keys = {column.key for column in columns}
    columns = [column for column in columns if column.unless not in keys and column is not STATUS]
    return Table(
        ("STEP", *(column.heading for column in columns), STATUS.heading),
        ("", *(column.unit for column in columns), STATUS.unit),
        tuple(
            (
                "  " * step.depth + step.name,
                *(column.shown(column.value(profile, step)) for column in columns),
                _status_cell(profile, step),
            )
            for step in steps
        ),
        spare=_SPARE,
    )


def _most_telling(profile: Profile, steps: Sequence[Step], most: int | None) -> Sequence[Step]:
    if most is None or len(steps) <= most:
        return steps

    def rank(step: Step) -> tuple[bool, float]:
        first, last = profile.records[step.first], profile.records[step.last]
        ended_well = step.state != "open" and "error" not in last
        return ended_well, (number(first, TIME) or 0.0) - (number(last, TIME) or 0.0)

    shown = {id(step) for step in sorted(steps, key=rank)[:most]}
    return [step for step in steps if id(step) in shown]


def _status_cell(profile: Profile, step: Step) -> str:
    status, message = STATUS.value(profile, step), MESSAGE.value(profile, step)
    return shortened(f"{status}: {message}" if message else str(status), _LONGEST_STATUS)


def _rounded(value: object) -> str:
    return str(round(value, 4) if isinstance(value, float) else value)


def _facts(run: Record) -> Iterator[tuple[str, str]]:
    peak, share = number(run, "tree_peak_memory_mb"), number(run, "memory_limit_share")
    limit = number(run, "memory_limit_mb")
    if peak is not None:
        at_least = "at least " if run.get("tree_peak_memory_source") in _UP_TO else ""
        of_limit = f", {100 * share:.1f} % of the limit" if share is not None else ""
        yield "memory peak", f"{at_least}{peak:,.1f} MiB{of_limit}"
    if limit is not None:
        source = _LIMITS.get(str(run.get("memory_limit_source")))
        yield "memory limit", f"{limit:,.1f} MiB" + (f" ({source})" if source else "")
    gpu_share = number(run, "gpu_memory_limit_share")
    if gpu_share is not None:
        yield "GPU memory peak", f"{100 * gpu_share:.1f} % of the memory of the fullest GPU"
    for name, keys in _TEXTS.items():
        values = [_FORMS.get(key, "{}").format(listed(run[key])) for key in keys if key in run]
        if values:
            yield name, ", ".join(values)


_TEXTS: Final[Mapping[str, tuple[str, ...]]] = {
    "GPUs": ("gpus",),
    "libraries": ("libraries",),
    "calibration": ("calibration_method", "calibration_samples", "calibration_items"),
    "ended": ("ended",),
    "command": ("command",),
    "host": ("host", "system"),
    "Python": ("python", "otel_quant"),
}
"""Name -> keys of the file whose values are shown there."""

_FORMS: Final[Mapping[str, str]] = {
    "calibration_samples": "{} samples (batches)",
    "calibration_items": "{} items",
    "otel_quant": "otel-quant {}",
}


def _missing(profile: Profile, steps: Sequence[Step]) -> Iterator[str]:
    """Yields what the file lacks, the open steps and the last figures."""
    records, reading = profile.records, profile.last_reading
    if not records:
        yield "truncated: the file has no complete checkpoint"
        return
    if records[-1].get("step") == "End":
        yield "truncated: all checkpoints are complete, but the text after them is not"
        return
    open_steps = [step.name for step in steps if step.state == "open"]
    if reading is not None:
        open_steps = list(_progress(reading))
    figures = _figures(records[-1], _LAST_FIGURES)
    yield f"truncated: the run has no End: {_WHY[profile.state]}"
    yield f"  open steps:      {' > '.join(open_steps) or 'none'}"
    last = str(records[-1].get("step", ""))
    yield f"  last checkpoint: {last}{f' ({figures})' if figures else ''}"
    if reading is not None:
        age = _shown_age(number(reading, "age_secs") or 0.0)
        yield f"  last reading:    {age} ago ({_figures(reading, _READING_FIGURES)})"


def _figures(record: Record, shown: Sequence[tuple[str, str]]) -> str:
    return ", ".join(
        text.format(value) for key, text in shown if (value := number(record, key)) is not None
    )


def _progress(reading: Record) -> Iterator[str]:
    """Yields the steps that were open at a last reading, with their samples."""
    steps = reading.get("open_steps")
    if (more := reading.get("more_open_steps")) is not None:
        yield f"{more} more"
    for step in steps if isinstance(steps, list) else ():
        if isinstance(step, dict):
            total = f" of {step['expected_samples']}" if "expected_samples" in step else ""
            samples = f" ({step['samples']}{total} samples)" if "samples" in step else ""
            yield f"{step.get('step', '')}{samples}"


_SPANS: Final = ((86_400, "days"), (3_600, "h"), (60, "min"))


def _shown_age(seconds: float) -> str:
    for length, unit in _SPANS:
        if seconds >= 2 * length:
            return f"{seconds / length:.0f} {unit}"
    return f"{seconds:.0f} s"
