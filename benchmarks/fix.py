"""What ``otel-quant fix`` makes of eight nets of four families that AMD Quark has quantized, beside onnxruntime's quantizer.

The nets were named before the first rewrite was written, and nobody looked at them until all were; docs/fix.md has what was
changed since, for which two nets more are here. Weights are random: nothing is downloaded.

Run ``python benchmarks/fix.py FOLDER [NET ...]``; it wants ``pip install 'otel-quant[inference]' amd-quark timm
torchvision``. What it has written before it takes from the folder.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

import numpy as np
from measuring import Net, print_table, rows_of_nets
from onnxruntime.quantization import (
    CalibrationDataReader,
    QuantType,
    quant_pre_process,
    quantize_static,
)

import otel_quant
from otel_quant.inference.measure import measure_files
from otel_quant.inference.subjects import Options

NETS: Final = (
    Net("residual", "torchvision", "resnet18", "XINT8"),
    Net("residual", "timm", "resnet26", "A8W8"),
    Net("inverted residual", "torchvision", "mobilenet_v2", "XINT8"),
    Net("inverted residual", "timm", "efficientnet_lite0", "A8W8"),
    Net("concatenated", "torchvision", "squeezenet1_1", "XINT8"),
    Net("concatenated", "torchvision", "shufflenet_v2_x1_0", "A8W8"),
    Net("grouped", "torchvision", "regnet_x_400mf", "XINT8"),
    Net("grouped", "timm", "regnetx_002", "A8W8"),
)

LATER: Final = (
    Net("concatenated", "timm", "dla46_c", "XINT8"),
    Net("concatenated", "timm", "ghostnet_100", "A8W8"),
)
"""Named after a rewrite was changed for SqueezeNet and ShuffleNet, and before it was tried on these."""


SIZE: Final = 224
SAMPLES: Final = 8


def main() -> None:
    """Makes what is missing of each net, fixes it, and prints a table."""
    rows = rows_of_nets(__doc__, (*NETS, *LATER), row)
    print_table(
        ("net", "quantized by Quark as", "in integers", "then", "of", "time", "then", "by onnxruntime", "speed of the two",
         "SQNR", "then", "by onnxruntime"),
        rows,
    )  # fmt: skip


def row(net: Net, folder: Path) -> tuple[str, ...]:
    """Returns the row of a net: what ran in integers, CPU time in ms, SQNR in dB."""
    paths = [str(folder / f"{net.name}{end}.onnx") for end in ("", "-quark", "-fixed", "-ort")]
    floats, quantized, fixed, other = paths
    for path, make in zip(paths, (export, with_quark, None, with_onnxruntime), strict=True):
        if make is not None and not Path(path).exists():
            make(net, floats, path)
    Path(fixed).unlink(missing_ok=True)
    result = otel_quant.fix(quantized, fixed, float_model=floats)
    if result.output is None:
        return net.name, net.quantizer, result.why, *[""] * 9
    before, after, _ = result.proven
    measured: Any = measure_files([floats, other, fixed, quantized], Options(threads=1, samples=16))
    _, by_other, own, first = measured.models
    times = [each.latency.cpu for each in (first, own, by_other)]
    pair: Any = measure_files([other, fixed], Options(threads=1))
    slow, fast = (each.latency.cpu for each in pair.models)
    against = slow / fast
    sqnrs = before.sqnr_float, after.sqnr_float, by_other.accuracy.lowest_sqnr
    counts = map(str, (before.integers, after.integers, after.contractions))
    return (
        net.name, net.quantizer, *counts, *(f"{1000 * each:.2f}" for each in times), f"{against:.2f}",
        *(f"{each:.1f}" for each in sqnrs),
    )  # fmt: skip


def export(net: Net, _: str, path: str) -> None:
    """Writes a float net with random weights, whose batch norms have the statistics of random images."""
    import torch

    torch.manual_seed(0)
    if net.library == "timm":
        import timm

        model = timm.create_model(net.name, pretrained=False)
    else:
        from torchvision import models

        model = getattr(models, net.name)(weights=None)
    for module in model.modules():
        if isinstance(module, torch.nn.BatchNorm2d):
            module.momentum = None
    with torch.no_grad():
        model.train()(torch.randn(8, 3, SIZE, SIZE))
    image = (torch.randn(1, 3, SIZE, SIZE),)
    torch.onnx.export(
        model.eval(), image, path, opset_version=17, dynamo=False, input_names=["x"], output_names=["y"]
    )  # fmt: skip


class Images(CalibrationDataReader):
    """Random images, as the nets' input."""

    def __init__(self) -> None:
        self.left = iter(range(SAMPLES))

    def get_next(self) -> dict[str, np.ndarray] | None:
        """Returns the next one."""
        seed = next(self.left, None)
        if seed is None:
            return None
        return {
            "x": np.random.default_rng(seed).standard_normal((1, 3, SIZE, SIZE), dtype=np.float32)
        }


def with_quark(net: Net, floats: str, path: str) -> None:
    """Quantizes a net with AMD Quark."""
    from quark.onnx import ModelQuantizer
    from quark.onnx.quantization.config import Config, get_default_config

    config = Config(global_quant_config=get_default_config(net.quantizer))
    ModelQuantizer(config).quantize_model(floats, path, Images())


def with_onnxruntime(_: Net, floats: str, path: str) -> None:
    """Quantizes a net with onnxruntime's quantizer, after its own preparation, which takes Identities away."""
    prepared = path.replace(".onnx", "-prepared.onnx")
    quant_pre_process(floats, prepared, skip_symbolic_shape=True)
    quantize_static(
        prepared, path, Images(), activation_type=QuantType.QUInt8, weight_type=QuantType.QInt8
    )


if __name__ == "__main__":
    main()
