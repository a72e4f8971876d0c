"""What it costs to note what reaches the layers of a calibration: a batch with and one without, in turn, in one process.

The model has linear layers whose observers are torch.ao's, of minimum and maximum; their time is what a batch takes a real
calibration of the same size. Run ``python benchmarks/observers.py``. Budget: 1.01.
"""

from __future__ import annotations

import argparse
import time
import warnings
from typing import Any

import torch
from torch.ao import quantization as tq

import otel_quant
from otel_quant.capture.instruments.observers import observe

warnings.simplefilter("ignore")
WIDTH, LAYERS, TOKENS = 1024, 12, 512


def main() -> None:
    """Prints the ratio of the fastest of each."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--rounds", type=int, default=60, help="pairs of batches")
    rounds: int = parser.parse_args().rounds
    torch.set_num_threads(1)
    quantization: Any = tq  # which has no types
    model: Any = torch.nn.Sequential(*(torch.nn.Linear(WIDTH, WIDTH) for _ in range(LAYERS))).eval()
    model.qconfig = quantization.QConfig(tq.MinMaxObserver, tq.default_weight_observer)
    prepared, taken = quantization.prepare(model), list[dict[bool, int]]()
    with torch.no_grad(), otel_quant.run(), otel_quant.step("User-Defined") as step:
        assert step is not None
        for number in range(rounds):
            batch, times = torch.randn(TOKENS, WIDTH), {}
            for is_noted in sorted((True, False), reverse=bool(number % 2)):
                observe(step, prepared) if is_noted else None
                began = time.thread_time_ns()
                prepared.forward(batch)  # no calibration of its own begins with that
                times[is_noted] = time.thread_time_ns() - began
                if is_noted and step.observed is not None:
                    assert len(step.observed.end()) == LAYERS
                    step.observed = None
            taken.append(times)
    noted, bare = (min(times[each] for times in taken) for each in (True, False))
    print(
        f"ratio: {noted / bare:.4f} of the fastest batch that is noted to the fastest that is not"
    )


if __name__ == "__main__":
    main()
