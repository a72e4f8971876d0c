"""Quantizes a small model with onnxruntime.quantization, in every way there is."""

from __future__ import annotations

import json
import multiprocessing
import operator
from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper
from onnxruntime import quantization as ort
from onnxruntime.quantization import matmul_nbits_quantizer as nbits
from onnxruntime.quantization import qdq_loss_debug as debug
from onnxruntime.quantization.calibrate import MinMaxCalibrater, create_calibrator
from onnxruntime.quantization.matmul_bnb4_quantizer import MatMulBnb4Quantizer
from onnxruntime.transformers.float16 import convert_float_to_float16
from watched import in_every_way
from written_onnx import note, note_floats

SAMPLES = 5


def write_model(path: str, rows: int = 1) -> None:
    """Writes two MatMuls with constant weights of 64 x 64."""
    random = np.random.default_rng(1)
    nodes = [
        helper.make_node("MatMul", ["x", "w1"], ["m"], "matmul1"),
        helper.make_node("Relu", ["m"], ["r"], "relu"),
        helper.make_node("MatMul", ["r", "w2"], ["y"], "matmul2"),
    ]
    values = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [rows, 64]) for name in "xy"]
    weights = [
        numpy_helper.from_array(random.standard_normal((64, 64), dtype=np.float32), name)
        for name in ("w1", "w2")
    ]
    graph = helper.make_graph(nodes, "g", values[:1], values[1:], weights)
    imports = [helper.make_opsetid("", 21)]
    onnx.save(helper.make_model(graph, opset_imports=imports, ir_version=10), path)


class Reader(ort.CalibrationDataReader):
    """Yields random samples; has no length."""

    def __init__(self) -> None:
        self.left = SAMPLES

    def get_next(self) -> dict[str, np.ndarray] | None:
        if not self.left:
            return None
        self.left -= 1
        random = np.random.default_rng(self.left)
        return {"x": random.standard_normal((1, 64), dtype=np.float32)}


class SizedReader(Reader):
    """The same with a length, as strides want it."""

    def __len__(self) -> int:
        return SAMPLES

    def set_range(self, start_index: int, end_index: int) -> None:
        self.left = end_index - start_index


class SlottedReader:
    """A reader that takes no further attributes."""

    __slots__ = ("left",)

    def __init__(self) -> None:
        self.left = SAMPLES

    get_next = Reader.get_next


def static() -> None:
    ort.quant_pre_process("float.onnx", "pre.onnx")
    ort.quantize_static("pre.onnx", "out.onnx", Reader(), per_channel=True)


def percentile() -> None:
    ort.quantize_static(
        "float.onnx", "out.onnx", Reader(), quant_format=ort.QuantFormat.QOperator,
        calibrate_method=ort.CalibrationMethod.Percentile, weight_type=ort.QuantType.QUInt8,
        activation_type=ort.QuantType.QUInt8,
    )  # fmt: skip


def strided() -> None:
    reader = SizedReader()
    options = {"CalibStridedMinMax": 1}
    ort.quantize_static("float.onnx", "out.onnx", reader, extra_options=options)
    assert vars(reader) == {"left": 0}


def slotted() -> None:
    ort.quantize_static("float.onnx", "out.onnx", SlottedReader())


def in_memory() -> None:
    ort.quantize_static(onnx.load("float.onnx"), "out.onnx", Reader())


def dynamic() -> None:
    ort.quantize_dynamic(Path("float.onnx"), Path("out.onnx"))


def configured() -> None:
    config = ort.StaticQuantConfig(Reader(), calibrate_method=ort.CalibrationMethod.Entropy)
    ort.quantize("float.onnx", "out.onnx", config)


def blocks() -> None:
    quantizer = nbits.MatMulNBitsQuantizer("float.onnx", bits=4, block_size=32)
    quantizer.process()
    quantizer.model.save_model_to_file("out.onnx")


def blocks_configured() -> None:
    config = nbits.DefaultWeightOnlyQuantConfig(block_size=16, bits=8)
    ort.quantize("float.onnx", "out.onnx", config)


def blocks_quantizer() -> None:
    config = nbits.DefaultWeightOnlyQuantConfig(block_size=16, is_symmetric=True, bits=8)
    quantizer = nbits.MatMulNBitsQuantizer("float.onnx", algo_config=config)
    quantizer.process()
    quantizer.model.save_model_to_file("out.onnx")


def bnb4() -> None:
    quantizer = MatMulBnb4Quantizer(onnx.load("float.onnx"), MatMulBnb4Quantizer.NF4, 64)
    quantizer.process()
    quantizer.model.save_model_to_file("out.onnx")


def half() -> None:
    onnx.save(convert_float_to_float16(onnx.load("float.onnx")), "out.onnx")


def overridden() -> None:
    options = {"TensorQuantOverrides": {"w1": [{"quant_type": ort.QuantType.QInt16}]}}
    ort.quantize_static("float.onnx", "out.onnx", Reader(), extra_options=options)


def nothing() -> None:
    ort.quantize_dynamic("float.onnx", "out.onnx", op_types_to_quantize=["Conv"])


def calibrator() -> None:
    made = create_calibrator("float.onnx", calibrate_method=ort.CalibrationMethod.Entropy)
    made.collect_data(Reader())
    ranges = {name: data.range_value for name, data in made.compute_data().items()}
    Path("out.onnx").write_text(repr(ranges))


def errors() -> None:
    ort.quantize_static("float.onnx", "out.onnx", Reader())
    for name in ("float", "out"):
        debug.modify_model_output_intermediate_tensors(f"{name}.onnx", f"{name}_all.onnx")
    before, after = (
        debug.collect_activations(f"{name}_all.onnx", Reader()) for name in ("float", "out")
    )
    activations = debug.create_activation_matching(after, before)
    weights = debug.create_weight_matching("float.onnx", "out.onnx")
    found = debug.compute_activation_error(activations), debug.compute_weight_error(weights)
    own = debug.compute_weight_error(weights, lambda one, other: float("nan"))
    Path("out.onnx").write_text(json.dumps([*found, dict.fromkeys(own)]))
    Path("errors.json").write_text(Path("out.onnx").read_text())


def failing() -> None:
    reader = Reader()
    reader.left = 0
    try:
        ort.quantize_static("float.onnx", "out.onnx", reader)
    except ValueError as error:
        Path("out.onnx").write_text(str(error))


def pool() -> None:
    jobs = [("float.onnx", "out.onnx")]
    with multiprocessing.get_context("fork").Pool(1) as workers:
        workers.starmap(ort.quantize_dynamic, jobs)


WAYS = (
    static, percentile, strided, slotted, in_memory, dynamic, configured, blocks,
    blocks_configured, blocks_quantizer, bnb4, half, overridden, nothing, calibrator, errors, failing, pool,
)  # fmt: skip


def quantized(way: Callable[[], None]) -> bytes:
    """Quantizes in one way and returns the result."""
    for left in Path().glob("out.onnx*"):
        left.unlink()
    way()
    if way is half:
        note_floats("out.onnx", way.__name__)
    elif way not in (calibrator, errors, failing, pool):
        note("out.onnx", way.__name__)
    return b"".join(path.read_bytes() for path in sorted(Path().glob("out.onnx*")))


def main() -> None:
    functions = [MinMaxCalibrater.collect_data, ort.quantize_static]
    in_every_way(WAYS, operator.eq, quantized)
    restored = [MinMaxCalibrater.collect_data, ort.quantize_static]
    assert [function.__wrapped__ for function in functions] == restored


if __name__ == "__main__":
    write_model("float.onnx")
    main()
