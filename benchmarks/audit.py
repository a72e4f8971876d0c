"""Time and memory of `otel-quant audit` on sparse checkpoints of 49 GB: what headers cost, and what scales cost beside.

The files have the headers of a language model of GPTQ in groups of 128: one of 100 layers, one of 48 layers with 96 experts each.
Nothing is behind them: the file system returns zeros, of which the audit says that they are no scales.

    python benchmarks/audit.py [--rounds 3]
"""

from __future__ import annotations

import argparse
import json
import statistics
import struct
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from math import prod
from pathlib import Path
from typing import Final

from measuring import print_table

ROOT: Final = Path(__file__).resolve().parents[1]
GROUP: Final = 128
BYTES: Final = {"I32": 4, "F16": 2, "BF16": 2}
Row = tuple[str, str, list[int]]

PROGRAM: Final = """
import resource, sys, time
began, cpu = time.perf_counter(), time.process_time()
from otel_quant.auditing.audit import audit
found = audit(sys.argv[1], seconds=None if sys.argv[2] == "scales" else 0)
assert len(found.of_state("quantized")) == int(sys.argv[3])
most = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
print(time.perf_counter() - began, time.process_time() - cpu, most / 1024)
"""


def layer(name: str, outputs: int, inputs: int) -> Iterator[Row]:
    """Yields the tensors of a quantized layer."""
    yield f"{name}.qweight", "I32", [inputs // 8, outputs]
    yield f"{name}.qzeros", "I32", [inputs // GROUP, outputs // 8]
    yield f"{name}.scales", "F16", [inputs // GROUP, outputs]
    yield f"{name}.g_idx", "I32", [inputs]


def model(layers: int, width: int, inner: int, experts: int) -> Iterator[Row]:
    """Yields the tensors of a language model."""
    for at in range(layers):
        for part, outputs in (("q", width), ("k", width // 8), ("v", width // 8), ("o", width)):
            yield from layer(f"model.layers.{at}.self_attn.{part}_proj", outputs, width)
        for mlp in [f"experts.{each}." for each in range(experts)] or [""]:
            for part, sides in (
                ("gate", (inner, width)),
                ("up", (inner, width)),
                ("down", (width, inner)),
            ):
                yield from layer(f"model.layers.{at}.mlp.{mlp}{part}_proj", *sides)
    for name in ("model.embed_tokens", "lm_head"):
        yield f"{name}.weight", "BF16", [128256, width]


def write(folder: Path, rows: list[Row]) -> float:
    """Writes a sparse checkpoint; returns its GB."""
    folder.mkdir()
    header, at = {}, 0
    for name, dtype, shape in rows:
        size = BYTES[dtype] * prod(shape)
        header[name] = {"dtype": dtype, "shape": shape, "data_offsets": [at, at + size]}
        at += size
    text = json.dumps(header).encode()
    with (folder / "model.safetensors").open("wb") as file:
        file.write(struct.pack("<Q", len(text)) + text)
        file.truncate(8 + len(text) + at)
    quantization = {"quant_method": "gptq", "bits": 4, "group_size": GROUP}
    (folder / "config.json").write_text(json.dumps({"quantization_config": quantization}))
    return at / 1e9


def run(command: list[str]) -> str:
    """Returns what a command prints."""
    return subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True).stdout


def main() -> None:
    """Writes both, audits them and prints what that took."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=3)
    rounds = parser.parse_args().rounds
    head, rows = ("checkpoint", "tensors", "read", "wall s", "CPU s", "peak MiB"), []
    with tempfile.TemporaryDirectory() as made:
        for name, sizes in {
            "dense": (100, 8192, 28672, 0),
            "experts": (48, 4096, 1536, 96),
        }.items():
            tensors = list(model(*sizes))
            size = write(Path(made) / name, tensors)
            count = sum(each.endswith(".qweight") for each, *_ in tensors)
            for read in ("headers", "scales"):
                command = [sys.executable, "-c", PROGRAM, str(Path(made) / name), read, str(count)]
                taken = [list(map(float, run(command).split())) for _ in range(rounds)]
                wall, cpu, peak = (statistics.median(each) for each in zip(*taken, strict=True))
                rows.append(
                    (
                        f"{name}, {size:.1f} GB",
                        str(len(tensors)),
                        read,
                        f"{wall:.2f}",
                        f"{cpu:.2f}",
                        f"{peak:.0f}",
                    )
                )
    print_table(head, rows)
    print(
        f"ratio: {float(rows[1][4]) / float(rows[0][4]):.2f} of the CPU time with scales to that without, dense"
    )


if __name__ == "__main__":
    main()
