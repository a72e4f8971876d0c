# /// script
# dependencies = ["gguf"]
# ///
"""Writes a GGUF file with two matrices in blocks and a vector in float."""

from __future__ import annotations

import gguf
import numpy as np
from watched import Progress

import otel_quant


def main() -> None:
    random = np.random.default_rng(0)
    Progress()
    with otel_quant.step("written"):
        writer = gguf.GGUFWriter("out.gguf", "llama")
        for name, kind in (
            ("a", gguf.GGMLQuantizationType.Q8_0),
            ("b", gguf.GGMLQuantizationType.Q4_0),
        ):
            weights = gguf.quants.quantize(random.standard_normal((64, 64), dtype=np.float32), kind)
            writer.add_tensor(f"blk.0.{name}.weight", weights, raw_dtype=kind)
        writer.add_tensor("norm", np.ones(64, np.float32))
        writer.write_header_to_file()
        writer.write_kv_data_to_file()
        writer.write_tensors_to_file()
        writer.close()
    tensors = gguf.GGUFReader("out.gguf").tensors
    print(*sorted({each.tensor_type.name for each in tensors if len(each.shape) > 1}))


if __name__ == "__main__":
    main()
