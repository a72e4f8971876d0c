"""Checkpoints that are laid out as well-known models are have nothing wrong: routers, vision towers, layers of another kind."""

from __future__ import annotations

import json
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from otel_quant.auditing.asked import AskedType, asked_of
from otel_quant.auditing.audit import audit
from tests.fixtures.checkpoints import Tensors

DENSE = ("self_attn.q_proj", "self_attn.o_proj", "mlp.up_proj", "mlp.down_proj")


class Laid(Tensors):
    """A checkpoint that is written layer by layer; all layers are square."""

    def __init__(self, quantization: dict[str, Any] | None, layers: int, **more: Any) -> None:
        found = {"quantization_config": quantization} if quantization else {}
        super().__init__({"num_hidden_layers": layers, **found, **more})
        self.put("model.embed_tokens.weight", "BF16", [1024, 256])
        self.in_float("lm_head", 1024)

    def in_float(self, name: str, outputs: int = 256) -> None:
        self.put(f"{name}.weight", "BF16", [outputs, 256])

    def gptq(self, name: str) -> None:
        for suffix, shape in {
            "qweight": [32, 256],
            "qzeros": [2, 32],
            "g_idx": [256],
            "bias": [256],
        }.items():
            self.put(f"{name}.{suffix}", "F16" if suffix == "bias" else "I32", shape)
        self.put(f"{name}.scales", "F16", [2, 256])

    def awq(self, name: str) -> None:
        self.put(f"{name}.qweight", "I32", [256, 32])
        self.put(f"{name}.qzeros", "I32", [2, 32])
        self.put(f"{name}.scales", "F16", [2, 256])

    def fp8(self, name: str) -> None:
        self.put(f"{name}.weight", "F8_E4M3", [256, 256])

    def nf4(self, name: str) -> None:
        state = json.dumps({"quant_type": "nf4", "blocksize": 64, "shape": [256, 256]}).encode()
        self.put(f"{name}.weight", "U8", [32768, 1])
        self.put(f"{name}.weight.absmax", "U8", [1024])
        self.put(f"{name}.weight.nested_absmax", "F32", [4])
        self.put(f"{name}.weight.quant_state.bitsandbytes__nf4", "U8", [len(state)], state)

    def packed(self, name: str) -> None:
        self.put(f"{name}.weight_packed", "I32", [256, 32])
        self.put(f"{name}.weight_scale", "BF16", [256, 2])
        self.put(f"{name}.weight_shape", "I64", [2], struct.pack("<2q", 256, 256))


def deepseek() -> Laid:
    """Blocks of FP8, a dense first layer, routers, and a last layer that predicts further tokens."""
    made = Laid({"quant_method": "fp8", "weight_block_size": [128, 128]}, 4)
    for at in range(5):
        experts = (
            [f"mlp.experts.{expert}.up_proj" for expert in range(8)] if at else ["mlp.up_proj"]
        )
        for name in ("self_attn.q_a_proj", "self_attn.o_proj", *experts):
            made.fp8(f"model.layers.{at}.{name}")
            made.put(f"model.layers.{at}.{name}.weight_scale_inv", "F32", [2, 2])
        if at:
            made.in_float(f"model.layers.{at}.mlp.gate", 8)
            made.put(f"model.layers.{at}.mlp.gate.e_score_correction_bias", "F32", [8])
    made.in_float("model.layers.4.eh_proj", 512)
    return made


def model_optimizer() -> Laid:
    """A configuration in a file of its own alone, and scales of the cache."""
    made = Laid(None, 3)
    quantization = {
        "quant_algo": "FP8",
        "kv_cache_quant_algo": "FP8",
        "exclude_modules": ["lm_head"],
    }
    made.others["hf_quant_config.json"] = {"quantization": quantization}
    for name in (f"model.layers.{at}.{part}" for at in range(3) for part in DENSE):
        made.fp8(name)
        made.put(f"{name}.weight_scale", "F32", [])
    made.put("model.layers.0.self_attn.k_proj.k_scale", "F32", [])
    return made


def experts(**left_out: Any) -> Laid:
    made = Laid(
        {"quant_method": "awq", "bits": 4, "group_size": 128, "version": "gemm"} | left_out, 3
    )
    for at in range(3):
        made.awq(f"model.layers.{at}.self_attn.q_proj")
        made.in_float(f"model.layers.{at}.block_sparse_moe.gate", 8)
        for expert in range(8):
            made.awq(f"model.layers.{at}.block_sparse_moe.experts.{expert}.w1")
    return made


def routers_named() -> Laid:
    return experts(modules_to_not_convert=["gate"])


def vision() -> Laid:
    """GPTQ of the language model; its configuration does not name the vision tower."""
    made = Laid({"quant_method": "gptq", "bits": 4, "group_size": 128, "desc_act": False}, 3)
    for name in (f"model.layers.{at}.{part}" for at in range(3) for part in DENSE):
        made.gptq(name)
    for name in (
        *(f"visual.blocks.{at}.attn.qkv" for at in range(4)),
        "visual.merger.mlp.0",
        "visual.merger.mlp.2",
    ):
        made.in_float(name)
    return made


def hybrid() -> Laid:
    """One layer of four has attention of the usual kind."""
    config = {
        "quant_method": "awq",
        "bits": 4,
        "group_size": 128,
        "modules_to_not_convert": ["linear_attn"],
    }
    made = Laid(config, 8)
    for at in range(8):
        made.awq(f"model.layers.{at}.mlp.up_proj")
        if at % 4 == 3:
            made.awq(f"model.layers.{at}.self_attn.q_proj")
        else:
            made.in_float(f"model.layers.{at}.linear_attn.out_proj")
    return made


def dynamic() -> Laid:
    """Some layers are left out by name, as Unsloth does it."""
    skipped = ["lm_head", "model.layers.1.mlp", "model.layers.2.self_attn.o_proj"]
    config = {
        "quant_method": "bitsandbytes",
        "load_in_4bit": True,
        "llm_int8_skip_modules": skipped,
    }
    made = Laid(config, 3)
    for name in (f"model.layers.{at}.{part}" for at in range(3) for part in DENSE):
        (made.in_float if name.startswith(tuple(skipped)) else made.nf4)(name)
    return made


def expressions() -> Laid:
    weights = {"num_bits": 4, "type": "int", "group_size": 128}
    config = {
        "quant_method": "compressed-tensors",
        "format": "pack-quantized",
        "ignore": ["lm_head", "re:.*mlp.gate$", "re:vision.*"],
        "config_groups": {"group_0": {"targets": ["Linear"], "weights": weights}},
    }
    made = Laid(config, 3)
    for at in range(3):
        made.packed(f"model.layers.{at}.mlp.experts.0.up_proj")
        made.in_float(f"model.layers.{at}.mlp.gate", 128)
    made.in_float("vision_model.encoder.layers.0.fc1")
    return made


def six_bits() -> Laid:
    """Four codes in three bytes, as AMD Quark packs MXFP6."""
    spec = {"dtype": "fp6_e3m2", "group_size": 32}
    config = {"quant_method": "quark", "exclude": ["lm_head"]}
    made = Laid({**config, "global_quant_config": {"weight": spec}}, 3)
    for name in (f"model.layers.{at}.{part}" for at in range(3) for part in DENSE):
        made.put(f"{name}.weight", "U8", [256, 192])
        made.put(f"{name}.weight_scale", "U8", [256, 8])
    return made


def auto_round_blocks() -> Laid:
    """Blocks of FP8, which AutoRound lays out as others do."""
    made = deepseek()
    packing = {"packing_format": "auto_round:fp8", "bits": 8, "data_type": "fp"}
    made.config["quantization_config"] |= {"quant_method": "auto-round", **packing}
    return made


def auto_round_floats() -> Laid:
    """MXFP4 of AutoRound: tensors of compressed-tensors, and a configuration of its own."""
    config = {"quant_method": "auto-round", "packing_format": "auto_round:llm_compressor"}
    made = Laid({**config, "bits": 4, "group_size": 32, "data_type": "mx_fp"}, 3)
    for name in (f"model.layers.{at}.{part}" for at in range(3) for part in DENSE):
        made.put(f"{name}.weight_packed", "U8", [256, 128])
        made.put(f"{name}.weight_scale", "U8", [256, 8])
    return made


def kept_by_transformers() -> Laid:
    """T5 of bitsandbytes: its configuration has nothing of what transformers leaves in float; a token is no layer."""
    made = Laid({"quant_method": "bitsandbytes", "load_in_4bit": True}, 3)
    for at in range(3):
        made.nf4(f"encoder.block.{at}.layer.0.SelfAttention.q")
        made.in_float(f"encoder.block.{at}.layer.1.DenseReluDense.wo")
    made.put("vit.cls_token", "BF16", [1, 1, 256])
    return made


def state_space() -> Laid:
    """Mamba: its short convolutions are no linear layers, which alone its method quantizes."""
    made = Laid({"quant_method": "bitsandbytes", "load_in_4bit": True}, 3)
    for at in range(3):
        made.nf4(f"model.layers.{at}.mixer.in_proj")
        made.nf4(f"model.layers.{at}.mixer.out_proj")
        made.put(f"model.layers.{at}.mixer.conv1d.weight", "BF16", [2048, 1, 4])
    return made


def stages() -> Laid:
    """Swin or ConvNeXt: the last stage has no layer that makes the next one's input smaller."""
    made = Laid({"quant_method": "bitsandbytes", "load_in_4bit": True}, 4)
    for at in range(4):
        for part in ("query", "output"):
            made.nf4(f"encoder.layers.{at}.blocks.0.{part}")
            made.nf4(f"encoder.layers.{at}.blocks.1.{part}")
        if at < 3:
            made.nf4(f"encoder.layers.{at}.downsample.reduction")
    return made


def test_a_stage_in_float_is_forgotten_though_the_others_are_of_other_shapes(
    tmp_path: Path,
) -> None:
    made = stages()
    for suffix in ("", ".absmax", ".nested_absmax", ".quant_state.bitsandbytes__nf4"):
        made.take(f"encoder.layers.1.downsample.reduction.weight{suffix}")
    made.put("encoder.layers.1.downsample.reduction.weight", "BF16", [512, 256])
    found = audit(made.write(tmp_path))
    assert [(each.kind, each.where) for each in found.problems] == [
        ("forgotten", "encoder.layers.1.downsample.reduction")
    ]


@pytest.mark.parametrize(
    ("kind", "data", "asked"),
    [
        ("Int8WeightOnlyConfig", {"group_size": None}, (8, 0, "int")),
        ("Int8DynamicActivationInt8WeightConfig", {}, (8, 0, "int")),
        ("Float8DynamicActivationInt4WeightConfig", {"group_size": 128}, (4, 128, "int")),
        ("Float8WeightOnlyConfig", {"weight_dtype": {"_data": "float8_e4m3fn"}}, (8, 0, "float")),
        (
            "Int8DynamicActivationIntxWeightConfig",
            {
                "weight_dtype": {"_data": "int4"},
                "weight_granularity": {"_data": {"group_size": 32}},
            },
            (4, 32, "int"),
        ),
    ],
)
def test_of_torchao_the_weights_are_of_the_type_that_is_asked_for_them(
    kind: str, data: dict[str, Any], asked: tuple[int, int, str]
) -> None:
    own = {"_type": kind, "_data": data}
    found = asked_of({"quant_method": "torchao", "quant_type": {"default": own}})
    assert found.default == AskedType(*asked)


@pytest.mark.parametrize("lacks", [0, 1, 2])
def test_of_three_blocks_the_middle_one_has_what_the_others_have(
    lacks: int, tmp_path: Path
) -> None:
    made = Laid({"quant_method": "bitsandbytes", "load_in_4bit": True}, 3)
    for at in range(3):
        for part in DENSE[: 3 + (at != lacks)]:
            made.nf4(f"model.layers.{at}.{part}")
    found = audit(made.write(tmp_path))
    lacking = [f"model.layers.{lacks}.mlp.down_proj"] * (lacks == 1)
    assert [each.where for each in found.problems] == lacking


@pytest.mark.parametrize(
    "make",
    [
        *(deepseek, model_optimizer, experts, routers_named, vision, hybrid, dynamic, expressions),
        *(
            six_bits,
            auto_round_blocks,
            kept_by_transformers,
            auto_round_floats,
            stages,
            state_space,
        ),
    ],
)
def test_a_known_kind_of_model_passes(make: Callable[[], Laid], tmp_path: Path) -> None:
    found = audit(make().write(tmp_path))
    assert found.answer.startswith("as configured: "), found.problems
    assert not found.problems


@pytest.mark.parametrize(
    ("blocks", "config", "is_missed"),
    [
        ("model.decoder.layers", {"num_hidden_layers": 4}, True),
        ("transformer.h", {"n_layer": 4}, True),
        ("bert.encoder.layer", {"num_hidden_layers": 4}, True),
        ("model.decoder.layers", {"num_hidden_layers": 4, "is_encoder_decoder": True}, False),
        ("vision_tower.encoder.layer", {"text_config": {"num_hidden_layers": 4}}, False),
    ],
)
def test_the_last_block_is_missed_by_what_the_configuration_counts(
    blocks: str, config: dict[str, Any], is_missed: bool, tmp_path: Path
) -> None:
    made = Laid({"quant_method": "bitsandbytes", "load_in_4bit": True}, 4)
    del made.config["num_hidden_layers"]
    made.config |= config
    for at in range(3):
        made.nf4(f"{blocks}.{at}.fc1")
        made.nf4(f"{blocks}.{at}.fc2")
    found = audit(made.write(tmp_path))
    assert [each.where for each in found.problems] == [f"{blocks}.3"] * is_missed
