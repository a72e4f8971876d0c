"""Fixes a model: applies all remedies until nothing changes, and keeps what rounds beside each other show to pay."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, closing, contextmanager, suppress
from dataclasses import dataclass, replace
from math import inf, sqrt
from pathlib import Path
from statistics import stdev
from typing import Any, Final, NamedTuple

import numpy as np
import onnx
from google.protobuf.message import DecodeError

from otel_quant.base import machine
from otel_quant.cost import CostError
from otel_quant.cost.graph import QDQ, printable
from otel_quant.inference.fix.edited_graph import save
from otel_quant.inference.fix.fix_results import FixResult, Proven, Rewrite, sidecar
from otel_quant.inference.fix.rewriting import REMEDIES, Rewritten, forecast_of, rewritten
from otel_quant.inference.measure import files_result, run_in_turns
from otel_quant.inference.model_process import ModelError, ModelProcess
from otel_quant.inference.onnx_findings import kind_of
from otel_quant.inference.onnx_session import with_remedy
from otel_quant.inference.rounds import latency
from otel_quant.inference.subjects import OnnxModel, Options, fed_by, with_ranges

REPRODUCED: Final = 40.0
"""dB of SQNR to the input file at which, without a float model, its outputs count as reproduced."""

_ERRORS: Final = 3  # Standard errors that chance alone rarely exceeds
_FEWEST: Final = 8  # Samples from which a standard error is known

_LIKELY: Final = 0.95
"""Time with a rewrite by time without, below which more rounds may show that it pays."""

_LONGER: Final = 5  # Times as long as was asked for, where the first rounds cannot tell


class FixError(Exception):
    """A model cannot be fixed; the text is the reason."""


@dataclass(frozen=True, slots=True)
class Wanted:
    """What the user asks for."""

    model: str
    output: str  # Where the fixed file goes
    float_model: str | None = None
    only: Sequence[str] = ()  # Kinds of rewrites; empty for all
    is_dry: bool = False  # Whether only the forecast is wanted
    allowed: float = 0.1  # dB by which the SQNR to the float model may fall
    provider: str = "cpu"  # What the fixed file is for


def fix(wanted: Wanted, options: Options) -> FixResult:
    """Rewrites a model, proves what pays and writes that; writes nothing where nothing does."""
    folder = Path(wanted.output).parent
    for path in () if wanted.is_dry else (wanted.output, sidecar(wanted.output)):
        if os.path.lexists(path):
            raise FixError(f"{path}: exists; expected a path where nothing is")
    if not wanted.is_dry and not folder.is_dir():
        raise FixError(f"{wanted.output}: {folder} is no folder")
    try:
        return _Fixing(wanted, with_ranges(replace(options, session=True), [wanted.model])).result()
    except CostError as error:
        others = (wanted.float_model, options.data)
        source = error.source if error.source in others else wanted.model
        raise FixError(f"{source}: {error.reason}") from error
    except OSError as error:
        raise FixError(f"{error.filename}: {error.strerror or error}") from error


def read_quantized(path: str) -> Any:
    """Returns a model; weights beside the file stay there, since they may be larger than memory."""
    try:
        model = onnx.load(path, load_external_data=False)
    except DecodeError as error:
        raise FixError(f"{path}: is no ONNX model: {error}") from error
    if not any(node.op_type in QDQ for node in model.graph.node):
        why = "has no QuantizeLinear and no DequantizeLinear"
        raise FixError(f"{path}: {why}; expected a quantized model in QDQ form")
    return model


class _Fixing:
    """One model, as it was read, and what is done with it."""

    def __init__(self, wanted: Wanted, options: Options) -> None:
        self._wanted, self._options = wanted, options
        self._folder, self._model = Path(wanted.model).parent, read_quantized(wanted.model)
        self._shapes: dict[str, Any] = {"inputs": options.inputs, "dims": options.dims}
        self._before = forecast_of(self._model, **self._shapes)
        floats = wanted.float_model
        if floats and fed_by(wanted.model, options) != fed_by(floats, options):
            raise FixError(f"{floats}: it has other inputs than {wanted.model}")
        to, locations = Path(wanted.output).parent, _locations(self._model)
        is_elsewhere = bool(wanted.output) and to.resolve() != self._folder.resolve()
        self._copies = {self._folder / each: to / each for each in locations if is_elsewhere}
        if there := next(filter(os.path.lexists, self._copies.values()), None):
            raise FixError(f"{there}: exists; expected a folder without it, for the weights")
        self._rewrites: dict[str, Rewrite] = {}
        self._is_longer = False  # Whether rounds have more time than was asked for

    def _with(self, kinds: Sequence[str], without: str = "") -> Rewritten:
        kept = [each for each in kinds if each != without]
        return rewritten(self._model, self._folder, kept, **self._shapes)

    def result(self) -> FixResult:
        """Returns what became of the model."""
        only = set(self._wanted.only) or {each.kind for each in REMEDIES}
        kinds = [each.kind for each in REMEDIES if each.kind in only and not each.instead_of]
        if "sums" in kinds and not self._saturates():
            kinds.remove("sums")  # before all weights are read for that
        kinds = self._plan(kinds)
        if "sums" in kinds and not self._wanted.is_dry and not self._is_for_sums(kinds):
            kinds.remove("sums")
            del self._rewrites["sums"]
        for kind in kinds if self._wanted.float_model is None else ():
            if differs := self._rewrites[kind].differs:
                why = f"{differs}: give the float model (--float), which decides"
                self._mark(kind, "offered", why)
        kinds = [kind for kind in kinds if self._rewrites[kind].state == "planned"]
        if self._wanted.is_dry and kinds:
            return self._outcome(self._with(kinds), why="nothing is written by --dry-run")
        return self._proven(kinds)

    def _saturates(self) -> bool:
        """Whether this processor's sums of products of uint8 by int8 saturate."""
        with closing(ModelProcess("onnx", huge_pages=False)) as process, suppress(ModelError):
            return bool(process.ask("saturates"))
        return False  # why nothing runs is told where the file is measured

    def _is_for_sums(self, kinds: Sequence[str]) -> bool:
        """Whether sums of 32 bits matter here: they are much closer to the float model, or it takes them to be no further off."""
        wanted, options = self._wanted, self._options
        with self._written({"own": self._with(kinds, "sums")}) as paths, ExitStack() as kept:
            files = [wanted.float_model or wanted.model, wanted.model, str(paths["own"])]
            models = [OnnxModel(it, it, options, is_profiled=False) for it in files]
            run_in_turns(models, options, kept, is_timed=False)
            to, first, own = models
            sums = None if own.problem else own.exact_sums()
            if sums is None:
                return False
            before = first.accuracy(to).lowest_sqnr or inf
            is_needed = sums.exact - wanted.allowed > sums.own < before - wanted.allowed
            return is_needed or sums.latency is not None

    def _plan(self, kinds: Sequence[str]) -> list[str]:
        """Notes what rewrites of some kinds change; returns the kinds that change something."""
        nodes = self._with(kinds).nodes
        for each in REMEDIES:
            if each.kind in nodes and each.kind not in self._rewrites:
                names = tuple(map(printable, nodes[each.kind]))
                forecast = self._with(kinds, each.kind).forecast
                self._rewrites[each.kind] = Rewrite(
                    each.kind, each.title, names, forecast.integers, differs=each.differs
                )
        return [kind for kind in self._rewrites if kind in nodes]

    def _mark(self, kind: str, state: Any, why: str = "", **more: Any) -> None:
        self._rewrites[kind] = replace(self._rewrites[kind], state=state, why=why, **more)

    def _outcome(self, found: Rewritten, **more: Any) -> FixResult:
        before, wanted = self._before, self._wanted
        return FixResult(
            wanted.model, wanted.provider, before.contractions, before.integers, found.forecast.integers,
            tuple(self._rewrites.values()), found.forecast.obstacles, float_model=wanted.float_model,
            **found.session, **more,
        )  # fmt: skip

    def _proven(self, kinds: list[str]) -> FixResult:
        """Measures all rewrites beside all but one of them, until each that is left pays."""
        while kinds:
            found, output = self._with(kinds), self._wanted.output
            models = {output: found}
            if len(kinds) > 1:
                models |= {f"without {kind}": self._with(kinds, kind) for kind in kinds}
            others = {each.kind: each for each in REMEDIES if each.instead_of in kinds}
            rivals = {
                other: [other if it == each.instead_of else it for it in kinds]
                for other, each in others.items() if other not in self._rewrites
            }  # fmt: skip
            models |= {other: self._with(rival) for other, rival in rivals.items()}
            with self._written(models) as paths:
                proof = _Proof(self._wanted, self._options, paths)
                closer = [each for each in rivals if proof.sqnr(each) > proof.sqnr(output)]
                if closer:  # it takes the other's place, and is measured in turn
                    del self._rewrites[others[closer[0]].instead_of]
                    kinds = self._plan(rivals[closer[0]])
                    continue
                for kind in kinds:
                    self._mark(kind, "written", **proof.of(kind))
                worst = proof.worst([self._rewrites[kind] for kind in kinds])
                if worst is not None and worst.is_open and not self._is_longer:
                    self._is_longer = True  # more rounds may tell
                    self._options = replace(self._options, seconds=_LONGER * self._options.seconds)
                    continue
                if worst is None:
                    self._place(paths[output])
                    more: Any = {"measured": proof.measured, "proven": proof.proven}
                    return self._outcome(found, output=output, **more)
            self._mark(worst.kind, "left out", worst.why)
            kinds.remove(worst.kind)
        why = "; ".join(f"{each.kind}: {each.why}" for each in self._rewrites.values())
        nothing = "there is nothing to rewrite"
        if not self._before.contractions:
            nothing = "no contraction is in QDQ form (DequantizeLinear in front of it)"
        why = f"no rewrite is to be written: {why}" if why else nothing
        return self._outcome(self._with([]), why=why)

    @contextmanager
    def _written(self, models: dict[str, Rewritten]) -> Iterator[dict[str, Path]]:
        """Writes models for as long as they are measured, where their weights are found."""
        output = Path(self._wanted.output)
        folder = self._folder if _locations(self._model) else output.parent
        stem = f".{output.name}-{os.getpid()}"
        paths = {name: folder / f"{stem}-{i}.onnx" for i, name in enumerate(models)}
        try:
            for name, path in paths.items():
                each = models.pop(name)  # which may be large
                save(each.model, path)
                if session := each.session:
                    sidecar(path).write_text(json.dumps(session))
            yield paths
        finally:
            for path in paths.values():
                for left in (path, sidecar(path), path.with_suffix(".data")):
                    left.unlink(missing_ok=True)

    def _place(self, path: Path) -> None:
        """Puts the fixed file, and what its weights lie in, where they are wanted."""
        output = Path(self._wanted.output)
        data, target = path.with_suffix(".data"), output.with_suffix(".data")
        own = {data: target, sidecar(path): sidecar(output), path: output}
        if data.exists():  # what was too much for the file itself
            model = onnx.load(path, load_external_data=False)
            for pair in [it for each in model.graph.initializer for it in each.external_data]:
                pair.value = target.name if pair.value == data.name else pair.value
            onnx.save(model, path)
        sources = self._copies | {each: to for each, to in own.items() if each.exists()}
        is_here = output.parent.resolve() == path.parent.resolve()
        for source, to in sources.items():
            to.parent.mkdir(parents=True, exist_ok=True)
            (os.link if is_here else shutil.copyfile)(source, to)  # a link replaces nothing


def _locations(model: Any) -> list[str]:
    """Returns the files beside a model that its weights lie in."""
    pairs = (pair for each in model.graph.initializer for pair in each.external_data)
    return list(dict.fromkeys(pair.value for pair in pairs if pair.key == "location"))


class _Worst(NamedTuple):
    """The kind of rewrites that is to be left out first."""

    kind: str
    why: str
    is_open: bool = False  # Whether more rounds may show that it pays


class _Proof:
    """What rounds of a model, its float model and its rewrites beside each other show."""

    def __init__(self, wanted: Wanted, options: Options, paths: Mapping[str, Path]) -> None:
        self._allowed, load = wanted.allowed, machine.load()
        given = [wanted.model, *filter(None, [wanted.float_model])]
        named = {name: Path(name) for name in given} | dict(paths)
        self._models = {
            name: OnnxModel(name, str(path), options, is_profiled=True)
            for name, path in named.items()
        }
        self._first, self._full = self._models[wanted.model], self._models[wanted.output]
        self._float = self._models.get(wanted.float_model or "")
        for name in paths.keys() - {wanted.output}:
            self._models[name].is_profiled = False
        with ExitStack() as kept:
            run_in_turns(list(self._models.values()), options, kept)
            for each in self._models.values():
                problem = each.problem or each.accuracy(self._first).problem
                if problem:
                    raise FixError(f"{each.name}: {problem}")
            shown = [self._first, self._full, *filter(None, [self._float])]
            self.measured = files_result(shown, options, load)
            self.proven = tuple(self._of_file(each, named[each.name]) for each in shown)

    def _of_file(self, model: OnnxModel, path: Path) -> Proven:
        found, kinds = model.accuracy(self._first), list(map(kind_of, model.ran_in.values()))
        return Proven(
            model.name, model.file.file_bytes, len(kinds) - kinds.count("float"), len(kinds),
            None if self._float is None else model.accuracy(self._float).lowest_sqnr,
            found.lowest_sqnr, None if found.worst is None else found.worst.max_abs, _checked(path),
        )  # fmt: skip

    def _without(self, kind: str) -> OnnxModel:
        """Returns the model with all rewrites but those of a kind."""
        return self._models.get(f"without {kind}", self._first)

    def sqnr(self, name: str) -> float:
        """Returns the SQNR of a model to the float one, or else to the input file; infinite where they are the same."""
        found = self._models[name].accuracy(self._float or self._first)
        return inf if found.lowest_sqnr is None else found.lowest_sqnr

    def of(self, kind: str) -> dict[str, Any]:
        """Returns what a kind of rewrites changes."""
        rest = self._without(kind)
        own, other = self.sqnr(self._full.name), self.sqnr(rest.name)
        gain = own - other if self._float and max(own, other) < inf else None
        return {"ratio": latency(self._full, rest).ratio, "sqnr_gain": gain}

    def worst(self, rewrites: Sequence[Rewrite]) -> _Worst | None:
        """Returns the kind of rewrites that is to be left out first, and why; None if all are to stay."""
        if (found := self._too_far(rewrites)) is not None:
            return found
        removing = {each.kind for each in REMEDIES if each.removes_error}
        times = {each.kind: latency(self._full, self._without(each.kind)) for each in rewrites}
        gains = {each.kind for each in rewrites if (each.sqnr_gain or 0.0) > self._allowed}
        slow = [
            (time.ratio or 1, kind) for kind, time in times.items()
            if kind not in removing & gains and not (time.is_apart and (time.ratio or 1) < 1)
        ]  # fmt: skip
        if not slow:
            return None
        ratio, kind = max(slow)
        why = f"it is not told apart as faster: {ratio:.2f} of the time without it"
        return _Worst(kind, why, is_open=min(slow)[0] < _LIKELY)

    def _too_far(self, rewrites: Sequence[Rewrite]) -> _Worst | None:
        """Returns the kind of rewrites that costs most SQNR, if it is more than may be."""
        falls = {each.kind: self._fall(self._without(each.kind), each.differs) for each in rewrites}
        kind, own = max(falls, key=falls.__getitem__), self.sqnr(self._full.name)
        if self._float is None:
            why = f"outputs are at {own:.1f} dB to those of the input file; expected {REPRODUCED:.0f} or more"
            return None if own >= REPRODUCED else _Worst(kind, why)
        fall = max(falls[kind], self._fall(self._first, "".join(each.differs for each in rewrites)))
        why = f"SQNR to the float model falls by {fall:.2f} dB; allowed are {self._allowed:g}"
        return _Worst(kind, why) if fall > self._allowed else None

    def _fall(self, before: OnnxModel, differs: str) -> float:
        """Returns by how many dB the fixed file is further off than another.

        Where both compute the same but for rounding, what chance explains is taken off: how a deep net
        rounds differs from sample to sample.
        """
        own, other = self.sqnr(self._full.name), self.sqnr(before.name)
        if self._float is None or differs or max(own, other) == inf:
            return 0.0 if own == other else other - own
        of_samples = [
            _falls(expected, before.outputs[name], self._full.outputs[name])
            for name, expected in self._float.outputs.items() if name in self._full.outputs
        ]  # fmt: skip
        errors = [stdev(each) / sqrt(len(each)) for each in of_samples if len(each) >= _FEWEST]
        return other - own - _ERRORS * max(errors, default=0.0)


def _falls(expected: Any, before: Any, after: Any) -> list[float]:
    """Returns the fall of the SQNR in each sample in dB, where it is known."""
    noises = [
        ((expected - each).astype(np.float64) ** 2).reshape(len(each), -1).sum(1)
        for each in (before, after)
    ]
    return [10 * float(np.log10(b / a)) for a, b in zip(*noises, strict=True) if a > 0 and b > 0]


def _checked(path: Path) -> str:
    """Returns what onnx.checker has against a file; empty if nothing."""
    try:
        onnx.checker.check_model(path)
    except onnx.checker.ValidationError as error:
        return printable(" ".join(with_remedy(str(error)).split()), 200)
    return ""
