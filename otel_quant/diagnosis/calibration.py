"""What is concluded from what reached the layers of a model in a calibration: sentences, the worst first."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from operator import attrgetter
from typing import Final, NamedTuple

from otel_quant.schema.readings import LayerSeen
from otel_quant.schema.units import counted, cut

_FEW: Final = 8  # Tokens below which the ranges and errors of a layer are those of single values
_GROWN: Final = (
    2.0  # Times by which a range grew in the last tenth of the samples, from which on it is told
)
_LEAST: Final = 32  # Samples from which on it is told that fewer would do
_SHARE: Final = 0.25  # Share of the samples within which all ranges settled, so that it is told
_MOST: Final = 3  # Names in a sentence
_LONGEST: Final = 80

_EXPERT: Final = re.compile(r"(.*experts?)[./_](\d+)(?!\d)")
_LAYER: Final = re.compile(r"\b(?:layers?|blocks?|h)[./](\d+)\b")


def findings(layers: Sequence[LayerSeen], *, is_over: bool) -> list[str]:
    """Returns what is wrong with a calibration; while it goes on, or if it was broken off, only what more samples do not mend."""
    found = [*_not_finite(layers)]
    reached = max((each.samples for each in layers), default=0)
    if reached:  # else another copy of the model was run, or a compiled one, which no observer of it tells of
        found += _starved(layers, is_over)
    if is_over and reached:
        found += _growing(layers)
    return found


def settled(layers: Sequence[LayerSeen]) -> int | None:
    """Returns the sample after which no range moved any more, if that was long before the last; None if not known of all."""
    known = [each.settled for each in layers if each.samples]
    most = max((each.samples for each in layers), default=0)
    ends = [each for each in known if each is not None]
    if most < _LEAST or not ends or len(ends) < len(known) or max(ends) > _SHARE * most:
        return None
    return max(ends)


def _not_finite(layers: Sequence[LayerSeen]) -> Iterator[str]:
    bad = sorted((each for each in layers if not each.is_finite), key=lambda it: it.sample or 0)
    if bad:
        first = bad[0]
        at = "" if first.sample is None else f", sample {first.sample:,}"
        more = f", then at {counted(len(bad) - 1, 'other layer')}" if bad[1:] else ""
        # The session's own minimum and maximum, all that is known of a tensor without a shape, may pass over NaN.
        what = "the first value" if first.tokens is not None else "one value, maybe not the first,"
        yield f"{what} that is not finite is at {cut(first.layer, _LONGEST)}{at}{more}"


def _starved(layers: Sequence[LayerSeen], is_over: bool) -> Iterator[str]:
    """Yields which experts and which other layers none or few tokens reached."""
    experts: dict[str, dict[str, list[LayerSeen]]] = {}
    others: list[LayerSeen] = []
    for each in layers:
        if (found := _EXPERT.match(each.layer)) is None:
            others.append(each)
        else:
            experts.setdefault(found[1], {}).setdefault(found[2], []).append(each)
    for those in experts.values():
        if len(those) == 1:  # a name alone does not make it one of several
            others += those.popitem()[1]
    groups = (_experts(name, those, is_over) for name, those in experts.items() if those)
    starved = sorted((each for each in groups if each.few), key=attrgetter("share"), reverse=True)
    if starved:
        worst, *more = starved
        yield worst.words + (
            f"; in {counted(len(more), 'more layer')} {sum(len(each.few) for each in more):,}"
            f" of {sum(each.of for each in more):,}"
            if more
            else ""
        )
    most = max(each.samples for each in layers)
    few = [each for each in others if each.samples < most and _has_few(each)]
    if is_over and few:
        names = _named([cut(each.layer, _LONGEST) for each in few])
        yield f"{len(few):,} of {counted(len(others), 'layer')} {_saw(few)}: {names}"


class _Experts(NamedTuple):
    """Those of one layer; `few` are those that few tokens reached."""

    few: list[tuple[str, LayerSeen]]
    of: int
    name: str

    @property
    def share(self) -> float:
        """How bad that is; none is worse than few."""
        return sum(1 if each.samples else 2 for _, each in self.few) / self.of

    @property
    def words(self) -> str:
        """``41 of 128 experts of layer 12 saw fewer than 8 tokens``."""
        found = _LAYER.search(self.name)
        where = f"layer {found[1]}" if found else cut(self.name, _LONGEST)
        saw = _saw([each for _, each in self.few])
        which = _named([number for number, _ in self.few])
        return f"{len(self.few):,} of {counted(self.of, 'expert')} of {where} {saw}: {which}"


def _experts(name: str, those: Mapping[str, Sequence[LayerSeen]], is_over: bool) -> _Experts:
    best = {number: max(parts, key=attrgetter("samples")) for number, parts in those.items()}
    is_told = is_over or max(each.samples for each in best.values()) >= _FEW
    few = [each for each in best.items() if is_told and _has_few(each[1])]
    return _Experts(few, len(best), name)


def _named(names: Sequence[str]) -> str:
    more = f" and {len(names) - _MOST:,} more" if names[_MOST:] else ""
    return ", ".join(names[:_MOST]) + more


def _has_few(layer: LayerSeen) -> bool:
    return not layer.samples or (layer.tokens is not None and layer.tokens < _FEW)


def _saw(few: Sequence[LayerSeen]) -> str:
    none = sum(not each.samples for each in few)
    if none == len(few):
        return "saw no token"
    return f"saw fewer than {_FEW} tokens{f' ({none:,} of them none)' if none else ''}"


def _growing(layers: Sequence[LayerSeen]) -> Iterator[str]:
    grown = [each for each in layers if each.growth is not None and each.growth >= _GROWN]
    if grown:
        most = max(grown, key=lambda it: it.growth or 0.0)
        of = f"{len(grown):,} of {counted(len(layers), 'layer')}"
        by = f"that of {cut(most.layer, _LONGEST)} {most.growth:,.1f} times as wide"
        yield f"in the last tenth of the samples the range of {of} grew, {by}: more samples would change it"
