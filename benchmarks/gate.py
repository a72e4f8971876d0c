"""How often the gate of `otel-quant compare` fails like runs, and which regression it finds.

Runs are made up: each step takes 100 s, and every run of every step differs from that by a normal
distribution. The gate judges them as it judges recorded runs. Steps are independent of each other, which
makes false failures most frequent; the total is the sum of them.

    python benchmarks/gate.py [--gates 1000] [--noise 0.15]
"""

from __future__ import annotations

import argparse
import random
from collections.abc import Mapping, Sequence

from otel_quant.recordings.compared_runs import TOTAL
from otel_quant.recordings.gate import judge, parse
from otel_quant.recordings.model import State, StepPath
from otel_quant.recordings.side_by_side import (
    Comparison,
    FigureRow,
    Sample,
    Side,
    StepSides,
    difference,
)
from otel_quant.recordings.summary import BY_NAME

SLOWER: StepPath = (("step 0", 1),)
"""The step that is slower in the new runs."""

_DURATION = BY_NAME["duration"]


def worse(
    chance: random.Random, *, runs: int, steps: int, limit: str, noise: float, factor: float = 1.0
) -> set[StepPath]:
    """Returns what a gate calls worse, of as many runs on each side; one step takes so much longer."""
    sides = [
        [[max(1.0, chance.gauss(100, 100 * noise)) for _ in range(runs)] for _ in range(steps)]
        for _ in range(2)
    ]
    sides[1][0] = [factor * seconds for seconds in sides[1][0]]
    rows = {TOTAL: [[sum(run) for run in zip(*side, strict=True)] for side in sides]}
    rows |= {((f"step {at}", 1),): [side[at] for side in sides] for at in range(steps)}
    return worse_of(rows, limit)


def worse_of(rows: Mapping[StepPath, Sequence[Sequence[float]]], limit: str) -> set[StepPath]:
    """Returns what a gate calls worse, of the durations of both sides' runs by step."""
    sides = Side("base", ()), Side("new", ())
    compared = tuple(_row(path, *map(tuple, values)) for path, values in rows.items())
    verdict = judge(Comparison(sides, compared, (), (False,)), [parse(limit)], force=False)
    return {check.path for check in verdict.checks if check.outcome == "worse"}


def _row(path: StepPath, *sides: tuple[float, ...]) -> StepSides:
    base, new = map(Sample, sides)
    figure = FigureRow(_DURATION, (base, new), (difference(base, new, _DURATION.matters),))
    ended: frozenset[State] = frozenset({"ended"})
    return StepSides(
        path, (len(base.values), len(new.values)), (ended, ended), {"duration": figure}
    )


def main() -> None:
    """Prints the shares of gates that fail, and that find a slower step and a slower total."""
    from measuring import print_table

    parser = argparse.ArgumentParser(description="The gate of otel-quant compare, simulated.")
    parser.add_argument("--gates", type=int, default=1000, help="default: %(default)s")
    parser.add_argument("--noise", type=float, default=0.15, help="default: %(default)s")
    options = parser.parse_args()
    chance = random.Random(1)
    false, power = [], []
    for runs in (4, 5, 6, 10):
        for steps in (1, 20, 60):
            shares = []
            for limit in ("duration=5%", "duration=10%", "duration=20%"):
                found = [
                    worse(chance, runs=runs, steps=steps, limit=limit, noise=options.noise)
                    for _ in range(options.gates)
                ]
                shares.append(sum(map(bool, found)) / options.gates)
            false.append((f"{runs} + {runs}", steps, *(f"{100 * each:.1f}" for each in shares)))
            shares = []
            for factor in (1.2, 1.3, 1.5, 2.0):
                found = [
                    worse(
                        chance, runs=runs, steps=steps, limit="duration=10%",
                        noise=options.noise, factor=factor,
                    )
                    for _ in range(options.gates)
                ]  # fmt: skip
                shares.append(sum(SLOWER in each for each in found) / options.gates)
            power.append((f"{runs} + {runs}", steps, *(f"{100 * each:.0f}" for each in shares)))
    print(f"noise of {100 * options.noise:.0f} %, {options.gates:,} gates each")
    print("\nlike runs: % of all gates that fail")
    print_table(("runs", "steps", "limit 5 %", "limit 10 %", "limit 20 %"), false)
    print("\none step is slower, limit 10 %: % of all gates that name it")
    print_table(("runs", "steps", "by 20 %", "by 30 %", "by 50 %", "twice"), power)
    highest = max(float(share) for row in false if row[0] != "4 + 4" for share in row[2:])
    print(f"ratio: {highest / 5:.2f} (most false failures from 5 runs a side on / 5 %)")


if __name__ == "__main__":
    main()
