"""Layers of two models beside each other: which are the same, how long they take in each, what that has brought, and why."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import chain
from math import inf
from operator import attrgetter
from typing import Final, NamedTuple, TypeAlias

from otel_quant.inference import results
from otel_quant.schema.units import counted, share_text, speed_text
from otel_quant.views.text import phrase

_MOST_NAMES: Final = 3

COSTS: Final = "costs more than it gains"
HURTS: Final = "hurts accuracy"
VERDICTS: Final = ("gains", COSTS, HURTS)

_SHARE: Final = re.compile(r" \([0-9.]+ % of the time\)")


def accuracy_of(model: results.ModelResult) -> results.Accuracy:
    """Returns how far off a model is; of what was not compared, nothing is known."""
    return model.accuracy or results.Accuracy()


def text_of(finding: results.Finding) -> str:
    """Returns what is wrong, without its share and what would change it."""
    return _SHARE.split(finding.sentence)[0].removesuffix(f"; fix: {finding.remedy}")


def _why(finding: results.Finding) -> str:
    """Returns the reason in a finding or, of one about accuracy, all of it but the layer's name."""
    if finding.is_about_accuracy:
        return text_of(finding).replace(f" of `{finding.node}`", "")
    return text_of(finding).partition(": ")[2] or text_of(finding)


def _layer(kernel: results.RanKernel) -> str | None:
    return kernel.layer or kernel.node


def by_node(
    ran: results.Ran, of: Callable[[results.RanKernel], str | None] = attrgetter("node")
) -> dict[str, list[results.RanKernel]]:
    """Returns the kernels of each node of the file, or module; the slowest first, of each too."""
    groups: dict[str, list[results.RanKernel]] = {}
    for each in ran.kernels:
        name = of(each) or f"({'inserted' if each.is_conversion else 'no node'}) {each.name}"
        if each.is_compiled:
            count = phrase("{}, ", each.nodes, lambda number: counted(number, "node"))
            name = f"({count}compiled) {each.op_type}"
        groups.setdefault(name, []).append(each)
    return dict(sorted(groups.items(), key=lambda each: -_micros(each[1])))


def _micros(kernels: Iterable[results.RanKernel]) -> float:
    return sum(each.micros for each in kernels)


def as_one(
    name: str, nodes: Mapping[str, Sequence[results.RanKernel]], those: Sequence[str]
) -> results.RanKernel | None:
    """Returns the kernels of some nodes as one, with the operators of all; None if there are none."""
    kernels = list(chain.from_iterable(nodes.get(node, ()) for node in those))
    if not kernels:
        return None
    names = list(dict.fromkeys(each.op_type for each in kernels))
    if len(names) > _MOST_NAMES:
        names[_MOST_NAMES - 1 :] = [f"{len(names) - _MOST_NAMES + 1:,} more"]
    times = f" x {len(kernels)}" if len(kernels) > 1 else ""
    row = replace(results.together(name, kernels), op_type=f"{', '.join(names)}{times}")
    if len(those) > 1:
        return replace(row, macs=None)
    main = max(kernels, key=lambda each: (not each.is_conversion, each.macs or 0))
    return replace(row, macs=main.macs, inputs=main.inputs, outputs=main.outputs)


_ALIKE: Final = 0.05  # Part of a time below which two are not told apart

_RESOLUTION: Final = 2.0
"""Microseconds by which two times that onnxruntime's profiler counts in whole ones may differ."""


_MADE: Final = re.compile(
    r"(?<=.)(_quant|_output_quantized|_quantized|_(MatMul|matmul|DQ)|_Q\d+G?|_Bnb4|/\w+Fusion/?)$"
)
"""What quantizers add to the name of a node that they replace."""


def _partner(name: str, others: Collection[str], own: Collection[str]) -> str:
    """Returns a node's name as another model has it, without what quantizers add; its own if none fits."""
    found = name
    while found not in others:
        shorter = _MADE.sub("", found)
        if shorter == found or shorter in own:
            return name
        found = shorter
    return found


_Kernels: TypeAlias = Mapping[str, Sequence[results.RanKernel]]


def _homes(*models: _Kernels) -> Mapping[str, str]:
    """Returns by layer the one whose row it has: what one kernel does in one of the models is one row in both."""
    homes: dict[str, str] = {}
    macs = Counter[str]()
    for name, kernels in chain.from_iterable(nodes.items() for nodes in models):
        macs[name] += sum(each.macs or 0 for each in kernels)

    def home(name: str) -> str:
        while name in homes:
            name = homes[name]
        return name

    for nodes in models:
        fused = [
            (part, name)
            for name, kernels in nodes.items()
            for each in kernels
            for part in each.parts
            if part in macs and not each.is_conversion
        ]
        times = Counter(part for part, _ in fused)
        for part, name in fused:
            less, most = sorted((home(part), home(name)), key=macs.__getitem__)
            if less != most and times[part] == 1:
                homes[less] = most
    return {name: home(name) for name in homes}


def _moved(nodes: _Kernels, homes: Mapping[str, str]) -> dict[str, list[results.RanKernel]]:
    """Returns kernels by the layers whose rows they have."""
    found: dict[str, list[results.RanKernel]] = {}
    for name, kernels in nodes.items():
        found.setdefault(homes.get(name, name), []).extend(kernels)
    return found


class Pair(NamedTuple):
    """A layer in two models: the sum of its kernels in each."""

    name: str
    before: results.RanKernel | None
    after: results.RanKernel | None
    error: float | None
    reason: str  # What is wrong with it in the second model, where that is known
    cause: str  # The same of all layers that it is wrong with, perhaps behind their operator
    hurts: bool  # Whether the outputs lose by it
    is_quantized: bool  # Whether the second model is, and the first is not

    @property
    def ratio(self) -> float | None:
        """The second time by the first; 1 where they differ no more than from run to run, or by 5 %."""
        if not (self.before and self.after and self.before.micros and self.after.micros):
            return None
        apart = abs(self.after.micros - self.before.micros)
        spread = (self.before.spread or 0.0) + (self.after.spread or 0.0)
        is_apart = apart > max(spread, _ALIKE * self.before.micros, _RESOLUTION)
        return self.after.micros / self.before.micros if is_apart else 1.0

    @property
    def lost(self) -> float:
        """Microseconds that it takes longer, where it costs more than it gains."""
        if not (self.before and self.after and self.verdict == COSTS):
            return 0.0
        return self.after.micros - self.before.micros

    @property
    def change(self) -> str | None:
        """How many times faster or slower it has become."""
        if self.ratio is None:
            return None
        return speed_text(self.ratio) if self.ratio != 1 else "within noise"

    @property
    def verdict(self) -> str | None:
        """What quantizing it has brought; None where it was not quantized, or that is not clear."""
        before, after, ratio = self.before, self.after, self.ratio
        if self.hurts:
            return HURTS
        if not (self.is_quantized and before and after and ratio and after.macs) or ratio == 1:
            return None
        if (before.op_type, before.runs_in) == (after.op_type, after.runs_in):
            return None
        return "gains" if ratio < 1 else COSTS

    @property
    def type(self) -> str | None:
        """What its contraction runs in, or its slowest kernel takes, in one model and in the other."""
        known = [each.runs_in for each in (self.before, self.after) if each and each.runs_in]
        return " -> ".join(dict.fromkeys(known)) or None


class Beside:
    """A model beside the first one, layer by layer."""

    def __init__(self, first: results.ModelResult, model: results.ModelResult) -> None:
        self._first, self._model = first, model
        before, after = (by_node(it.ran, _layer) if it.ran else {} for it in (first, model))
        after = _moved(after, {name: _partner(name, before, after) for name in after})
        homes = _homes(before, after)

        def home(name: str) -> str:
            found = _partner(name, before, ())
            return homes.get(found, found)

        self.before, self.after = _moved(before, homes), _moved(after, homes)
        self._errors = {home(each.node): each for each in reversed(accuracy_of(model).layers)}
        named = (each for each in model.findings if each.is_about_accuracy)
        self._wrong = {home(each.node): _why(each) for each in named}
        slow = (each for each in model.findings if not each.is_about_accuracy)
        slowest = sorted(slow, key=attrgetter("micros"))
        self._slow = {kernel: each for each in slowest for kernel in each.kernels}

    @property
    def names(self) -> list[str]:
        """The layers, the slowest in one of the two first."""

        def slowest(name: str) -> float:
            return -max(_micros(nodes.get(name, ())) for nodes in (self.before, self.after))

        return sorted({**self.before, **self.after}, key=slowest)

    def pair(self, name: str, those: Sequence[str]) -> Pair:
        """Returns some layers as one."""
        accuracy = accuracy_of(self._model)
        lowest = accuracy.sqnr_of_layers or accuracy.decisive_sqnr
        outputs, is_poor = (inf, True) if lowest is None else (lowest, lowest < results.POOR)
        errors = [self._errors[each] for each in those if each in self._errors]
        known = [each.all for each in errors if each.all is not None]
        wrong = [each for each in those if each in self._wrong]
        hurting = [it for it in errors if it.hurts(outputs, is_named=bool(wrong))]
        hurts = bool(hurting or (wrong and is_poor and not errors))
        cause, reason = self._reason(those[0]) if len(those) == 1 and not hurts else ("", "")
        for it in hurting:
            reason = reason or f"the outputs lose {it.lost or 0:.1f} dB by it"
        reason = self._wrong[wrong[0]] if hurts and wrong else reason
        return Pair(
            name, as_one(name, self.before, those), as_one(name, self.after, those), min(known, default=None), reason,
            cause, hurts, (self._first.role, self._model.role) == ("float", "quantized"),
        )  # fmt: skip

    def _reason(self, name: str) -> tuple[str, str]:
        """Returns why a layer is slow, for all such layers and for it: a finding about most of its time, else which kernels take it."""
        kernels = self.after.get(name, ())

        def part(finding: results.Finding) -> float:
            return _micros(each for each in kernels if each.name in finding.kernels)

        known = [self._slow[each.name] for each in kernels if each.name in self._slow]
        found = max(known, key=part, default=None)
        if found is not None and 2 * part(found) > _micros(kernels):
            has_row = _partner(found.node, self.before, ()) in {*self.before, *self.after}
            of = "" if has_row else f"`{found.node}`: "
            return found.alike, f"{of}{_why(found)}"
        slowest = max(kernels, key=attrgetter("micros"), default=None)
        if slowest is None or not slowest.micros:
            return "", ""
        if slowest.is_conversion:
            share = _micros(it for it in kernels if it.is_conversion) / _micros(kernels)
            return (
                "most of their time only converts",
                f"{share_text(share)} of its time only converts",
            )
        before = self.before.get(name, ())
        if slowest.micros > _micros(before):
            reason = f"its kernel for {slowest.runs_in} is slower"
            return f"{slowest.op_type}: {reason}", reason
        is_more = len(kernels) > len(before)
        return "", f"{len(kernels):,} kernels run in place of {len(before):,}" * is_more
