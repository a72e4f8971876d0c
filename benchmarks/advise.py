"""How near the forecast of ``otel-quant advise`` comes to the rerun, on five nets of other families.

The nets were named before the code that advises was written. Weights are random: nothing is downloaded.

Run ``python benchmarks/advise.py FOLDER [NET ...]``; it wants ``pip install 'otel-quant[inference]' amd-quark
torchvision``. What it has written before it takes from the folder.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any, Final

from measuring import Net, print_table, rows_of_nets

NETS: Final = (
    Net("residual", "torchvision", "resnet18", "onnxruntime"),
    Net("inverted residual", "torchvision", "mobilenet_v2", "onnxruntime"),
    Net("concatenated", "torchvision", "squeezenet1_1", "onnxruntime"),
    Net("shuffled", "torchvision", "shufflenet_v2_x1_0", "A8W8"),
    Net("transformer", "here", "encoder", "onnxruntime"),
)

BUDGET: Final = "sqnr>=+6dB"
"""What is asked for of each: a quarter of the noise."""

SIZE: Final = 224

SCRIPT: Final = """\
import sys
import numpy as np
from onnxruntime.quantization import CalibrationDataReader, QuantType, quantize_static

name, quantizer, *shape = sys.argv[1:]


class Samples(CalibrationDataReader):
    def __init__(self):
        self.left = iter(range(8))

    def get_next(self):
        seed = next(self.left, None)
        random = np.random.default_rng(seed)
        sample = random.standard_normal(tuple(map(int, shape)), dtype=np.float32)
        return None if seed is None else {"x": sample}


floats, int8 = f"{name}.onnx", f"{name}-int8.onnx"
if quantizer == "onnxruntime":
    quantize_static(
        floats, int8, Samples(), activation_type=QuantType.QUInt8, weight_type=QuantType.QInt8
    )
else:
    from quark.onnx import ModelQuantizer
    from quark.onnx.quantization.config import Config, get_default_config

    config = Config(global_quant_config=get_default_config(quantizer))
    ModelQuantizer(config).quantize_model(floats, int8, Samples())
"""


def main() -> None:
    """Makes what is missing of each net, has it advised and quantized again, and prints a table."""
    rows = rows_of_nets(__doc__, NETS, row)
    columns = ("CPU time", "forecast", "rerun", "SQNR", "forecast", "rerun")
    print_table(("net", "quantized by", "in float", *columns), rows)


def row(net: Net, folder: Path) -> tuple[str, ...]:
    """Returns the row of a net: nodes left in float, CPU time in ms, SQNR in dB."""
    floats, quantized = f"{net.name}.onnx", f"{net.name}-int8.onnx"
    (folder / "quantize.py").write_text(SCRIPT)
    shape = ("1", "64", "128") if net.library == "here" else ("1", "3", str(SIZE), str(SIZE))
    script = [sys.executable, "quantize.py", net.name, net.quantizer, *shape]
    if not (folder / floats).exists():
        export(net, tuple(map(int, shape)), folder / floats)
    if not (folder / quantized).exists():
        subprocess.run(script, cwd=folder, check=True)
    command = [sys.executable, "-m", "otel_quant", "advise", floats, quantized, "--budget", BUDGET]
    more = ["--seconds", "3", "--format", "json", "--rerun", " ".join(script)]
    ran = subprocess.run([*command, *more], cwd=folder, stdout=subprocess.PIPE, check=False)
    result: Any = json.loads(ran.stdout)
    shown = [each for each in result["measured"]["models"] if each["path"] != "float"]
    times = [f"{1000 * each['latency']['cpu']:.2f}" for each in shown]
    errors = [f"{each['accuracy']['outputs'][0]['sqnr']:.1f}" for each in shown]
    return net.name, net.quantizer, str(len(result["left"])), *times, *errors


def export(net: Net, shape: tuple[int, ...], path: Path) -> None:
    """Writes a float net with random weights, whose batch norms have the statistics of random images."""
    import torch

    torch.manual_seed(0)
    if net.library == "here":
        layer = torch.nn.TransformerEncoderLayer(128, 4, 512, 0.0, batch_first=True)
        model: Any = torch.nn.TransformerEncoder(layer, 4, enable_nested_tensor=False)
    else:
        from torchvision import models

        model = getattr(models, net.name)(weights=None)
    for module in model.modules():
        if isinstance(module, torch.nn.BatchNorm2d):
            module.momentum = None
    with torch.no_grad():
        model.train()(torch.randn(8, *shape[1:]))
    torch.onnx.export(
        model.eval(), (torch.randn(shape),), path, opset_version=17, dynamo=False, input_names=["x"], output_names=["y"]
    )  # fmt: skip


if __name__ == "__main__":
    main()
