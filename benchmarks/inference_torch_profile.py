"""How long it takes to read what torch's profiler has seen: 100,000 events of small operators.

python benchmarks/inference_torch_profile.py [EVENTS]
"""

from __future__ import annotations

import sys
import time

import torch
from torch.profiler import ProfilerActivity, profile, record_function

from otel_quant.inference.torch_profile import RUN, events_of, runs_of

RUNS = 10
WITHIN_LINEAR = 10
"""Operators within ``torch.nn.functional.linear``, itself included."""


def main() -> None:
    """Prints the CPU time of the best of five."""
    events = int(sys.argv[1]) if len(sys.argv) > 1 else 100_000
    layers = events // (RUNS * WITHIN_LINEAR)
    x, weights, bias = torch.ones(1, 8), torch.ones(8, 8), torch.ones(8)
    with torch.no_grad(), profile(activities=[ProfilerActivity.CPU]) as session:
        for _ in range(RUNS):
            with record_function(RUN):
                for _ in range(layers):
                    torch.nn.functional.linear(x, weights, bias)
    results = session.profiler.kineto_results
    assert results is not None
    times = []
    for _ in range(5):
        began = time.process_time()
        runs = runs_of(events_of(results))
        times.append(time.process_time() - began)
    count = sum(len(run.operators) for run in runs)
    print(f"{count:,} operators: {min(times):.2f} s of CPU (best of 5)")


if __name__ == "__main__":
    main()
