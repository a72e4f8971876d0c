"""Finds the nodes of a quantized model to leave in float, and measures the model that this makes."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from math import inf, log10
from pathlib import Path
from typing import Any, Final

from otel_quant.base import machine
from otel_quant.cost import CostError, analyze
from otel_quant.inference.advise.advice_results import AdviceResult, AdvisedFile, AdvisedLayer
from otel_quant.inference.advise.choosing import Choice, Costs, Limit, Target
from otel_quant.inference.advise.options_of_tools import option_of
from otel_quant.inference.fix.fixing import FixError, read_quantized
from otel_quant.inference.measure import files_result, run_in_turns
from otel_quant.inference.model_process import ModelError
from otel_quant.inference.subjects import OnnxModel, Options

_BUDGET: Final = re.compile(r"(sqnr>=\+?|latency<=|size<=)(\d+(?:\.\d+)?) ?(dB|x|ms|MB)")
_UNITS: Final = {"sqnr": ("dB",), "latency": ("x", "ms"), "size": ("x", "MB")}
_DEFAULTS: Final[Mapping[str, str]] = {"latency": "", "accuracy": "sqnr>=+3dB"}

EXPECTED: Final = "expected sqnr>=35dB, sqnr>=+3dB (more than now), latency<=1.2x (of now), latency<=5ms, size<=2x or size<=20MB"

_UNDOES: Final = "WeightBiasQuantization"

_TRIES: Final = 4
"""Lists whose SQNR is measured, until one is just within the budget: noise only adds up nearly."""

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
    budget = wanted.budget or _DEFAULTS.get(wanted.target, "")
    found = _BUDGET.fullmatch(budget)
    if (budget or wanted.target == "size") and (
        not found or found[3] not in _UNITS[re.split("[<>]", found[1])[0]]
    ):
        raise FixError(f"budget {budget!r} of {wanted.target}: {EXPECTED}")
    read_quantized(wanted.model)
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
        from otel_quant.inference.advise.quantized_parts import QuantizedParts

        self._wanted, self._options, self._kept = wanted, options, kept
        pairs = ((wanted.float_model, options), (wanted.model, replace(options, layers=True)))
        self._float, self._own = (
            OnnxModel(path, path, how, is_profiled=True) for path, how in pairs
        )
        self._measured([self._float, self._own])
        self._parts = QuantizedParts(Path(wanted.float_model), Path(wanted.model))
        self._folder = self._own.process.folder
        self._choice = Choice(self._parts, self._costs())

    def _measured(self, models: Sequence[OnnxModel], *, is_timed: bool = True) -> None:
        run_in_turns(models, self._options, self._kept, is_timed=is_timed)
        for each in models:
            if problem := each.problem or each.accuracy(self._float).problem:
                raise FixError(f"{each.name}: {problem}")

    def _costs(self) -> Costs:
        errors, floats = self._folder / "errors.onnx", self._folder / "floats.onnx"
        self._parts.errors().save(errors)
        self._parts.with_errors().save(floats)
        given = {"errors": str(errors), "floats": str(floats), "first": self._wanted.float_model}
        try:
            found = self._own.process.ask("noise", **given)
        except ModelError as error:
            raise FixError(
                f"{self._wanted.model}: its noise cannot be told apart: {error}"
            ) from error
        parts, noise = found["parts"], _noise(self._sqnr(self._own))
        factor = max(0.0, noise - found["rest"]) / (sum(parts.values()) or 1)
        micros, float_micros = map(_times, (self._own, self._float))
        return Costs(
            {name: factor * power for name, power in parts.items()}, min(noise, found["rest"]), micros, float_micros,
            self._conversions(), self._own.file.file_bytes,
        )  # fmt: skip

    def _conversions(self) -> Mapping[str, float]:
        """Returns the microseconds that it takes to convert each result, by what the file's conversions take."""
        kernels = [
            each
            for each in self._own.detail["ran"].kernels
            if each.op_type in _CONVERT and each.activations
        ]
        rate = sum(each.micros for each in kernels) / (
            sum(each.activations for each in kernels) or 1
        )
        made = {name: self._own.file.maker_of(name) for name in self._parts.sources}
        sizes = {name: 0 if op is None else op.outputs[0].size or 0 for name, op in made.items()}
        return {name: 5 * size * rate for name, size in sizes.items()}  # a float and a byte of each

    def _sqnr(self, model: OnnxModel) -> float:
        found = model.accuracy(self._float).lowest_sqnr
        return inf if found is None else found

    def _limit(self) -> Limit | None:
        found = _BUDGET.fullmatch(self._wanted.budget)
        if found is None:
            return None
        kind, number, now = found[1], float(found[2]), self._choice.before
        if kind.startswith("sqnr"):
            return Limit(
                "noise", _noise(number + (self._sqnr(self._own) if kind.endswith("+") else 0))
            )
        if kind.startswith("size"):
            return Limit("bytes", number * (now.bytes if found[3] == "x" else 1e6))
        result = files_result([self._own], self._options, None).models[0]
        assert result.latency is not None
        part = number if found[3] == "x" else number / (1000 * result.latency.median)
        return Limit("micros", part * now.micros)

    def result(self) -> AdviceResult:
        """Returns which nodes to leave in float, with the model that this makes beside the others."""
        wanted = self._wanted
        result = AdviceResult(wanted.float_model, wanted.model, wanted.target, wanted.budget)
        left = self._within(self._limit())
        result = replace(
            result,
            nodes=tuple(it.name for it in self._parts.nodes if it.name in left),
            layers=self._layers(left),
        )
        if not left:
            is_met = (
                "the budget is met as it is"
                if self._is_met(self._own)
                else "no list of nodes comes closer to it"
            )
            return replace(
                result, why=is_met if wanted.budget else "no node takes less time in float"
            )
        path = self._candidate(left)
        cost = analyze(str(path), inputs=self._options.inputs, dims=self._options.dims)
        disabled = (_UNDOES,) * bool(cost.on_loading)
        options = replace(self._options, disabled=disabled)
        models = [OnnxModel(wanted.model, wanted.model, self._options, is_profiled=False)]
        models.append(OnnxModel("forecast", str(path), options, is_profiled=False))
        if wanted.rerun is not None:
            again = wanted.rerun(result.nodes)
            models.append(OnnxModel("rerun", again, options, is_profiled=False))
        models.append(
            OnnxModel(wanted.float_model, wanted.float_model, self._options, is_profiled=False)
        )
        self._float, load = models[-1], machine.load()
        self._measured(models)
        tool, option = option_of(self._own.file.model.producer, result.nodes, disabled)
        why = (
            ""
            if self._is_met(models[1])
            else "the budget is not met: what is left makes more noise"
        )
        return replace(
            result, tool=tool, option=option, disabled_optimizers=disabled, why=why,
            expected_sqnr=_decibels(self._choice.figures(left).noise),
            files=tuple(self._file(*each) for each in zip(models, files_result(models, self._options, load).models, strict=True)),
        )  # fmt: skip

    def _is_met(self, model: OnnxModel) -> bool:
        limit = self._limit()
        return limit is None or limit.figure != "noise" or _noise(self._sqnr(model)) <= limit.value

    def _within(self, limit: Limit | None) -> frozenset[str]:
        """Returns the nodes to leave in float; of several lists that are measured the shortest within the limit."""
        target, best, aim = self._wanted.target, frozenset[str](), limit
        tried: dict[frozenset[str], float] = {}
        for _ in range(_TRIES):
            left = self._choice.nodes(target, aim)
            if not left or left in tried or limit is None or aim is None or limit.figure != "noise":
                return best or left
            model = OnnxModel(
                "forecast", str(self._candidate(left)), self._options, is_profiled=False
            )
            self._measured([model], is_timed=False)
            import os
            if os.environ.get("DBG"): print("try", len(left), self._sqnr(model), "aim", _decibels(aim.value), "exp", _decibels(self._choice.figures(left).noise), self._choice.figures(left), self._choice.before)
            tried[left] = part = _noise(self._sqnr(model)) / limit.value
            if part <= 1:
                best = left if not best or len(left) < len(best) else best
            if _NEAR <= part <= 1:
                break
            aim = aim._replace(value=aim.value * min(1 / part, 1.5) * (1 if part < 1 else _NEAR))
        return best or min(tried, key=tried.__getitem__)

    def _candidate(self, left: frozenset[str]) -> Path:
        path = self._folder / f"forecast-{abs(hash(left))}.onnx"
        self._parts.with_floats(left).save(path)
        return path

    def _layers(self, left: frozenset[str]) -> tuple[AdvisedLayer, ...]:
        costs, errors = self._choice.costs, {each.node: each for each in self._own.layers}
        total = self._choice.before.noise or 1
        found = []
        for node in [each for each in self._parts.nodes if not each.follows]:
            made = [costs.noise[it] for it in node.makes if it in costs.noise]
            weights, error = costs.noise.get(node.name), errors.get(node.name)
            found.append(
                AdvisedLayer(
                    node.name, node.op_type, node.name in left, sum(made) / total if made else None,
                    None if weights is None else weights / total, error and error.own, error and error.weights,
                    costs.float_micros.get(node.name), costs.micros.get(node.name), self._parts.growth.get(node.name, 0),
                )
            )  # fmt: skip
        return tuple(sorted(found, key=lambda it: -(it.noise or 0) - (it.weights_noise or 0)))

    def _file(self, model: OnnxModel, result: Any) -> AdvisedFile:
        roles = {self._wanted.model: "quantized", self._wanted.float_model: "float"}
        latency, role = result.latency, roles.get(model.name, model.name)
        sqnr = self._sqnr(model)
        return AdvisedFile(
            role, "" if role == "forecast" else model.path, model.file.file_bytes, latency.median, latency.cpu,
            latency.ratio, latency.is_apart, None if sqnr == inf else sqnr,
        )  # fmt: skip


_CONVERT: Final = ("QuantizeLinear", "DequantizeLinear")


def _times(model: OnnxModel) -> Mapping[str, float]:
    """Returns the microseconds of each node with what converts for it."""
    found: defaultdict[str, float] = defaultdict(float)
    for each in model.detail["ran"].kernels:
        found[each.layer or each.node or each.name] += each.micros
    return dict(found)


def _noise(sqnr: float) -> float:
    return float(10 ** (-sqnr / 10))


def _decibels(noise: float) -> float | None:
    return -10 * log10(noise) if noise else None
