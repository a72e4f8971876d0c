"""What ``otel-quant fix`` makes of eight nets of four families that AMD Quark has quantized, beside onnxruntime's quantizer.

The nets were named before the first rewrite was written, and nobody looked at them while rewrites were. Weights are
random: nothing is downloaded.

Run ``python benchmarks/fix.py FOLDER [NET ...]``; it wants ``pip install 'otel-quant[inference]' amd-quark timm
torchvision``. What it has written before it takes from the folder.
"""

from __future__ import annotations

from typing import Final, NamedTuple


class Net(NamedTuple):
    """A net, and how it is quantized."""

    family: str
    library: str  # timm or torchvision
    name: str
    config: str  # of AMD Quark


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
