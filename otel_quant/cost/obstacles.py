"""What keeps a quantized operator from a kernel on integers, and what in the model would change that.

The remedies that ``otel-quant fix`` writes stand here once: what it writes is called as findings call it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Final, NamedTuple


class Remedy(NamedTuple):
    """What in a model would change something."""

    text: str = ""  # In words; empty if nothing would
    kind: str = ""  # Of the rewrite of ``otel-quant fix`` that writes it; empty if there is none


class Obstacle(NamedTuple):
    """Why an operator whose operands are quantized has no kernel on integers."""

    reason: str  # In words
    remedy: Remedy = Remedy()


class Hindered:
    """Contractions that an obstacle keeps in float."""

    def __init__(self, why: Obstacle) -> None:
        self.why = why
        self.kinds = Counter[str]()
        self.names: list[str] = []  # In order of execution
        self.macs = 0
        self.then = Counter[str]()  # What they need as well, if anything


def together(obstacles: Sequence[Obstacle]) -> Obstacle:
    """Returns several as one, whose remedy is all of theirs; none where one of them has none."""
    reasons, remedies = zip(*obstacles, strict=True)
    are_known = all(each.text for each in remedies)
    texts, kinds = (", and ".join(filter(None, each)) for each in zip(*remedies, strict=True))
    return Obstacle(", and ".join(reasons), Remedy(texts, kinds) if are_known else Remedy())


# fmt: off
REWRITES: Final = {kind: Remedy(text, kind) for kind, text in {
    "constants": "a DequantizeLinear right in front of each operand, with constants computed beforehand",
    "batch_norm": "the batch norm as a part of the weights in front of it, as by quant_pre_process before the quantization",
    "axis": "weights with one scale, or one for each output channel",
    "blocks": "weights in blocks of 16, 32, 64 ... along axis 0",
    "matmul_add": "a Gemm with a bias of int32 in place of both or, of three dimensions, a bias of two in the Add",
    "islands": "QuantizeLinear and DequantizeLinear right behind it, as its only reader",
    "leaky_relu": "QuantizeLinear and DequantizeLinear also in front of the LeakyRelu",
    "bias": "an own bias of int32 with the scale of the products",
    "zero_point": "the lowest code as zero point behind the Relu or Clip",
    "unsigned": "uint8 for what is not a weight",
    "double": "one quantization in place of two in a row",
    "pairs": "floats in place of integers that no kernel takes",
    "session": "disabled_optimizers=['WeightBiasQuantization'] for the session",
    "sums": "add_session_config_entry('session.x64quantprecision', '1') of the session's options",
}.items()}
"""By kind, in the order in which they are applied."""

PAIRS_IN_FRONT: Final = Remedy("QuantizeLinear and DequantizeLinear in front of each operand", "islands")
EIGHT_BITS: Final = Remedy("8 bits, all unsigned with int8 weights or all int8")

NOT_QUANTIZED: Final = Obstacle(
    "its result is not quantized right behind it",
    Remedy(REWRITES["islands"].text),  # that kind quantizes a Relu alone
)
CLAMPED: Final = Obstacle("a Relu or Clip stands between it and the QuantizeLinear behind, whose range does not make it superfluous", REWRITES["zero_point"])
NORMED: Final = Obstacle("a BatchNormalization stands between it and the QuantizeLinear behind", REWRITES["batch_norm"])
LEAKY: Final = Obstacle("a LeakyRelu stands between it and the QuantizeLinear behind", REWRITES["leaky_relu"])
OTHER_SCALE: Final = Obstacle("its result has another scale or zero point than its operand", Remedy("the same ones"))
OTHER_NUMBERS: Final = Obstacle("integers are converted to another type, scale or zero point", REWRITES["double"])
SIGNED: Final = Obstacle("its operand or result is int8, which onnxruntime on x86-64 fuses only where it can make it uint8: where one node alone reads it", REWRITES["unsigned"])
NO_ZERO_POINT: Final = Obstacle("an operand has no zero point", Remedy("a zero point, even if it is 0"))
OTHER_SCALES: Final = Obstacle("its weight has other scales than one, or one for each output channel", REWRITES["axis"])
BETA: Final = Obstacle("its beta is not 1", Remedy("beta 1"))
BIAS_SCALE: Final = Obstacle("the scale of its bias is not the product of the scales of its operands", REWRITES["bias"])
JOINED: Final = Obstacle("its operand is quantized twice in a row, of which onnxruntime makes one quantization, and its bias has the scale of the second", REWRITES["double"])
BEFORE_A_CLAMP: Final = Obstacle("a Relu or Clip alone reads its result, behind which onnxruntime looks for a QuantizeLinear", Remedy("a QuantizeLinear right behind that, with a range that makes it superfluous"))
NO_WEIGHT_KERNEL: Final = Obstacle("there is no kernel for floats by integers for it", PAIRS_IN_FRONT)
WEIGHTS_SHARED: Final = Obstacle("others read its weights, too", Remedy("weights and a DequantizeLinear of its own for each"))
BY_ROWS: Final = Obstacle("the weights have scales along axis 0, over which the products are summed", REWRITES["axis"])
OTHER_GROUPS: Final = Obstacle("its weights have scales that the kernel for floats by integers does not take", REWRITES["blocks"])
CLAMPED_FLOATS: Final = Obstacle(BEFORE_A_CLAMP.reason)
NO_PLAIN_GEMM: Final = Obstacle("it transposes or scales an operand, or its bias has other than one dimension", Remedy("transA and transB 0, alpha and beta 1, a bias of one dimension"))
RESULT_QUANTIZED: Final = Obstacle("its result is quantized", Remedy("no QuantizeLinear behind it"))
NO_KERNEL: Final = Obstacle("there is no kernel on integers for it")
UNFOLDED: Final = Obstacle(NO_KERNEL.reason, REWRITES["batch_norm"])
NOT_HERE: Final = Obstacle("onnxruntime has no kernel on integers for it as it is")
NOT_DIRECTLY: Final = Obstacle("something stands between it and the DequantizeLinear of an operand", REWRITES["constants"])
FOREIGN: Final = Obstacle("other operators than QuantizeLinear and DequantizeLinear quantize its operands", Remedy("QuantizeLinear and DequantizeLinear"))
NO_CONSTANT: Final = Obstacle("no operand is a constant", Remedy("MatMulConstBOnly False in extra_options of the quantizer"))
IN_BODY: Final = Obstacle("the quantizer leaves alone what is in a body of If, Loop or Scan", Remedy("EnableSubgraph in extra_options of quantize_dynamic"))
EXCLUDED: Final = Obstacle("options of the quantizer exclude the name or operator, or list only others", Remedy("the names among those to be quantized"))
NOTHING: Final = Obstacle("nothing was quantized: no node has a name or operator that the quantizer was given", Remedy("names and operators that the model has"))
RENAMED: Final = Remedy("names with _MatMul behind them, which Gemms get first")
HALF_FLOATS: Final = Obstacle("its scales are not float32, and kernels on integers take no others", Remedy("scales of float32"))
ON_LOADING: Final = Obstacle("onnxruntime quantizes on loading what was left in float between quantized neighbours (WeightBiasQuantization)", REWRITES["session"])
FUSED_WITH_ADD: Final = Obstacle("onnxruntime fuses it with the Add behind it into a Gemm, which takes no float bias on integers", REWRITES["matmul_add"])
# fmt: on
