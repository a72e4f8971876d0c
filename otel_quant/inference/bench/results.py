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
    """Time of a call.

    Attributes:
        median: Mean of the processes' medians, without the lowest and the highest quarter of them.
        iqr: Distance between the quartiles of all blocks of calls, in which each round counts the
            same.
        blocks: Blocks of calls that were timed, in all rounds.
        rounds: Rounds.
        noise: Half the distance between the quartiles of the rounds' medians, as a share of the
            median.
        speedup: The same mean of the median ratio of the baseline's rounds to the variant's
            beside them in each process; None for the baseline, and where it was not measured.
        is_apart: Whether the machine was quiet enough to tell the two apart.
        processes: Median of the rounds' medians of each process.
    """

    median: float
    iqr: float
    blocks: int
    rounds: int
    noise: float
    speedup: float | None = None
    is_apart: bool | None = None
    processes: tuple[float, ...] = ()


@dataclass(frozen=True, slots=True)
class PeakMemory:
    """The most memory while the calls were timed.

    Attributes:
        process: The kernel's mark of the process.
        gpu: The mark of torch's allocator, over all GPUs; None for a variant that uses none.
        until_timed: The kernel's mark before: the script, quantization and compilation included.
        ratio: To the baseline's: on a GPU of the allocator's marks, else of the kernel's; None for
            the baseline, and where only one of the two uses a GPU.
    """

    process: int | None
    gpu: int | None
    until_timed: int | None
    ratio: float | None = None


@dataclass(frozen=True, slots=True)
class VariantResult:
    """What is known of one variant.

    Attributes:
        name: As the script or the command line has it.
        kind: What runs it: ``torch`` or ``onnx``.
        problem: What failed, with the error's class and first line; empty if nothing did.
        is_quantized: Whether it is: a torch module by its weights, a file by its operators; None
            if that is not known.
        provider: First execution provider of an ONNX file, ``cpu`` or ``cuda`` of torch.
        call: None where it was not measured; so the others.
        memory: Its memory.
        disk: The saved state dict, or the file with its external data.
        quantize: Time of the function that makes it; None if it was there already.
        compile: What the first calls took beyond a usual one; of an ONNX file with the session.
        error: Of the output that is furthest from the baseline's; None for the baseline.
        error_problem: Why that could not be told; empty if it could.
    """

    name: str
    kind: str
    problem: str = ""
    is_quantized: bool | None = None
    provider: str = ""
    call: CallTime | None = None
    memory: PeakMemory | None = None
    disk: int | None = None
    quantize: float | None = None
    compile: float | None = None
    error: OutputError | None = None
    error_problem: str = ""


@dataclass(frozen=True, slots=True)
class BenchResult:
    """What is known of all variants.

    Attributes:
        variants: In the order of the script or the command line.
        baseline: The variant that the others are compared with.
        settings: How they were measured, as names and values.
        load: Load of the machine before, processes that wanted a core on average of a minute.
        cores: Cores that this process may use.
        command: The command line that repeats it.
    """

    variants: tuple[VariantResult, ...]
    baseline: str
    settings: Mapping[str, str]
    load: float
    cores: int
    command: str

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
    """Returns the result of a JSON text.

    Raises:
        ValueError: It is no such text, or of another schema.
    """
    return read_record(text, BenchResult, SCHEMA)
