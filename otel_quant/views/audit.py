"""What an audit has found, as a document: the verdict, what is wrong, and the layers, folded."""

from __future__ import annotations

from collections.abc import Iterator
from operator import attrgetter
from typing import Final

from otel_quant.auditing.results import Audit, AuditedLayer, AuditProblem, folded, pattern_of
from otel_quant.schema.units import share_text
from otel_quant.views import document as doc

_MOST_PROBLEMS: Final = 50
_MOST_LAYERS: Final = 40
_MOST_WORST: Final = 10
_LONGEST: Final = 120  # Characters of a name

_Alike = list[AuditedLayer]  # Layers that differ in numbers only


def document(audit: Audit) -> doc.Document:
    """Returns an audit as a document."""
    bad, sheet = not audit.passed, lambda: doc.Table.of(_PROBLEMS, audit.problems)
    over, data = f"Audit of {audit.path}", audit.to_dict
    return doc.Document(_parts(audit), audit.answer, over, bad, True, sheet, data)


def _parts(audit: Audit) -> Iterator[doc.Part]:
    if audit.problems:
        title = "what is wrong, the worst first"
        table = doc.Table.of(_PROBLEMS, audit.problems, id="problems", title=title)
        yield table.first(_MOST_PROBLEMS, "problem")
    alike: dict[tuple[str, str, str], _Alike] = {}
    for each in audit.layers:
        alike.setdefault((pattern_of(each.name), each.state, each.type), []).append(each)
    if alike:
        table = doc.Table.of(_LAYERS, alike.values(), known_only=True, id="layers", title="layers")
        yield table.first(_MOST_LAYERS, "kind", "kinds of layers")
    known = [each for each in audit.layers if each.sqnr is not None]
    if worst := sorted(known, key=attrgetter("sqnr")):
        title = "weights against the float model, the worst first"
        table = doc.Table.of(_ERRORS, worst, id="worst", title=title)
        yield table.first(_MOST_WORST, "better layer")
    read, of, why = audit.scales
    if of and why:
        yield doc.Lines((f"Of the scales {share_text(read / of)} were read: {why}.",))


_PROBLEMS: Final[tuple[doc.Column[AuditProblem], ...]] = (
    doc.Column("where", value=attrgetter("where"), longest=_LONGEST),
    doc.Column("kind", value=attrgetter("kind")),
    doc.Column("what", value=attrgetter("what")),
)


_ERRORS: Final[tuple[doc.Column[AuditedLayer], ...]] = (
    doc.Column("layer", value=attrgetter("name")),
    doc.Column("SQNR", "dB", attrgetter("sqnr"), digits=1),
    doc.Column("type", value=attrgetter("type")),
)

_LAYERS: Final[tuple[doc.Column[_Alike], ...]] = (
    doc.Column("layers", value=lambda it: folded(each.name for each in it)[0], longest=_LONGEST),
    doc.Column("state", value=lambda it: it[0].state),
    doc.Column("type", value=lambda it: it[0].type or None),
    doc.Column("weights", "", lambda it: sum(each.elements for each in it) or None),
    doc.Column("size", "By", lambda it: sum(each.bytes for each in it) or None),
)
