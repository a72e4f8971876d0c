"""How far two calls of ``otel-quant bench`` in a row differ, and how far the machine itself did.

    python benchmarks/bench_pairs.py [--pairs 5] [SCRIPT.py:FUNCTION ...] [-- OPTIONS OF BENCH]

Prints for each variant the medians of both calls, how far they differ, and the noise that the second
call has told. Before and after each call, the same numbers are read from memory and the same small
matrices multiplied: where that took longer, the machine was slower, as a virtual machine is
whose host does other work. Below, the largest difference and the load of the machine before each call.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from measuring import print_table

EXAMPLE = f"{Path(__file__).parents[1] / 'examples' / 'variants.py'}:variants"

_NUMBERS = np.ones(16_000_000, np.float32)
_MATRIX = np.ones((96, 96), np.float32)
_SECONDS = 1.0


def _seconds_of(work: Callable[[], object]) -> float:
    times: list[float] = []
    end = time.perf_counter() + _SECONDS
    while (began := time.perf_counter()) < end:
        work()
        times.append(time.perf_counter() - began)
    return statistics.median(times)


def _machine() -> tuple[float, float]:
    return _seconds_of(_NUMBERS.sum), _seconds_of(lambda: _MATRIX @ _MATRIX)


def _call(arguments: list[str]) -> tuple[Any, list[float]]:
    """Returns the result of a call, and how long the machine took for the same work about it."""
    command = [sys.executable, "-m", "otel_quant", "bench", *arguments, "--format", "json"]
    before = _machine()
    found = subprocess.run(command, stdout=subprocess.PIPE, check=False)
    return json.loads(found.stdout), [sum(each) for each in zip(before, _machine(), strict=True)]


def _medians(result: Any) -> dict[str, float]:
    return {each["name"]: each["call"]["median"] for each in result["variants"] if "call" in each}


def main() -> None:
    """Measures pairs and prints them."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--pairs", type=int, default=5)
    options, arguments = parser.parse_known_args()
    arguments = [each for each in arguments if each != "--"] or [EXAMPLE]
    rows: list[tuple[object, ...]] = []
    differences: list[float] = []
    loads: list[float] = []
    for number in range(options.pairs):
        (first, machine), (second, later) = _call(arguments), _call(arguments)
        loads += [first["load"], second["load"]]
        before, after = _medians(first), _medians(second)
        noises = {
            each["name"]: each["call"]["noise"] for each in second["variants"] if "call" in each
        }
        for name in before.keys() & after.keys():
            pair = before[name], after[name]
            differences.append(max(pair) / min(pair) - 1)
            changes = [pair[1] / pair[0], *(b / a for a, b in zip(machine, later, strict=True))]
            rows.append(
                (
                    f"{number + 1} {name}",
                    *(f"{1000 * each:.3f}" for each in pair),
                    f"{100 * noises[name]:.2f}",
                    *(f"{100 * (each - 1):+.2f}" for each in changes),
                )
            )
    heads = ("first ms", "second ms", "noise %", "change %", "memory %", "processor %")
    print_table(("pair, variant", *heads), rows)
    print(
        f"largest difference: {100 * max(differences):.2f} %, median "
        f"{100 * statistics.median(differences):.2f} %, of {len(differences)} pairs; load "
        f"{min(loads):.2f} to {max(loads):.2f}"
    )


if __name__ == "__main__":
    main()
