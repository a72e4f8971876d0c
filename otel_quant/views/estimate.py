"""Estimates of what memory a quantization needs, as a document."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from operator import attrgetter
from typing import Any, Final

from otel_quant.cost.estimate import ANSWERS, MOST_SAMPLES, Estimate, EstimatedModel
from otel_quant.schema.units import counted, duration_text, size
from otel_quant.views import document as doc
from otel_quant.views.cost import assumptions
from otel_quant.views.text import phrase

SCHEMA: Final = 1  # Version of the JSON: raised when a key changes its meaning or goes away


def document(
    model: EstimatedModel,
    estimates: Sequence[Estimate],
    limit: int | None,
    *,
    explained: bool,
    whose: str = "",
) -> doc.Document:
    """Returns estimates as a document, with what they are computed from if wanted; ``limit`` is in bytes, ``whose`` a text."""
    return doc.Document(
        _parts(model, estimates, limit, explained=explained),
        _answer(model.cost.path, estimates, limit, whose), "Memory that a quantization needs",
        is_answer=True, sheet=lambda: doc.Table.of(_for_programs(limit), estimates),
        data=lambda: _data(model, estimates, limit),
    )  # fmt: skip


def _answer(path: str, estimates: Sequence[Estimate], limit: int | None, whose: str) -> str:
    """Returns how many methods fit into a limit; without one what the least and the most needs."""
    if any(each.most is not None for each in estimates):
        return f"{path} in {size(limit or 0)}{whose}: {_fitting(estimates, limit or 0)}{_times(estimates)}"
    if limit is not None:
        answers = Counter(each.fits(limit) for each in estimates)
        counts = ", ".join(f"{each} with {answers[each]:,}" for each in ANSWERS if answers[each])
        return f"{path} in {size(limit)}{whose}: {counts} of {counted(len(estimates), 'method')}"
    ordered = sorted(estimates, key=attrgetter("peak"))
    ends = [f"{size(each.peak)} ({_title(each)})" for each in (ordered[0], *ordered[1:][-1:])]
    samples = counted(ordered[0].samples, "calibration sample")
    return f"{path} is estimated to need {' to '.join(ends)} with {samples}{_times(estimates)}"


def _fitting(estimates: Sequence[Estimate], limit: int) -> str:
    """Returns with how many methods the samples fit, for sure and perhaps, and how many do with the others."""
    known = [each for each in estimates if each.most is not None]
    fewer = sorted({it.most for it in known if it.most is not None and it.most < it.samples})
    fitting = [each for each in known if (each.most or 0) >= each.samples]
    perhaps = sum(each.fits(limit) == "perhaps" for each in known if each not in fitting)
    samples, methods = estimates[0].samples, counted(len(estimates), "method")
    verb = "is" if samples == 1 else "are"
    text = f"{counted(samples, 'sample')} {verb} sure to fit with {len(fitting):,} of {methods}"
    text += phrase(", and perhaps with {:,} more", perhaps, int)
    if fewer:
        ends = " to ".join(f"{most:,}" for most in (*fewer[:1], *fewer[1:][-1:]))
        text += f"; with the others {'not one is' if fewer == [0] else f'at most {ends} are'}"
    return f"{text}{phrase('; not known of {}', len(estimates) - len(known) or None)}"


def _times(estimates: Sequence[Estimate]) -> str:
    """Returns how long a method takes, the fastest of those of which that is known."""
    known = sorted((each for each in estimates if each.seconds), key=attrgetter("seconds"))
    return "".join(f"; {_title(each)} takes about {_time(each)}" for each in known[:1])


def _time(each: Estimate) -> str | None:
    """Returns how long it takes, and from when to when that may be."""
    least, expected, most = map(duration_text, each.seconds or (0, 0, 0))
    return f"{expected} ({least} to {most})" if each.seconds else None


def _title(each: Estimate) -> str:
    return f"{each.library}:{each.method}"


def _parts(
    model: EstimatedModel, estimates: Sequence[Estimate], limit: int | None, *, explained: bool
) -> Iterator[doc.Part]:
    if estimates[1:] or limit is not None:
        yield doc.Bars([(_title(each), each.peak, each.highest or 0) for each in estimates], limit)
    yield from doc.Lines.of(_notes(model, estimates))
    activations = sum(tensor.bytes or 0 for tensor in model.activations)
    rows: list[tuple[str, doc.Cell]] = [
        ("weights", doc.UnitCell(model.weight_bytes, "By")),
        ("inputs of a sample", doc.UnitCell(model.input_bytes, "By")),
        ("activations of a sample", doc.UnitCell(activations, "By")),
    ]
    for whose, layer in model.layers.items() if explained else ():
        source = doc.UnitCell(layer.bytes, "By", f"{layer.name}, ", f": {layer.computed_from}")
        rows.append((f"largest layer by {whose}", source))
    yield doc.Facts(rows, model.cost.path)
    fits = [] if limit is None else [_fits(limit)]
    more = [it for it in _WHERE_KNOWN if any(it.value(each) is not None for each in estimates)]
    columns = (_METHOD, *fits, *_AMOUNTS, *more, _MOSTLY)
    yield doc.Table.of(columns, estimates, id="estimates", caption="Estimates")
    for each in estimates if explained else ():
        computed = [
            (f"{kind}: {of.name}", doc.UnitCell(of.bytes, "By", after=f": {of.computed_from}"))
            for kind, figures in (("memory", each.memory), ("disk", each.disk))
            for of in figures
        ]
        yield doc.Facts(computed, _title(each))


_METHOD: Final = doc.Column[Estimate]("method", None, _title)
_AMOUNTS: Final[Sequence[doc.Column[Estimate]]] = (
    doc.Column("samples", "", attrgetter("samples")),
    doc.Column("peak", "By", attrgetter("peak"), "peak_bytes"),
    doc.Column("at least", "By", attrgetter("lowest"), "lowest_bytes"),
    doc.Column("at most", "By", attrgetter("highest"), "highest_bytes", absent="?"),
    doc.Column("disk", "By", attrgetter("disk_bytes"), "disk_bytes"),
)

_WHERE_KNOWN: Final[Sequence[doc.Column[Estimate]]] = (
    doc.Column("sure to fit", "", lambda it: "any" if it.most == MOST_SAMPLES else it.most),
    doc.Column("time", None, _time),
)
_MOSTLY: Final = doc.Column[Estimate](
    "mostly", None, lambda each: max(each.memory, key=attrgetter("bytes")).name
)


def _fits(limit: int | None) -> doc.Column[Estimate]:
    heading = "" if limit is None else f"fits {size(limit)}"
    return doc.Column(heading, "", lambda each: None if limit is None else each.fits(limit), "fits")


def _notes(model: EstimatedModel, estimates: Sequence[Estimate]) -> list[str]:
    """What the figures rest on beyond the model."""
    notes = list(assumptions(model.cost))
    if model.unsized:
        notes.append(
            f"{counted(model.unsized, 'tensor')} of unknown size: the estimates leave them out, so "
            "that more may be needed; --input and --dim give the lengths of inputs"
        )
    for each in {each.library: each for each in estimates}.values():
        if not each.is_installed:
            but = "so its memory is assumed: for its methods the answer is perhaps or no"
            notes.append(f"{each.library} is not installed here, {but}")
        elif each.torch:
            torch = f"imports torch, {size(each.torch)}, which is in 'at most' alone"
            notes.append(f"{each.library}: quant_pre_process {torch}")
    return notes


# --- for programs -------------------------------------------------------------------------


def _for_programs(limit: int | None) -> Sequence[doc.Column[Estimate]]:
    probed = doc.Column[Estimate]("probed_samples", "", attrgetter("probed"))
    most = doc.Column[Estimate]("most_samples", "", attrgetter("most"))
    return (*doc.of_attributes("library", "method"), probed, *_AMOUNTS, most, _fits(limit))


def _data(
    model: EstimatedModel, estimates: Sequence[Estimate], limit: int | None
) -> dict[str, Any]:
    seconds = doc.Column[Estimate]("seconds", "s", lambda it: it.seconds or None)
    rows = doc.records((*_for_programs(limit), seconds), estimates)
    return {
        "schema": SCHEMA, "model": model.cost.path, "weight_bytes": model.weight_bytes,
        "input_bytes": model.input_bytes,
        "input_shapes": {tensor.name: list(tensor.shape or ()) for tensor in model.inputs},
        "notes": _notes(model, estimates), "unsized_tensors": model.unsized,
        "layers": {whose: asdict(layer) for whose, layer in model.layers.items()},
        "limit_bytes": limit,
        "estimates": [
            {**row, "memory": [*map(asdict, each.memory)], "disk": [*map(asdict, each.disk)]}
            for row, each in zip(rows, estimates, strict=True)
        ],
    }  # fmt: skip
