"""What has been measured of variants, as immutable records, and the JSON made of them.

Times are in seconds, sizes in bytes. What could not be measured is None.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Final

from otel_quant.inference.results import OutputError, without_none
from otel_quant.inference.results_reader import read_record

SCHEMA: Final = 1
"""Version of the JSON: raised when a key changes its meaning or goes away."""


@dataclass(frozen=True, slots=True)
class CallTime:
    """Time of a call."""

    # Mean of the processes' medians, without the lowest and the highest quarter of them
    median: float
    # Distance between the quartiles of all blocks of calls, in which each round counts the same
    iqr: float
    blocks: int  # Blocks of calls that were timed, in all rounds
    rounds: int  # Rounds
    # Half the distance between the quartiles of the rounds' medians, as a share of the median
    noise: float
    # The same mean of the median ratio of the baseline's rounds to the variant's beside them in
    # each process; None for the baseline, and where it was not measured
    speedup: float | None = None
    is_apart: bool | None = None  # Whether the machine was quiet enough to tell the two apart
    processes: tuple[float, ...] = ()  # Median of the rounds' medians of each process


@dataclass(frozen=True, slots=True)
class PeakMemory:
    """The most memory while the calls were timed."""

    process: int | None  # The kernel's mark of the process
    # The mark of torch's allocator, over all GPUs; None for a variant that uses none
    gpu: int | None
    # The kernel's mark before: the script, quantization and compilation included
    until_timed: int | None
    # To the baseline's: on a GPU of the allocator's marks, else of the kernel's; None for the
    # baseline, and where only one of the two uses a GPU
    ratio: float | None = None


@dataclass(frozen=True, slots=True)
class VariantResult:
    """What is known of one variant."""

    name: str  # As the script or the command line has it
    kind: str  # What runs it: ``torch`` or ``onnx``
    problem: str = ""  # What failed, with the error's class and first line; empty if nothing did
    # Whether it is: a torch module by its weights, a file by its operators; None if that is not
    # known
    is_quantized: bool | None = None
    provider: str = ""  # First execution provider of an ONNX file, ``cpu`` or ``cuda`` of torch
    call: CallTime | None = None  # None where it was not measured; so the others
    memory: PeakMemory | None = None  # Its memory
    disk: int | None = None  # The saved state dict, or the file with its external data
    # Time of the function that makes it; None if it was there already
    quantize: float | None = None
    # What the first calls took beyond a usual one; of an ONNX file with the session
    compile: float | None = None
    # Of the output that is furthest from the baseline's; None for the baseline
    error: OutputError | None = None
    error_problem: str = ""  # Why that could not be told; empty if it could


@dataclass(frozen=True, slots=True)
class BenchResult:
    """What is known of all variants."""

    variants: tuple[VariantResult, ...]  # In the order of the script or the command line
    baseline: str  # The variant that the others are compared with
    settings: Mapping[str, str]  # How they were measured, as names and values
    load: float  # Load of the machine before, processes that wanted a core on average of a minute
    cores: int  # Cores that this process may use
    command: str  # The command line that repeats it

    @property
    def process_spread(self) -> float | None:
        """How far the processes of a variant differ at most; None if there is one of each."""
        known = [each.call.processes for each in self.variants if each.call is not None]
        return max((max(each) / min(each) - 1 for each in known if len(each) > 1), default=None)

    @property
    def noise(self) -> float | None:
        """The largest noise of a variant; None if none was measured."""
        known = [each.call.noise for each in self.variants if each.call is not None]
        return max(known, default=None)

    def to_json(self) -> str:
        """Returns it as JSON."""
        plain = {"schema": SCHEMA, **without_none(asdict(self))}
        return json.dumps(plain, ensure_ascii=False, allow_nan=False) + "\n"


def read_bench(text: str) -> BenchResult:
    """Returns the result of a JSON text."""
    return read_record(text, BenchResult, SCHEMA)
