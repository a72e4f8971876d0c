"""How near the forecast of ``otel-quant advise`` comes to the rerun, on five nets of other families.

The nets were named before the code that advises was written. Weights are random: nothing is downloaded.
"""

from __future__ import annotations

from typing import Final, NamedTuple


class Net(NamedTuple):
    """A net, and how it is quantized."""

    family: str
    library: str  # torchvision, or here
    name: str
    quantizer: str  # onnxruntime's, or the configuration of AMD Quark


NETS: Final = (
    Net("residual", "torchvision", "resnet18", "onnxruntime"),
    Net("inverted residual", "torchvision", "mobilenet_v2", "onnxruntime"),
    Net("concatenated", "torchvision", "squeezenet1_1", "onnxruntime"),
    Net("shuffled", "torchvision", "shufflenet_v2_x1_0", "A8W8"),
    Net("transformer", "here", "encoder", "onnxruntime"),
)

BUDGET: Final = "sqnr>=+6dB"
"""What is asked for of each: a quarter of the noise."""
