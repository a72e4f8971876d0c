"""How far ``otel-quant bench`` sets copies of the same model apart.

    python benchmarks/bench_copies.py [--calls 3] [-- OPTIONS OF BENCH]

Four copies of a CNN and four of a perceptron take turns in one call, so that all see the same
machine: what their medians differ by is what two calls would differ by on a machine that does nothing
else. Prints the medians of each call, how far the processes of one copy differ, and the pairs of copies.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
from collections.abc import Callable
from itertools import combinations

import torch
from measuring import print_table
from torch import Tensor, nn

_COPIES = "abcd"


def _cnn() -> nn.Module:
    layers: list[nn.Module] = []
    for inputs, outputs in ((3, 32), (32, 64), (64, 128)):
        layers += [nn.Conv2d(inputs, outputs, 3, 2, 1), nn.ReLU()]
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(128, 10)).eval()


def _perceptron() -> nn.Module:
    first = nn.Linear(3 * 128 * 128, 512)  # 100 MB of weights, which are read in each call
    return nn.Sequential(nn.Flatten(), first, nn.ReLU(), nn.Linear(512, 10)).eval()


def variants() -> tuple[dict[str, Callable[[], nn.Module]], Tensor]:
    """Returns the copies by name, and a batch of images."""
    models = {"CNN": _cnn, "perceptron": _perceptron}
    return {
        f"{name} {copy}": model for name, model in models.items() for copy in _COPIES
    }, torch.randn(4, 3, 128, 128)


def main() -> None:
    """Measures the copies and prints how far they differ."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--calls", type=int, default=3)
    options, arguments = parser.parse_known_args()
    more = [each for each in arguments if each != "--"] or ["--threads", "1"]
    command = [sys.executable, "-m", "otel_quant", "bench", f"{__file__}:variants", *more]
    rows: list[tuple[object, ...]] = []
    differences: list[float] = []
    for number in range(options.calls):
        found = subprocess.run([*command, "--format", "json"], stdout=subprocess.PIPE, check=True)
        calls = {each["name"]: each["call"] for each in json.loads(found.stdout)["variants"]}
        for name in dict.fromkeys(each.rpartition(" ")[0] for each in calls):
            of_copies = [calls[f"{name} {copy}"] for copy in _COPIES]
            medians = [each["median"] for each in of_copies]
            processes = [each["processes"] for each in of_copies]
            of_pairs = [max(pair) / min(pair) - 1 for pair in combinations(medians, 2)]
            differences += of_pairs
            rows.append(
                (
                    f"{number + 1} {name}",
                    " ".join(f"{1000 * each:.3f}" for each in medians),
                    f"{100 * max(each['noise'] for each in of_copies):.2f}",
                    f"{100 * max(max(each) / min(each) - 1 for each in processes):.2f}",
                    f"{100 * statistics.median(of_pairs):.2f}",
                    f"{100 * max(of_pairs):.2f}",
                )
            )
    heads = ("medians ms", "noise %", "processes %", "median pair %", "worst pair %")
    print_table(("call, model", *heads), rows)
    print(
        f"of {len(differences)} pairs: median {100 * statistics.median(differences):.2f} %, "
        f"worst {100 * max(differences):.2f} %"
    )


if __name__ == "__main__":
    main()
