"""Fixes a model: applies all remedies until nothing changes, and keeps what rounds beside each other show to pay."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from math import inf
from pathlib import Path
from typing import Any, Final

from otel_quant.base import machine
from otel_quant.cost import CostError
from otel_quant.cost.graph import QDQ, printable
from otel_quant.inference.fix.fix_results import FixResult, Proven, Rewrite
from otel_quant.inference.fix.rewriting import REMEDIES, Rewritten, forecast_of, rewritten
from otel_quant.inference.measure import files_result, run_in_turns
from otel_quant.inference.outputs import compared_outputs
from otel_quant.inference.results import Accuracy, InferenceResult, Ran
from otel_quant.inference.rounds import latency
from otel_quant.inference.subjects import OnnxModel, Options

PROVIDERS: Final = ("cpu",)
"""What a model can be fixed for."""

ALLOWED: Final = 0.1
"""dB by which the SQNR to the float model may fall."""

REPRODUCED: Final = 40.0
"""dB of SQNR to the input file at which, without a float model, its outputs count as reproduced."""

_INTEGERS: Final = frozenset({
    "ConvInteger", "DynamicQuantizeMatMul", "MatMulInteger", "MatMulIntegerToFloat", "MatMulNBits", "QGemm",
    "QLinearConv", "QLinearMatMul",
})  # fmt: skip
_FLOATS: Final = frozenset({
    "Conv", "ConvTranspose", "FusedConv", "FusedGemm", "FusedMatMul", "Gemm", "MatMul", "NhwcFusedConv",
})  # fmt: skip
"""Kernels of contractions."""


class FixError(Exception):
    """A model cannot be fixed; the text is the reason."""


@dataclass(frozen=True, slots=True)
class Wanted:
    """What the user asks for."""

    model: str
    output: str
    float_model: str | None = None
    only: Sequence[str] = ()  # Kinds of rewrites; empty for all
    is_dry: bool = False  # Whether only the forecast is wanted
    allowed: float = ALLOWED  # dB
    provider: str = "cpu"


def fix(wanted: Wanted, options: Options) -> FixResult:
    """Rewrites a model, proves what pays and writes that; writes nothing where nothing does."""
    _refuse(wanted)
    return _Fixing(wanted, options).result()


def _refuse(wanted: Wanted) -> None:
    """Raises the error for files that are not as they have to be."""
    if not wanted.is_dry and os.path.lexists(wanted.output):
        raise FixError(f"{wanted.output}: exists; expected a path where nothing is")
    folder = Path(wanted.output).parent
    if not wanted.is_dry and not folder.is_dir():
        raise FixError(f"{wanted.output}: {folder} is no folder")


class _Fixing:
    """One model, as it was read, and what is done with it."""

    def __init__(self, wanted: Wanted, options: Options) -> None:
        self._wanted, self._options = wanted, options
        self._folder = Path(wanted.model).parent
        self._shapes: dict[str, Any] = {"inputs": options.inputs, "dims": options.dims}
        self._model = self._read()
        try:
            self._before = forecast_of(self._model, **self._shapes)
        except CostError as error:
            raise FixError(f"{wanted.model}: {error.reason}") from error
        self._rewrites: dict[str, Rewrite] = {}  # Those that are left out or offered

    def _read(self) -> Any:
        import onnx
        from google.protobuf.message import DecodeError

        try:
            # Weights beside the file stay there: the models may be larger than memory.
            model = onnx.load(self._wanted.model, load_external_data=False)
        except (OSError, DecodeError) as error:
            raise FixError(f"{self._wanted.model}: cannot be read: {error}") from error
        if not any(node.op_type in QDQ for node in model.graph.node):
            why = "has no QuantizeLinear and no DequantizeLinear"
            raise FixError(f"{self._wanted.model}: {why}; expected a quantized model in QDQ form")
        return model

    def _with(self, kinds: Sequence[str]) -> Rewritten:
        return rewritten(self._model, self._folder, kinds, **self._shapes)

    def result(self) -> FixResult:
        """Returns what became of the model."""
        wanted = [each for each in REMEDIES if each.kind in (self._wanted.only or [each.kind])]
        everything = self._with([each.kind for each in wanted])
        kinds = list(everything.nodes)
        planned = {
            each.kind: Rewrite(
                each.kind, each.title, tuple(map(printable, everything.nodes[each.kind])),
                everything.integers[each.kind], differs=each.differs,
            )
            for each in wanted if each.kind in kinds
        }  # fmt: skip
        self._removes = {each.kind for each in wanted if each.removes_error}
        if self._wanted.float_model is None:
            for kind in [kind for kind in kinds if planned[kind].differs]:
                why = f"{planned[kind].differs}: give the float model (--float), which decides"
                self._rewrites[kind] = replace(planned[kind], state="offered", why=why)
                kinds.remove(kind)
        self._planned = planned
        if self._wanted.is_dry:
            return self._outcome(self._with(kinds), "nothing is written by --dry-run")
        return self._proven(kinds)

    def _outcome(self, found: Rewritten, why: str = "", **more: Any) -> FixResult:
        rewrites = [
            self._rewrites.get(kind)
            or replace(each, state="planned", integers=found.integers.get(kind, each.integers))
            for kind, each in self._planned.items()
        ]
        return FixResult(
            self._wanted.model, self._wanted.provider, self._before.contractions, self._before.integers,
            found.forecast.integers, tuple(rewrites), found.forecast.obstacles,
            why=why, float_model=self._wanted.float_model, **more,
        )  # fmt: skip

    def _proven(self, kinds: list[str]) -> FixResult:
        """Measures rewrites, all of them and all but one, until each of those that are left pays."""
        while kinds:
            found = self._with(kinds)
            with self._candidates(found, kinds) as paths:
                proof = _Proof(self._wanted, self._options, paths)
                worst = proof.worst(kinds, self._removes)
                for kind in kinds:
                    self._rewrites[kind] = replace(
                        self._planned[kind], **proof.of(kind), state="written",
                        integers=found.integers[kind],
                    )  # fmt: skip
                if worst is None:
                    self._place(paths[self._wanted.output])
                    more = {
                        "measured": proof.measured,
                        "proven": proof.proven,
                        "output": self._wanted.output,
                    }
                    return self._outcome(found, **more)
            kind, why = worst
            self._rewrites[kind] = replace(self._rewrites[kind], state="left out", why=why)
            kinds.remove(kind)
        return self._outcome(self._with([]), self._nothing())

    def _nothing(self) -> str:
        """Why no file is written."""
        if not self._planned:
            return "there is nothing to rewrite"
        found = [f"{each.kind}: {each.why}" for each in self._rewrites.values()]
        return f"no rewrite is to be written: {'; '.join(found)}"

    @contextmanager
    def _candidates(self, found: Rewritten, kinds: Sequence[str]) -> Iterator[dict[str, Path]]:
        """Writes what is measured, all rewrites and all but one, where its weights are found."""
        import onnx

        models = {self._wanted.output: found.model}
        if len(kinds) > 1:
            for kind in kinds:
                rest = [each for each in kinds if each != kind]
                models[_without(kind)] = self._with(rest).model
        output = Path(self._wanted.output)
        folder = self._folder if _locations(self._model) else output.parent
        stem = f".{output.name}-{os.getpid()}"
        paths = {name: folder / f"{stem}-{i}.onnx" for i, name in enumerate(models)}
        try:
            for name, path in paths.items():
                onnx.save(models[name], path)
            yield paths
        finally:
            for path in paths.values():
                path.unlink(missing_ok=True)

    def _place(self, path: Path) -> None:
        """Puts the fixed file, and what its weights lie in, where they are wanted."""
        output = Path(self._wanted.output)
        if output.parent.resolve() == path.parent.resolve():
            os.link(path, output)  # unlike a rename it replaces nothing
            return
        copies = {self._folder / each: output.parent / each for each in _locations(self._model)}
        for target in copies.values():
            if os.path.lexists(target):
                raise FixError(f"{target}: exists; expected a folder without it, for the weights")
        for source, target in {**copies, path: output}.items():
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(source, target)


def _without(kind: str) -> str:
    return f"without {kind}"


def _locations(model: Any) -> list[str]:
    """Returns the files beside a model that its weights lie in."""
    pairs = (pair for each in model.graph.initializer for pair in each.external_data)
    return list(dict.fromkeys(pair.value for pair in pairs if pair.key == "location"))


class _Proof:
    """What rounds of a model, its float model and its rewrites beside each other show."""

    def __init__(self, wanted: Wanted, options: Options, paths: Mapping[str, Path]) -> None:
        self._wanted = wanted
        named = {wanted.model: Path(wanted.model)}
        if wanted.float_model is not None:
            named[wanted.float_model] = Path(wanted.float_model)
        named |= paths
        load = machine.load()
        with ExitStack() as kept:
            self._models = {
                name: OnnxModel(name, str(path), options, is_profiled=True)
                for name, path in named.items()
            }
            for name in paths.keys() - {wanted.output}:
                self._models[name].is_profiled = False
            run_in_turns(list(self._models.values()), options, kept)
            self._refuse_problems()
            shown = [
                self._models[name]
                for name in (wanted.model, wanted.output, wanted.float_model)
                if name
            ]
            self.measured: InferenceResult = files_result(shown, options, load)
            self.proven = tuple(self._proven(each, named[each.name]) for each in shown)

    def _refuse_problems(self) -> None:
        for model in self._models.values():
            if model.problem or model.no_outputs:
                raise FixError(f"{model.name}: {model.problem or model.no_outputs}")
        first = self._models[self._wanted.model]
        for model in self._models.values():
            if found := _accuracy(model, first).problem:
                raise FixError(
                    f"{model.name}: its outputs cannot be compared with {first.name}: {found}"
                )

    def _proven(self, model: OnnxModel, path: Path) -> Proven:
        of_float = self._models.get(self._wanted.float_model or "")
        to_input = _accuracy(model, self._models[self._wanted.model])
        integers, contractions = _contractions(model.detail.get("ran"))
        worst = to_input.worst
        return Proven(
            model.name, model.file.file_bytes, integers, contractions,
            None if of_float is None else _accuracy(model, of_float).lowest_sqnr,
            to_input.lowest_sqnr, None if worst is None else worst.max_abs, _checked(path),
        )  # fmt: skip

    def _without(self, kind: str) -> OnnxModel:
        """Returns the model with all rewrites but those of a kind."""
        return self._models.get(_without(kind), self._models[self._wanted.model])

    def _sqnr(self, model: OnnxModel) -> float:
        """Returns the SQNR to the float model, or else to the input file; infinite where they are the same."""
        first = self._models[self._wanted.float_model or self._wanted.model]
        found = _accuracy(model, first)
        is_same = all(each.max_abs == 0 for each in found.outputs)
        return inf if is_same or found.lowest_sqnr is None else found.lowest_sqnr

    def of(self, kind: str) -> dict[str, Any]:
        """Returns what a kind of rewrites changes."""
        full, rest = self._models[self._wanted.output], self._without(kind)
        own, other = self._sqnr(full), self._sqnr(rest)
        known = self._wanted.float_model is not None and max(own, other) < inf
        return {"ratio": latency(full, rest).ratio, "sqnr_gain": own - other if known else None}

    def worst(self, kinds: Sequence[str], removes: set[str]) -> tuple[str, str] | None:
        """Returns the kind of rewrites that is to be left out first, and why; None if all are to stay."""
        full = self._models[self._wanted.output]
        if (found := self._too_far(full, kinds)) is not None:
            return found
        slow: list[tuple[float, str]] = []
        for kind in kinds:
            time = latency(full, self._without(kind))
            if kind not in removes and not (time.is_apart and (time.ratio or 1) < 1):
                slow.append((time.ratio or 1, kind))
        if not slow:
            return None
        ratio, kind = max(slow)
        return kind, f"it is not told apart as faster: {ratio:.2f} of the time without it"

    def _too_far(self, full: OnnxModel, kinds: Sequence[str]) -> tuple[str, str] | None:
        """Returns the kind of rewrites that costs most SQNR, if it is more than may be."""
        own, allowed = self._sqnr(full), self._wanted.allowed
        falls = {kind: self._sqnr(self._without(kind)) - own for kind in kinds}
        kind = max(falls, key=falls.__getitem__)
        if self._wanted.float_model is None:
            if own >= REPRODUCED:
                return None
            return (
                kind,
                f"outputs are at {own:.1f} dB to those of the input file; expected {REPRODUCED:.0f} or more",
            )
        fall = max(self._sqnr(self._models[self._wanted.model]) - own, falls[kind])
        if not fall > allowed:
            return None
        return kind, f"SQNR to the float model falls by {fall:.2f} dB; allowed are {allowed:g}"


def _accuracy(model: OnnxModel, first: OnnxModel) -> Accuracy:
    if model.fed != first.fed:
        return Accuracy(problem=f"it takes {_fed(model)}, and the other {_fed(first)}")
    return compared_outputs(first.outputs, model.outputs)


def _fed(model: OnnxModel) -> str:
    return ", ".join(f"{name}: {text}" for name, text in model.fed.items())


def _contractions(ran: Ran | None) -> tuple[int | None, int | None]:
    """Returns how many kernels of contractions ran in integers, and how many ran."""
    if ran is None:
        return None, None
    ops = [kernel.op_type for kernel in ran.kernels]
    integers = sum(op in _INTEGERS for op in ops)
    return integers, integers + sum(op in _FLOATS for op in ops)


def _checked(path: Path) -> str:
    """Returns what onnx.checker has against a file; empty if nothing."""
    import onnx

    try:
        onnx.checker.check_model(path)
    except onnx.checker.ValidationError as error:
        return printable(" ".join(str(error).split()), 200)
    return ""
