"""How far two calls of ``otel-quant bench`` in a row differ.

    python benchmarks/bench_pairs.py [--pairs 5] [SCRIPT.py:FUNCTION ...] [-- OPTIONS OF BENCH]

Prints for each variant the medians of both calls, how far they differ, and the noise that the second
call has told; below, the largest difference and the load of the machine before each call.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
from pathlib import Path
from typing import Any

from measuring import print_table

EXAMPLE = f"{Path(__file__).parents[1] / 'examples' / 'variants.py'}:variants"


def _call(arguments: list[str]) -> Any:
    command = [sys.executable, "-m", "otel_quant", "bench", *arguments, "--format", "json"]
    found = subprocess.run(command, stdout=subprocess.PIPE, check=False)
    return json.loads(found.stdout)


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
        first, second = _call(arguments), _call(arguments)
        loads += [first["load"], second["load"]]
        before, after = _medians(first), _medians(second)
        noises = {
            each["name"]: each["call"]["noise"] for each in second["variants"] if "call" in each
        }
        for name in before.keys() & after.keys():
            pair = before[name], after[name]
            differences.append(max(pair) / min(pair) - 1)
            rows.append(
                (
                    f"{number + 1} {name}",
                    *(f"{1000 * each:.3f}" for each in pair),
                    f"{100 * differences[-1]:.2f}",
                    f"{100 * noises[name]:.2f}",
                )
            )
    print_table(("pair, variant", "first ms", "second ms", "differ %", "noise %"), rows)
    print(
        f"largest difference: {100 * max(differences):.2f} %, median "
        f"{100 * statistics.median(differences):.2f} %, of {len(differences)} pairs; load "
        f"{min(loads):.2f} to {max(loads):.2f}"
    )


if __name__ == "__main__":
    main()
