"""Weights that were packed in a test, by themselves, are found as far off as they were made."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import numpy as np
import pytest

from otel_quant.auditing.audit import audit
from otel_quant.auditing.checkpoint import AuditError
from otel_quant.cli import main
from tests.fixtures.checkpoints import Tensors, tensors

OUT, IN, GROUP = 64, 96, 32
LAYER: Final = "model.layers.0.up"
WEIGHT: Final = np.random.default_rng(7).standard_normal((OUT, IN)).astype(np.float32)
Made = tuple[
    dict[str, Any], dict[str, Any], Any
]  # Tensors, configuration, and the weights as they are used


def in_groups(weight: Any = WEIGHT, bits: int = 4) -> tuple[Any, Any, Any, Any]:
    """Returns codes, scales and zero points of groups, and the weights that they make."""
    groups = weight.reshape(OUT, -1, GROUP)
    least, most = groups.min(-1), groups.max(-1)
    scales = ((most - least) / ((1 << bits) - 1)).astype(np.float32)
    zeros = np.clip(np.round(-least / scales), 1, (1 << bits) - 1).astype(np.int64)
    codes = np.clip(np.round(groups / scales[..., None]) + zeros[..., None], 0, (1 << bits) - 1)
    made = (codes - zeros[..., None]) * scales[..., None]
    return codes.reshape(OUT, IN).astype(np.int64), scales, zeros, made.reshape(OUT, IN)


def packed(codes: Any, order: tuple[int, ...] = tuple(range(8))) -> Any:
    """Returns codes of 4 bits, eight of the last axis in an int32."""
    eight = codes.reshape(*codes.shape[:-1], -1, 8)
    words = sum(
        eight[..., at].astype(np.uint32) << np.uint32(4 * place) for at, place in enumerate(order)
    )
    return np.asarray(words, np.uint32).view(np.int32)


def gptq() -> Made:
    codes, scales, zeros, made = in_groups()
    turn = np.random.default_rng(1).permutation(IN)  # as desc_act has it
    rows = {
        "qweight": packed(codes[:, turn]).T,
        "scales": scales.T,
        "qzeros": packed((zeros - 1).T),
        "g_idx": (np.arange(IN) // GROUP)[turn].astype(np.int32),
    }
    config = {"quant_method": "gptq", "bits": 4, "group_size": GROUP}
    return rows, config, made[:, turn]


def second_gptq() -> Made:
    """The format whose zero points are as they are."""
    codes, scales, zeros, made = in_groups()
    rows = {"qweight": packed(codes).T, "scales": scales.T, "qzeros": packed(zeros.T)}
    rows["g_idx"] = (np.arange(IN) // GROUP).astype(np.int32)
    config = {"quant_method": "gptq", "bits": 4, "group_size": GROUP}
    return rows, config | {"checkpoint_format": "gptq_v2"}, made


def awq(factors: Any = 1.0) -> Made:
    codes, scales, zeros, made = in_groups(WEIGHT * factors)
    order = (0, 4, 1, 5, 2, 6, 3, 7)
    rows = {"qweight": packed(codes.T, order), "scales": scales.T, "qzeros": packed(zeros.T, order)}
    return rows, {"quant_method": "awq", "bits": 4, "group_size": GROUP}, made / factors


def scaled() -> Made:
    return awq(np.linspace(0.5, 3, IN, dtype=np.float32))


def channels() -> tuple[Any, Any]:
    scales = (abs(WEIGHT).max(1, keepdims=True) / 127).astype(np.float32)
    return np.round(WEIGHT / scales).astype(np.int8), scales


def compressed() -> Made:
    codes, scales, zeros, made = in_groups()
    shape = np.array([OUT, IN])
    rows = {
        "weight_packed": packed(codes),
        "weight_scale": scales,
        "weight_zero_point": packed(zeros.T).T,
        "weight_shape": shape,
    }
    group = {"targets": ["Linear"], "weights": {"num_bits": 4, "type": "int", "group_size": GROUP}}
    return rows, {"quant_method": "compressed-tensors", "config_groups": {"group_0": group}}, made


def bitsandbytes() -> Made:
    codes, scales = channels()
    rows = {"weight": codes, "SCB": (scales * 127).reshape(-1)}
    return rows, {"quant_method": "bitsandbytes", "load_in_8bit": True}, codes * scales


def torchao() -> Made:
    codes, scales = channels()
    kind = {"default": {"_type": "Int8WeightOnlyConfig", "_data": {}}}
    rows = {"_weight_qdata": codes, "_weight_scale": scales}
    return rows, {"quant_method": "torchao", "quant_type": kind}, codes * scales


TYPES: Final = {"int8": "I8", "int32": "I32", "int64": "I64", "float32": "F32"}


def put(made: Tensors, name: str, value: Any) -> None:
    made.put(
        name, TYPES[str(value.dtype)], list(value.shape), np.ascontiguousarray(value).tobytes()
    )


@pytest.mark.parametrize(
    "make", [gptq, second_gptq, awq, scaled, compressed, bitsandbytes, torchao]
)
def test_the_error_of_a_layer_is_that_of_its_weights(
    make: Callable[[], Made], tmp_path: Path
) -> None:
    rows, config, expected = make()
    made, floats = Tensors({"quantization_config": config}), Tensors()
    for name, value in rows.items():
        put(made, f"{LAYER}.{name}", value)
    real = WEIGHT if make is not gptq else WEIGHT[:, np.random.default_rng(1).permutation(IN)]
    put(floats, f"{LAYER}.weight", real)
    found = audit(made.write(tmp_path / "made"), floats.write(tmp_path / "float"), weights=True)
    [layer] = found.layers
    error = 10 * np.log10((real**2).sum() / ((expected - real) ** 2).sum())
    assert found.passed, found.problems
    # Of channels that were scaled, the error is that in the scale in which they were rounded.
    assert layer.sqnr == pytest.approx(error, abs=1.5 if make is scaled else 0.01)


@pytest.mark.parametrize("codes", [np.zeros_like(WEIGHT), WEIGHT[::-1] * 20])
def test_other_weights_and_none_at_all_do_not_pass(codes: Any, tmp_path: Path) -> None:
    rows, config, _ = bitsandbytes()
    made, floats = Tensors({"quantization_config": config}), Tensors()
    put(made, f"{LAYER}.weight", codes.astype(np.int8))
    put(made, f"{LAYER}.SCB", rows["SCB"])
    put(floats, f"{LAYER}.weight", WEIGHT)
    found = audit(made.write(tmp_path / "made"), floats.write(tmp_path / "float"), weights=True)
    assert [(each.where, each.what) for each in found.problems] == [
        (LAYER, "has other weights than the float model: SQNR is 0 dB or less")
    ]


def test_weights_need_a_float_model(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    assert main(["audit", str(tmp_path), "--weights"]) == 2
    assert (
        capsys.readouterr().err
        == "otel-quant: --weights: expected --against FLOAT, to compare with\n"
    )
    with pytest.raises(AuditError, match="does not exist"):
        audit(tmp_path / "none")
    tensors("gptq4").write(tmp_path)
    with pytest.raises(AuditError, match="has no tensors; expected the float model"):
        audit(tmp_path, tmp_path / "none")
