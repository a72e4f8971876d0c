"""Measures variants: makes them, has them run in turn, and compares them with the baseline."""

from __future__ import annotations

import os
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from io import BytesIO
from math import ceil
from statistics import median
from typing import Final

from otel_quant.inference.accuracy import compared as outputs_compared
from otel_quant.inference.bench.entries import (
    Entry,
    OnnxEntry,
    OnnxInputs,
    TorchEntry,
    torch_process,
)
from otel_quant.inference.bench.huge_pages import with_huge_pages
from otel_quant.inference.bench.noise import (
    is_settled,
    quartile_distance,
    speedup,
    without_extremes,
)
from otel_quant.inference.bench.results import BenchResult, CallTime, PeakMemory, VariantResult
from otel_quant.inference.noise import noise
from otel_quant.inference.options import Options
from otel_quant.inference.results import OutputError
from otel_quant.inference.variants import VariantsError
from otel_quant.inference.worker import ModelProcess

ROUND: Final = 0.2
"""Seconds of a variant in a round; torch's own default of a range."""

_ROUNDS: Final = 10
"""Rounds of each process, if time suffices."""

_FEWEST: Final = 5
"""Rounds of all processes together, whatever they take."""

PROCESSES: Final = 5
"""Processes of a variant, unless the user asks for more or fewer: single ones of the same model differ
by up to 5 %, the means of the middle ones of five by less than 3 %."""

LONG: Final = 60.0
"""Seconds to make a variant beyond which it has only one process, unless the user asks for more."""


@dataclass(frozen=True, slots=True)
class BenchOptions:
    """What the user asks for."""

    baseline: str | None  # Variant that the others are compared with; None for the first
    seconds: float  # Time for the timed calls of each variant
    # Processes of each variant, one after the other; None for ``PROCESSES``, or one where a
    # variant takes ``LONG`` to make
    processes: int | None
    one_by_one: bool  # Whether a variant's process ends before the next one's begins
    session: Options  # How sessions of ONNX files are made; its threads are those of torch too
    fed: OnnxInputs  # What ONNX files are fed, without a script


def bench(references: Sequence[str], options: BenchOptions, command: str) -> BenchResult:
    """Measures variants beside each other."""
    load = os.getloadavg()[0]
    processes: list[ModelProcess] = []
    try:
        entries = _entries(references, options, processes)
        processes += [entry.process for entry in entries]
        base = _baseline(entries, options.baseline)
        for together in [[entry] for entry in entries] if options.one_by_one else [entries]:
            _measure(together, options)
    finally:
        for process in processes:
            process.close()
    return BenchResult(
        tuple(_result(entry, base) for entry in entries),
        base.name,
        _settings(entries, options),
        load,
        len(os.sched_getaffinity(0)),
        command,
    )


def _entries(
    references: Sequence[str], options: BenchOptions, processes: list[ModelProcess]
) -> Sequence[Entry]:
    """Returns the variants; the process of a script becomes that of its first one."""
    paths = {each: each for each in references if each.endswith(".onnx")}
    scripts = [each for each in references if each not in paths]
    if len(scripts) > 1:
        raise VariantsError(f"{scripts[1]} is a second script; expected one")
    found: Mapping[str, str | None] = {}
    fed: Sequence[str] = ()
    script: ModelProcess | None = None
    loading = 0.0
    for reference in scripts:
        script = torch_process()
        processes.append(script)
        began = time.perf_counter()
        loaded = script.ask("load", reference=reference)
        loading = time.perf_counter() - began
        if loaded is None:
            raise VariantsError(script.problem)
        found, fed = loaded["onnx"], loaded["fed"]
    names = Counter([*found, *(each for each in references if each in paths)])
    if twice := [name for name, count in names.items() if count > 1]:
        raise VariantsError(f"{twice[0]!r} stands for two variants; expected each name once")
    entries: list[Entry] = []
    free = script
    for name, path in {**found, **paths}.items():
        if path is None:
            entries.append(TorchEntry(name, scripts[0], options.session.threads, free, fed))
            if free is not None:
                entries[-1].loading, free = loading, None
            continue
        entry = OnnxEntry(name, path, options.fed, options.session)
        processes.append(entry.process)
        if script is not None:
            entry.take_inputs(script, fed)
        entries.append(entry)
    if free is not None:
        free.close()
    return entries


def _baseline(entries: Sequence[Entry], name: str | None) -> Entry:
    found = [entry for entry in entries if name is None or entry.name == name]
    if not found:
        names = ", ".join(entry.name for entry in entries)
        raise VariantsError(f"--baseline {name!r} is none of the variants; expected one of {names}")
    return found[0]


def _measure(entries: Sequence[Entry], options: BenchOptions) -> None:
    """Measures variants in turn, in one process of each after another."""
    wanted: dict[Entry, int] = {}
    for entry in entries:
        began = time.perf_counter()
        entry.prepare()
        took = entry.loading + time.perf_counter() - began
        if not entry.problem:
            wanted[entry] = options.processes or (1 if took > LONG else PROCESSES)
    _time(list(wanted), options.seconds, min(wanted.values(), default=1))
    for entry in wanted:
        entry.finish()
        if wanted[entry] == 1:
            entry.process.close()
    for number in range(1, max(wanted.values(), default=1)):
        others = [entry for entry in wanted if wanted[entry] > number and not entry.problem]
        for entry in others:
            entry.repeat()
        _time(others, options.seconds, max(wanted.values()))
    for entry in entries:
        entry.process.close()


def _time(entries: Sequence[Entry], seconds: float, processes: int) -> None:
    """Adds rounds of a process: its share of all that are needed."""
    each = min(ROUND, seconds / _ROUNDS)
    fewest = ceil(_FEWEST / processes)
    spent = dict.fromkeys(entries, 0.0)
    number = 0
    while alive := [entry for entry in entries if not entry.problem]:
        if number >= fewest and max(spent[entry] for entry in alive) >= seconds / processes:
            break
        if number >= _ROUNDS and all(is_settled(entry.medians()[-1], processes) for entry in alive):
            break
        turn = number % len(alive)
        for entry in [*alive[turn:], *alive[:turn]]:  # the first of a round is after a pause
            began = time.perf_counter()
            entry.time(each)
            spent[entry] += time.perf_counter() - began
        number += 1


def _result(entry: Entry, base: Entry) -> VariantResult:
    result = VariantResult(entry.name, entry.kind, entry.problem)
    if entry.problem:
        return result
    beside = None if entry is base or base.problem else base
    usual = median(entry.medians()[0])
    error, no_error = (None, "") if entry is base else _error(entry, base)
    return replace(
        result,
        is_quantized=entry.is_quantized,
        provider=entry.provider,
        call=_call(entry, beside),
        memory=_memory(entry, beside),
        disk=entry.disk,
        quantize=entry.quantize,
        compile=entry.compile + sum(max(0.0, each - usual) for each in entry.first),
        error=error,
        error_problem=no_error,
    )


def _call(entry: Entry, beside: Entry | None) -> CallTime:
    rounds, medians = entry.rounds(), entry.medians()
    processes = tuple(map(median, medians))
    found = CallTime(
        without_extremes(processes),
        quartile_distance(rounds),
        sum(map(len, rounds)),
        len(rounds),
        noise([median(each) for each in rounds]),
        processes=processes,
    )
    if beside is None:
        return found
    faster, is_apart = speedup(medians, beside.medians())
    return replace(found, speedup=faster, is_apart=is_apart)


def _memory(entry: Entry, beside: Entry | None) -> PeakMemory:
    before, timed = entry.marks
    own = timed.get("gpu"), timed["process"]
    ratio = None
    if beside is not None:
        other = beside.marks[1].get("gpu"), beside.marks[1]["process"]
        pair = (own[0], other[0]) if own[0] or other[0] else (own[1], other[1])
        ratio = pair[0] / pair[1] if pair[0] and pair[1] else None
    return PeakMemory(own[1], own[0], before["process"], ratio)


def _error(entry: Entry, base: Entry) -> tuple[OutputError | None, str]:
    """Returns the error of the worst output, and why it could not be told."""
    if base.problem:
        return None, f"{base.name} was not measured"
    if entry.fed != base.fed:
        return None, f"its inputs are not those of {base.name}"
    for each in (base, entry):
        if each.outputs is None:
            return None, f"there are no outputs of {each.name}: {each.no_outputs}"
    found = outputs_compared(_saved(base), _saved(entry))
    worst = min(found.outputs, key=_quality, default=None)
    return None if worst is None or worst.max_abs is None else worst, found.problem


def _saved(entry: Entry) -> tuple[Sequence[str], BytesIO]:
    assert entry.outputs is not None
    names, content = entry.outputs
    return names, BytesIO(content)


def _quality(error: OutputError) -> float:
    """Returns the SQNR of an output; above all others where it is equal, below where unknown."""
    if error.max_abs is None:
        return float("-inf")
    return float("inf") if error.sqnr is None else error.sqnr


def _settings(entries: Sequence[Entry], options: BenchOptions) -> Mapping[str, str]:
    measured = [entry for entry in entries if not entry.problem]
    found: dict[str, str] = {}
    for name in dict.fromkeys(key for entry in measured for key in entry.facts):
        texts = {entry.name: entry.facts[name] for entry in measured if entry.facts.get(name)}
        if len(set(texts.values())) == 1:
            found[name] = next(iter(texts.values()))
        else:
            found |= {f"{name} of {each}": text for each, text in texts.items()}
    rounds = max((len(entry.rounds()) for entry in measured), default=0)
    order = "one variant after the other" if options.one_by_one else "the variants in turn"
    inputs = measured[0].fed if measured else ()
    return {
        **found,
        "inputs": ", ".join(each.partition(" (")[0] for each in inputs),
        "memory": "in huge pages where there are any"
        if with_huge_pages(os.environ)
        else "in pages as the system gives them",
        "rounds": f"{rounds} of {min(ROUND, options.seconds / _ROUNDS):g} s or longer, {order}",
        "processes": _processes(measured),
    }


def _processes(measured: Sequence[Entry]) -> str:
    most = max((len(entry.processes) for entry in measured), default=0)
    fewer = [
        f"{len(each.processes)} of {each.name}" for each in measured if len(each.processes) < most
    ]
    return ", ".join((f"{most} of each variant", *fewer)) if most else ""
