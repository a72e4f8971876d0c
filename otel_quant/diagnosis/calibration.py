"""Findings about the data of a calibration, from what reached each layer: sentences, the worst first."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from operator import attrgetter
from typing import Any, Final

from otel_quant.schema import semconv
from otel_quant.schema.readings import LayerSeen
from otel_quant.schema.units import counted, cut

_FEW: Final = 8  # Tokens: with fewer, the range of a layer depends on single values
_GROWN: Final = 2.0  # Factor by which a range has to grow in the last tenth of the samples
_LEAST: Final = 32  # Samples: of a smaller calibration it is not reported that fewer would do
_SHARE: Final = 0.25  # Share of the samples within which all ranges have to stop growing for that
_MOST: Final = 3  # Names in a sentence
_LONGEST: Final = 80

_EXPERT: Final = re.compile(r"(.*experts?)[./_](\d+)(?!\d)")
_LAYER: Final = re.compile(r"\b(?:layers?|blocks?|h)[./](\d+)\b")


def attributes(layers: Sequence[LayerSeen], *, is_over: bool) -> dict[str, Any]:
    """Returns the attributes of a step that has calibrated, or was broken off."""
    known: dict[str, Any] = {}
    if found := findings(layers, is_over=is_over):
        known[semconv.CALIBRATION_FINDINGS] = tuple(found)
    ends = [each.settled or 0 for each in layers if each.samples]
    most = max((each.samples for each in layers), default=0)
    if is_over and not found and most >= _LEAST and all(ends) and max(ends) <= _SHARE * most:
        known[semconv.CALIBRATION_SETTLED] = max(ends)
    return known


def findings(layers: Sequence[LayerSeen], *, is_over: bool) -> list[str]:
    """Returns what is wrong with a calibration; before it is over, only what more samples would not mend."""
    found = list(_not_finite(layers))
    # If nothing was reached, the program ran another copy of the model, or a compiled one.
    if any(each.samples for each in layers):
        found += [*_starved(layers, is_over), *(_growing(layers) if is_over else ())]
    return found


def _not_finite(layers: Sequence[LayerSeen]) -> Iterator[str]:
    bad = sorted((each for each in layers if not each.is_finite), key=lambda it: it.sample or 0)
    for first in bad[:1]:
        at = "" if first.sample is None else f", sample {first.sample:,}"
        more = f", then at {counted(len(bad) - 1, 'other layer')}" if bad[1:] else ""
        # Without a shape only the session's minimum and maximum are known, which may ignore NaN.
        what = "the first value" if first.tokens is not None else "one value, maybe not the first,"
        yield f"{what} that is not finite is at {cut(first.layer, _LONGEST)}{at}{more}"


def _starved(layers: Sequence[LayerSeen], is_over: bool) -> Iterator[str]:
    """Yields which experts and which other layers none or few tokens reached."""
    experts: dict[str, dict[str, LayerSeen]] = {}  # Of each the part that most samples reached
    others: list[LayerSeen] = []
    for each in layers:
        if (found := _EXPERT.match(each.layer)) is None:
            others.append(each)
        else:
            those = experts.setdefault(found[1], {})
            those[found[2]] = max(each, those.get(found[2], each), key=lambda it: it.samples)
    if not is_over:
        known = experts.items()
        experts = {name: of for name, of in known if max(map(_samples, of.values())) >= _FEW}
    yield from _starved_experts(experts)
    most = max(map(_samples, layers))
    unseen = [each for each in others if each.samples < most and _has_few(each)]
    if is_over and unseen:
        names = _named([cut(each.layer, _LONGEST) for each in unseen])
        yield f"{len(unseen):,} of {counted(len(others), 'layer')} {_saw(unseen)}: {names}"


def _starved_experts(experts: Mapping[str, Mapping[str, LayerSeen]]) -> Iterator[str]:
    """Yields which experts of the worst layer none or few tokens reached, and how many of others."""
    few = {name: {at: it for at, it in of.items() if _has_few(it)} for name, of in experts.items()}
    told = sorted(filter(few.get, few), key=lambda name: -len(few[name]) / len(experts[name]))
    for worst in told[:1]:
        found, of = _LAYER.search(worst), counted(len(experts[worst]), "expert")
        where = f"layer {found[1]}" if found else cut(worst, _LONGEST)
        saw, which = _saw([*few[worst].values()]), _named([*few[worst]])
        some, every = (sum(len(each[name]) for name in told[1:]) for each in (few, experts))
        rest = f"; in {counted(len(told) - 1, 'more layer')} {some:,} of {every:,}" if every else ""
        yield f"{len(few[worst]):,} of {of} of {where} {saw}: {which}{rest}"


_samples: Final = attrgetter("samples")


def _has_few(layer: LayerSeen) -> bool:
    return not layer.samples or (layer.tokens is not None and layer.tokens < _FEW)


def _named(names: Sequence[str]) -> str:
    more = f" and {len(names) - _MOST:,} more" if names[_MOST:] else ""
    return ", ".join(names[:_MOST]) + more


def _saw(few: Sequence[LayerSeen]) -> str:
    none = sum(not each.samples for each in few)
    some = f"saw fewer than {_FEW} tokens{f' ({none:,} of them none)' if none else ''}"
    return "saw no token" if none == len(few) else some


def _growing(layers: Sequence[LayerSeen]) -> Iterator[str]:
    grown = [(each.growth, each.layer) for each in layers if (each.growth or 0.0) >= _GROWN]
    if grown:
        times, layer = max((each.growth or 0.0, each.layer) for each in layers)
        of = f"{len(grown):,} of {counted(len(layers), 'layer')}"
        by = f"that of {cut(layer, _LONGEST)} {times:,.1f} times as wide"
        yield f"in the last tenth of the samples the range of {of} grew, {by}: more samples would change it"
