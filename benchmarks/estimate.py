"""Compares the estimates of ``otel-quant estimate`` with real runs.

24 of each library: 4 models, 3 calibration methods, 2 numbers of samples. Exits with 1 if the
median error is above 15 %, or an estimate is more than 20 % too small.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Final

sys.path.insert(0, str(Path(__file__).parents[1]))

from estimate_models import MODELS
from measuring import print_table

from otel_quant.cost.estimate import estimate, extrapolated, methods, read
from otel_quant.cost.estimate.probe import SAMPLES, probe
from otel_quant.schema.units import size

_METHODS: Final = (
    "onnxruntime:MinMax",
    "onnxruntime:Entropy",
    "onnxruntime:Percentile",
    "quark:MinMax",
    "quark:Percentile",
    "quark:MinMSE",
)
_MEDIAN: Final = 0.15
_TOO_LITTLE: Final = -0.2


def measured(models: Sequence[str], names: Sequence[str], samples: Sequence[int]) -> list[float]:
    """Runs every combination, and prints each; returns the errors as shares of the real peaks."""
    errors = []
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        for name in models:
            path = Path(folder) / f"{name}.onnx"
            MODELS[name](path)
            model = read(path)
            for method in methods(names):
                probed = probe(model, method, SAMPLES)
                for count in samples:
                    found = estimate(model, method, count)
                    real = (probed if count == SAMPLES else probe(model, method, count)).peak
                    errors.append(found.peak / real - 1)
                    after_probe = extrapolated(model, method, probed, count).peak / real - 1
                    rows.append(
                        (
                            name,
                            method.title,
                            count,
                            size(real),
                            size(found.peak),
                            f"{errors[-1]:+.1%}",
                            f"{after_probe:+.1%}",
                        )
                    )
                    print(*rows[-1], file=sys.stderr, flush=True)
    print_table(("model", "method", "samples", "real", "estimate", "error", "with --probe"), rows)
    return errors


def main() -> int:
    """Runs the benchmark; returns its exit code."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--models", nargs="+", choices=MODELS, default=list(MODELS))
    parser.add_argument("--methods", nargs="+", default=list(_METHODS))
    parser.add_argument("--samples", nargs="+", type=int, default=[3, 12])
    given = parser.parse_args()
    errors = measured(given.models, given.methods, given.samples)
    median = statistics.median(map(abs, errors))
    print(
        f"\n{len(errors)} runs: median error {median:.1%}, "
        f"from {min(errors):+.1%} to {max(errors):+.1%}"
    )
    return int(median > _MEDIAN or min(errors) < _TOO_LITTLE)


if __name__ == "__main__":
    sys.exit(main())
