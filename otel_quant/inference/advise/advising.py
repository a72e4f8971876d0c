"""Finds the nodes of a quantized model to leave in float, and measures the model that this makes."""

from __future__ import annotations

import json
import re
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from math import inf
from pathlib import Path
from typing import Final

from otel_quant.base import machine
from otel_quant.cost import CostError, analyze
from otel_quant.cost.graph import obstacles
from otel_quant.inference.advise.advice_results import AdviceResult, AdvisedNode
from otel_quant.inference.advise.choosing import Choice, Limit, Target
from otel_quant.inference.advise.quantized_parts import QuantizedParts
from otel_quant.inference.fix.fixing import FixError, read_quantized
from otel_quant.inference.measure import files_result, run_in_turns
from otel_quant.inference.model_process import ModelError
from otel_quant.inference.onnx_session import EXACT_SUMS
from otel_quant.inference.rounds import latency
from otel_quant.inference.subjects import OnnxModel, Options, with_ranges

_BUDGET: Final = re.compile(
    r"(?=sqnr.*dB|latency.*(?:x|ms)|size.*(?:x|MB))(sqnr>=\+?|latency<=|size<=)(\d+(?:\.\d+)?)(dB|x|ms|MB)"
)
_DEFAULT: Final = "sqnr>=+3dB"

_UNDOES: Final = "WeightBiasQuantization"
_CONVERT: Final = ("QuantizeLinear", "DequantizeLinear")

_PLACES: Final = {
    "onnx.quantize": "for quantize_static: nodes_to_exclude=",
    "quark.onnx": "for QConfig (a QuantizationConfig calls it nodes_to_exclude): exclude=",
}
"""Producer of a file -> where its quantizer takes the names of nodes."""

_TORCH: Final = "pytorch"
_OF_MODULES: Final = "for torchao, of modules: set_module_name_qconfig(NAME, None) for each of "

_BY_CODES: Final = ("QLinear", "QGemm")
"""Beginnings of operators that take and make integers: there is nothing to leave in float by."""

_MET: Final = "the budget is met as it is"
_MET_THEN: Final = "the budget is met with sums of 32 bits"
_NOTHING: Final = "no node gains enough by it"

_TRIES: Final = 4
"""Lists whose SQNR is measured, until one is just within the budget: noise only nearly adds up."""

_ABOUT: Final = 1.05
"""Processes of a model differ in time by so much."""

_NEAR: Final = 0.85
"""Noise by what is allowed from which on a list is not too long."""


@dataclass(frozen=True, slots=True)
class AdviceWanted:
    """What the user asks for."""

    float_model: str
    model: str
    target: Target = "accuracy"
    budget: str = ""  # Empty for the default of the target
    # Quantizes again with some nodes left in float, and returns the file
    rerun: Callable[[Sequence[str]], str] | None = None


def advise(wanted: AdviceWanted, options: Options) -> AdviceResult:
    """Returns which nodes to leave in float, and what was measured of that."""
    budget = wanted.budget or (_DEFAULT if wanted.target == "accuracy" else "")
    found = _BUDGET.fullmatch(budget)
    if found is None and (budget or wanted.target == "size"):
        known = "sqnr>=35dB, sqnr>=+3dB, latency<=5ms, latency<=1.2x, size<=20MB or size<=2x"
        raise FixError(f"budget {budget!r} for {wanted.target}: expected {known}")
    if any(it.op_type.startswith(_BY_CODES) for it in read_quantized(wanted.model).graph.node):
        why = "has operators on integers; expected quant_format=QuantFormat.QDQ of the quantizer"
        raise FixError(f"{wanted.model}: {why}")
    try:
        with ExitStack() as kept:
            return _Advising(replace(wanted, budget=budget), options, kept).result()
    except CostError as error:
        raise FixError(str(error)) from error
    except OSError as error:
        raise FixError(f"{error.filename}: {error.strerror or error}") from error


class _Advising:
    """One model beside its float model, and what is found of it."""

    def __init__(self, wanted: AdviceWanted, options: Options, kept: ExitStack) -> None:
        paths = (wanted.float_model, wanted.model)
        options = with_ranges(options, paths)
        self._wanted, self._options, self._kept = wanted, options, kept
        models = [OnnxModel(path, path, options, is_profiled=True) for path in paths]
        self._float, self._own = models
        self._quantized = self._own
        self._measure(models)
        is_for_time = wanted.target == "latency" and not wanted.budget.startswith("sqnr")
        self._sums = None if is_for_time else self._own.sums
        self._before = self._noise(self._own)
        if self._sums and not self._sums.is_of_copy:
            self._options = replace(options, entries=EXACT_SUMS)
            self._own = OnnxModel(paths[1], paths[1], self._options, is_profiled=True)
            self._measure([self._own])
        self._choice = self._made_choice()
        self._limit = self._made_limit()

    def _measure(self, models: Sequence[OnnxModel], *, is_timed: bool = True) -> None:
        run_in_turns(models, self._options, self._kept, is_timed=is_timed)
        for each in models:
            if problem := each.problem or each.accuracy(self._float).problem:
                raise FixError(f"{each.name}: {problem}")

    def _noise(self, model: OnnxModel) -> float:
        sqnr = model.accuracy(self._float).lowest_sqnr
        return 0.0 if sqnr is None else _power(sqnr)

    def _made_choice(self) -> Choice:
        """Returns what may be left in float, with its noise, its time and its size."""
        parts = QuantizedParts(self._wanted.float_model, self._wanted.model)
        errors = parts.with_errors(as_inputs=False).saved(self._folder / "errors.onnx")
        floats = parts.with_errors(as_inputs=True).saved(self._folder / "floats.onnx")
        first = self._wanted.float_model
        try:
            found = self._own.process.ask("noise", errors=errors, floats=floats, first=first)
        except ModelError as error:
            why = f"how much of its error each node makes cannot be measured: {error}"
            raise FixError(f"{self._wanted.model}: {why}") from error
        rest = min(self._noise(self._own), found["rest"])
        factor = (self._noise(self._own) - rest) / (sum(found["parts"].values()) or 1)
        noise = {name: factor * power for name, power in found["parts"].items()}
        kernels = [it for it in self._own.detail["ran"].kernels if it.op_type in _CONVERT]
        size = sum(it.activations or 0 for it in kernels) or inf
        rate = 5e-6 * sum(it.micros for it in kernels) / size  # of an element: a float and a byte
        makers = {name: self._own.file.maker_of(name) for name in parts.sources}
        sizes = {name: op.outputs[0].size or 0 for name, op in makers.items() if op is not None}
        conversions = {name: rate * size for name, size in sizes.items()}
        times = _times(self._own), _times(self._float)
        return Choice(parts, noise, rest, *times, conversions, self._own.file.file_bytes)

    @property
    def _folder(self) -> Path:
        return self._own.process.folder

    def _made_limit(self) -> Limit | None:
        found, now = _BUDGET.fullmatch(self._wanted.budget), self._choice.figures(())
        if found is None:
            return None
        kind, number, unit = found[1], float(found[2]), found[3]
        if kind.startswith("sqnr"):
            before = self._before if kind.endswith("+") else 1.0
            return Limit("noise", _power(number) * before)
        if kind.startswith("size"):
            return Limit("bytes", number * (now.bytes if unit == "x" else 1e6))
        median = latency(self._own, self._float).median
        return Limit("seconds", number * now.seconds / (1 if unit == "x" else 1000 * median))

    def _part(self, model: OnnxModel) -> float:
        """Returns what is limited, as it was measured of a model, by what is allowed."""
        if self._limit is None:
            return 0.0
        if self._limit.figure == "noise":
            return self._noise(model) / self._limit.value
        if self._limit.figure == "bytes":
            return model.file.file_bytes / self._limit.value
        return self._choice.figures(()).seconds * self._slower(model) / _ABOUT / self._limit.value

    def _slower(self, model: OnnxModel) -> float:
        """Returns the CPU time of a model by that of the quantized one."""
        return (model.cpu_time or 0.0) / (self._quantized.cpu_time or inf)

    def result(self) -> AdviceResult:
        """Returns which nodes to leave in float, with the model that this makes beside the others."""
        wanted, options, left = self._wanted, self._options, self._within()
        names = tuple(each.name for each in self._choice.parts.nodes if each.name in left)
        about = (wanted.float_model, wanted.model, wanted.target, wanted.budget)
        lines, entries = tuple(self._first_of_all()), dict(options.entries)
        result = AdviceResult(*about, self._nodes(left), names, lines, session_config=entries)
        if not left:
            is_of_noise = self._limit is not None and self._limit.figure == "noise"
            is_met = is_of_noise and self._part(self._own) <= 1
            met = _MET_THEN if entries else _MET
            return replace(result, why=met if is_met else _NOTHING)
        forecast, load = self._forecast(left), machine.load()
        own = {"float": wanted.float_model, "quantized": wanted.model}
        models = [OnnxModel(*each, options, is_profiled=False) for each in own.items()]
        models.append(forecast)
        if wanted.rerun is not None:
            path, how = wanted.rerun(names), forecast.options
            models.append(OnnxModel("rerun", path, how, is_profiled=False))
        self._float, self._quantized, *_ = models
        self._measure(models)
        disabled = tuple(forecast.options.disabled)
        is_beyond = self._part(forecast) > 1
        why = "the budget is not met: no list that was measured comes closer" * is_beyond
        # Less is no difference between two processes
        is_slower = wanted.target == "latency" and self._slower(forecast) * _ABOUT >= 1
        why = why or "it is not told apart as faster" * is_slower
        if not is_slower or self._limit is not None:
            lines += tuple(self._option(names, disabled))
        return replace(
            result,
            disabled_optimizers=disabled,
            option=lines,
            measured=files_result(models, options, load),
            why=why,
        )

    def _first_of_all(self) -> Iterator[str]:
        """Yields what is to be done before nodes are left in float, where sums saturate."""
        if self._sums is not None:
            own = " when otel-quant fix has given each node its own weights" * self._sums.is_of_copy
            yield (
                "where the model is loaded, since sums of uint8 by int8 saturate at 16 bits on this processor: "
                f"{obstacles.REWRITES['sums'].text}, which alone gives {self._sums.exact:.1f} dB, not {self._sums.own:.1f} dB{own}"
            )

    def _option(self, names: Sequence[str], disabled: Sequence[str]) -> Iterator[str]:
        """Yields the lines for the script of the tool that has made the model."""
        producer, nodes = self._own.file.model.producer, self._choice.parts.nodes
        place = _PLACES.get(producer, "for the quantizer, of nodes: ")
        modules = self._choice.parts.modules(names) if producer == _TORCH else ()
        place, listed = (_OF_MODULES, modules) if modules else (place, names)
        yield f"{place}{json.dumps(listed, ensure_ascii=False)}"
        kinds = {each.op_type for each in nodes if each.name in names}
        are_all = {each.name for each in nodes if each.op_type in kinds} == {*names}
        if are_all and producer in _PLACES:
            yield f"or, since these are all of their kind: op_types_to_quantize without {', '.join(sorted(kinds))}"
        if disabled:
            yield (
                "where the model is loaded, since onnxruntime would quantize some of them again: "
                f"InferenceSession(path, disabled_optimizers={json.dumps(disabled)})"
            )

    def _within(self) -> frozenset[str]:
        """Returns the nodes to leave in float; of several lists that are measured the shortest within the limit."""
        aim, tried = self._limit, dict[frozenset[str], float]()
        for _ in range(_TRIES):
            left = self._choice.nodes(self._wanted.target, aim)
            if not left or aim is None or aim.figure != "noise":
                return left
            if left in tried:
                break
            model = self._forecast(left)
            self._measure([model], is_timed=False)
            tried[left] = part = self._part(model)
            if _NEAR <= part <= 1:
                break
            aim = aim._replace(value=aim.value / max(part, 2 / 3) * (_NEAR if part > 1 else 1))
        within = [each for each, part in tried.items() if part <= 1]
        return min(within, key=len) if within else min(tried, key=tried.__getitem__)

    def _forecast(self, left: frozenset[str]) -> OnnxModel:
        """Returns the model with some nodes in float, which onnxruntime leaves in float too."""
        options, model = self._options, self._choice.parts.with_floats(left)
        path = model.saved(self._folder / "forecast.onnx")
        cost = analyze(path, inputs=options.inputs, dims=options.dims)
        options = replace(options, disabled=(_UNDOES,) * bool(cost.on_loading))
        return OnnxModel("forecast", path, options, is_profiled=False)

    def _nodes(self, left: frozenset[str]) -> tuple[AdvisedNode, ...]:
        choice, total = self._choice, self._choice.figures(()).noise or 1
        shares = {name: power / total for name, power in choice.noise.items()}
        nodes = [
            AdvisedNode(
                *(it.name, it.op_type, it.name in left),
                noise=sum(shares.get(each, 0.0) for each in it.makes) if it.makes else None,
                weights_noise=shares.get(it.name),
                seconds=choice.seconds.get(it.name),
                float_seconds=choice.float_seconds.get(it.name),
                growth=choice.parts.growth.get(it.name),
            )
            for it in choice.parts.nodes
            if not it.follows
        ]
        made = {result for it in choice.parts.nodes for result in it.makes}
        inputs = {codes: it for it, codes in reversed(choice.parts.of.items()) if codes not in made}
        nodes += [AdvisedNode(it, "", False, shares.get(codes)) for codes, it in inputs.items()]
        return tuple(sorted(nodes, key=lambda it: -(it.noise or 0) - (it.weights_noise or 0)))


def _times(model: OnnxModel) -> Mapping[str, float]:
    """Returns the seconds of each node with what converts for it."""
    found: defaultdict[str, float] = defaultdict(float)
    for each in model.detail["ran"].kernels:
        found[each.layer or each.node or each.name] += 1e-6 * each.micros
    return found


def _power(decibels: float) -> float:
    return float(10 ** (-decibels / 10))
