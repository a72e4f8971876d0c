"""PyTorch models by real quantizers: what ran in which module, in which types, and what went wrong."""

from __future__ import annotations

import platform
import re
from collections import Counter
from collections.abc import Callable, Mapping
from typing import Any

import pytest
import torch
from torch import nn
from torch.profiler import ProfilerActivity, profile, record_function

from otel_quant import MeasuredInference, measure_inference
from otel_quant.cost.graph import printable
from otel_quant.inference.results import ModelResult
from otel_quant.inference.torch_parts import is_operator
from otel_quant.inference.torch_profile import RUN, events_of, runs_of
from otel_quant.inference.torch_session import has_quantized_weights
from tests.integration.inference.pytorch_models import (
    BY_TORCHAO,
    IDS,
    IMAGE,
    by_engine,
    converted_export,
    convolutions,
    prepared_export,
    transformer,
)

pytestmark = pytest.mark.usefixtures("one_thread")
ENGINES = [name for name in torch.backends.quantized.supported_engines if name != "none"]
ON_X86 = platform.machine() == "x86_64"


@pytest.fixture(scope="module")
def images(one_thread: None) -> MeasuredInference:
    models = {
        "float": convolutions(),
        "observed": prepared_export,
        "exported": converted_export,
        **{engine: by_engine(engine) for engine in ENGINES},
    }
    return measure_inference(models, IMAGE, runs=2)


@pytest.fixture(scope="module")
def texts(one_thread: None) -> MeasuredInference:
    return measure_inference({"float": transformer(), **BY_TORCHAO}, IDS, runs=2)


def named(result: MeasuredInference) -> Mapping[str, ModelResult]:
    assert [each.problem for each in result.models] == [""] * len(result.models)
    return {each.path: each for each in result.models}


def slowest(model: ModelResult, prefix: str) -> dict[str, tuple[str, str, str]]:
    """Returns by module the operators of a kind with the types that they take first and return."""
    assert model.ran is not None
    return {
        str(each.node): (each.op_type, each.inputs[0], each.outputs[0])
        for each in model.ran.kernels
        if each.op_type.startswith(prefix)
    }


def conversions(model: ModelResult) -> dict[tuple[str, str], int]:
    return {(each.kind, each.types): each.calls for each in model.conversions}


def found(model: ModelResult) -> dict[str, set[str]]:
    """Returns the modules with a defect of each kind."""
    kinds = {each.kind for each in model.findings}
    return {kind: {each.node for each in model.findings if each.kind == kind} for kind in kinds}


@pytest.mark.parametrize("engine", ENGINES)
def test_operators_of_each_engine_belong_to_modules_and_have_types(
    engine: str, images: MeasuredInference
) -> None:
    model = named(images)[engine]
    assert slowest(model, "quantized::") == {
        "stem.0": ("quantized::conv2d_relu", "quint8 2x3x32x32", "quint8 2x16x16x16"),
        "depthwise.0": ("quantized::conv2d_relu", "quint8 2x16x16x16", "quint8 2x16x16x16"),
        "point.0": ("quantized::conv2d_relu", "quint8 2x16x16x16", "quint8 2x32x16x16"),
        "head": ("quantized::linear", "quint8 2x32", "quint8 2x10"),
    }
    assert conversions(model) == {
        ("quantize", "float32 -> quint8"): 1,
        ("dequantize", "quint8 -> float32"): 1,
    }
    assert model.facts["quantized engine"] == engine
    made_for_arm = {"fallback": {"(model)"}} if engine == "qnnpack" and ON_X86 else {}
    assert found(model) == {"inserted": {"stem.0"}} | made_for_arm
    [reordered] = [each for each in model.findings if each.kind == "inserted"]
    assert reordered.sentence.startswith(
        "quantized::conv2d_relu of `stem.0` copies what it takes to another layout, channels last ("
    )
    assert model.accuracy is not None
    [error] = model.accuracy.outputs
    assert error.sqnr is not None
    assert error.sqnr > 20


@pytest.mark.skipif(not ON_X86, reason="oneDNN has other implementations elsewhere")
def test_onednn_kernels_have_types_and_module(images: MeasuredInference) -> None:
    model = named(images)["onednn"]
    types, ran = "src:u8 wei:s8 bia:f32 dst:u8", Counter[tuple[str, str, str]]()
    for each in model.backend:
        ran[each.library, each.primitive, each.types] += each.nodes
    assert ran == {("oneDNN", "convolution", types): 3, ("oneDNN", "matmul", types): 1}
    # Those with one implementation are a row: with AVX2 stem and depthwise have, with VNNI not.
    first = {each.node for each in model.backend}
    assert {"stem.0", "point.0", "head"} <= first <= {"stem.0", "depthwise.0", "point.0", "head"}
    assert all(":" in each.implementation for each in model.backend)  # jit:avx512_core_vnni
    assert model.facts["oneDNN's instruction set"]


def test_an_exported_model_that_was_not_lowered_runs_in_float(images: MeasuredInference) -> None:
    model = named(images)["exported"]
    assert conversions(model) == {
        ("quantize", "float32 -> uint8"): 6,
        ("dequantize", "uint8 -> float32"): 6,
        ("dequantize", "int8 -> float32"): 4,
    }
    assert found(model) == {
        "in_float": {"stem.0", "depthwise.0", "point.0", "head"},
        "unfused": {"pool"},
    }
    assert model.ran is not None
    of_stem = next(each for each in model.findings if each.node == "stem.0")
    assert of_stem.sentence.startswith(
        "aten::conv2d of `stem.0` ran in float32 although its weights are int8: they are dequantized "
        "in every run ("
    )
    assert of_stem.share == pytest.approx(of_stem.micros / model.ran.kernel_micros)
    assert 0 < of_stem.share < 1


def test_observers_that_still_run_are_named(images: MeasuredInference) -> None:
    observed = found(named(images)["observed"])
    assert set(observed) == {"observed"}
    assert all(each.startswith("activation_post_process_") for each in observed["observed"])


@pytest.mark.parametrize("name", ["float", *BY_TORCHAO])
def test_a_transformer_layer_runs_unchanged_while_it_is_measured(
    name: str, texts: MeasuredInference
) -> None:
    """Hooks of modules would keep torch from the operator for a complete layer."""
    model = named(texts)[name]
    assert model.ran is not None
    whole = {each.op_type for each in model.ran.kernels if each.node == "layer"}
    assert ("aten::_transformer_encoder_layer_fwd" in whole) == (name == "float")


def test_torchao_quantization_is_detected_by_operators_and_types(texts: MeasuredInference) -> None:
    models = named(texts)
    linear = {"layer.linear1", "layer.linear2", "head"}
    assert found(models["float"]) == {}
    assert conversions(models["float"]) == {}

    weights = models["int8 weights"]
    assert conversions(weights) == {("convert", "int8 -> float32"): 3}
    assert found(weights) == {"in_float": linear}

    dynamic = models["int8 dynamic"]
    assert set(slowest(dynamic, "aten::_int_mm")) == linear
    assert conversions(dynamic)["quantize", "float32 -> int8"] == 3
    assert conversions(dynamic)["choose scales", "float32"] == 3
    # Without VNNI products take so long that conversions are about 1 % of the time, from which on they are told.
    assert found(dynamic) in ({"inserted": linear}, {})
    assert dynamic.converting > 0

    four_bits = models["int4 weights"]
    assert set(slowest(four_bits, "aten::_weight_int4pack_mm_for_cpu")) == linear
    assert "in_float" not in found(four_bits)
    assert {name: each.is_quantized for name, each in models.items()} == {
        "float": False, "int8 weights": True, "int8 dynamic": True, "int4 weights": True
    }  # fmt: skip


def test_a_model_is_quantized_if_it_runs_operators_that_quantize() -> None:
    def fake(x: torch.Tensor) -> torch.Tensor:
        return torch.fake_quantize_per_tensor_affine(x, 0.1, 0, -128, 127)

    def converts(x: torch.Tensor) -> torch.Tensor:
        return x.to(torch.uint8).to(torch.float32)

    models = named(
        measure_inference({"a": lambda: fake, "b": lambda: converts}, torch.ones(4), runs=1)
    )
    assert [models[name].role for name in "ab"] == ["quantized", "float"]


@pytest.mark.parametrize("name", ["qweight", "weight_packed"])
def test_weights_packed_into_numbers_of_32_bits_are_quantized(name: str) -> None:
    packed, indices = nn.Linear(8, 8), nn.Linear(8, 8)
    packed.register_buffer(name, torch.zeros(1, 8, dtype=torch.int32))
    indices.register_buffer("positions", torch.zeros(1, 8, dtype=torch.int32))
    assert has_quantized_weights(nn.Sequential(packed)) is True
    assert has_quantized_weights(nn.Sequential(indices)) is False


def test_a_result_has_weights_and_memory(texts: MeasuredInference) -> None:
    models = named(texts)
    sizes = {name: each.memory for name, each in models.items()}
    for memory in sizes.values():
        assert memory is not None
        assert memory.allocated is not None
        assert memory.alive is not None
        assert memory.peak is not None
        assert memory.run_growth is not None
        assert memory.peak > memory.allocated >= memory.alive > 0
    saved = {name: each.weights_on_disk for name, each in sizes.items() if each is not None}
    whole = sum(each.numel() * each.element_size() for each in transformer().parameters())
    quantized = 128 * 64 + 64 * 128 + 96 * 64  # elements
    scales_and_zero_points = (4 + 1) * (128 + 64 + 96)
    assert saved["float"] == pytest.approx(whole, abs=8192)  # names and shapes
    int8 = whole - 3 * quantized + scales_and_zero_points
    assert saved["int8 weights"] == pytest.approx(int8, abs=8192)


def test_sums_agree_with_torchs_own_profile() -> None:
    model = by_engine(ENGINES[-1])()
    with torch.no_grad(), profile(activities=[ProfilerActivity.CPU]) as session:
        for _ in range(3):
            with record_function(RUN):
                model(IMAGE)
    [first, *others] = runs_of(events_of(session.profiler.kineto_results))
    assert {each.names for each in others} == {first.names}
    ours: dict[str, float] = {}
    for tree in (first, *others):
        for operator in tree.operators:
            ours[operator.name] = ours.get(operator.name, 0) + operator.own / 1000
    theirs = {
        each.key: each.self_cpu_time_total
        for each in session.key_averages()
        if is_operator(each.key)
    }
    assert ours == pytest.approx(theirs, rel=0.01)
    assert sum(ours.values()) == pytest.approx(sum(theirs.values()), rel=0.01)


def test_a_quantized_model_that_is_slower_than_the_float_one_has_a_finding() -> None:
    torch.backends.quantized.engine = ENGINES[-1]
    layers = [nn.Linear(8, 8) for _ in range(40)]
    deep = torch.ao.quantization.quantize_dynamic(nn.Sequential(*layers).eval(), {nn.Linear})
    models = named(measure_inference({"float": layers[0], "int8": deep}, torch.ones(4, 8), runs=40))
    assert "slower" not in {each.kind for each in models["float"].findings}
    [slower] = [each for each in models["int8"].findings if each.kind == "slower"]
    # On a busy machine the CPU time tells what rounds do not.
    told = r"it is [\d.]+ x slower than the float model, (where rounds differ by .+|by CPU time)"
    assert re.fullmatch(told, slower.sentence)


@pytest.mark.slow
def test_compiled_models_have_generated_code_and_kernels_on_integers() -> None:
    from torch._inductor import config

    floats = measure_inference(torch.compile(convolutions()), IMAGE, runs=2)
    with config.patch(freezing=True):
        integers = measure_inference(torch.compile(converted_export()), IMAGE, runs=2)
    [compiled] = named(floats).values()
    assert compiled.ran is not None
    generated = {each.node for each in compiled.ran.kernels if "compiled code" in each.op_type}
    assert generated == {"(model)"}
    [int8] = named(integers).values()
    assert found(int8) == {}
    assert conversions(int8) == {}
    assert int8.ran is not None
    operators = {each.op_type for each in int8.ran.operators}
    assert {"onednn::qconv_pointwise", "onednn::qlinear_pointwise"} <= operators


class _Waste(nn.Module):
    """Allocates 32 MB twice in a row, and gives each back."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for _ in range(2):
            x = x + sum(each[0] for each in [torch.ones(1 << 18) for _ in range(32)])
        return x


def test_allocated_memory_is_the_peak_and_not_the_sum() -> None:
    [model] = named(measure_inference(_Waste(), torch.ones(1), runs=2)).values()
    assert model.memory is not None
    once = 32 << 20
    assert model.memory.allocated == pytest.approx(2 * once, rel=0.01)
    assert model.memory.alive == pytest.approx(once, rel=0.01)
    assert model.memory.run_growth == pytest.approx(once, rel=0.05)


def test_an_input_in_channels_last_is_not_copied() -> None:
    image = IMAGE.to(memory_format=torch.channels_last)
    [model] = named(measure_inference(by_engine(ENGINES[-1])(), image, runs=1)).values()
    assert "inserted" not in found(model)


@pytest.mark.slow
def test_a_compiled_part_of_a_model_is_compiled_once_and_torch_warns_of_nothing(
    recwarn: pytest.WarningsRecorder,
) -> None:
    from torch._dynamo.utils import counters

    model = convolutions()
    model.stem = torch.compile(model.stem)
    counters.clear()
    [measured] = named(measure_inference(model, IMAGE, runs=2)).values()
    assert counters["stats"]["unique_graphs"] == counters["frames"]["total"] == 1
    assert measured.ran is not None
    modules = {each.node for each in measured.ran.kernels if "conv" in each.op_type}
    assert modules == {"stem", "depthwise.0", "point.0"}
    assert not [each for each in recwarn if "hook" in str(each.message)]


class _Nested(nn.Module):
    """A graph within a module, which is called by the names of its arguments."""

    def __init__(self) -> None:
        super().__init__()
        self.traced = torch.fx.symbolic_trace(convolutions())
        exported = torch.export.export(_Scaled(), (), {"x": torch.ones(2, 10), "scale": 2.0})
        self.exported = exported.module()

    def forward(self, image: torch.Tensor) -> torch.Tensor:
        result: torch.Tensor = self.exported(x=self.traced(image), scale=2.0)
        return result


class _Scaled(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.Linear(10, 4)

    def forward(self, *, x: torch.Tensor, scale: float) -> torch.Tensor:
        result: torch.Tensor = self.inner(x) * scale
        return result


def test_operators_of_graphs_belong_to_the_modules_that_their_nodes_name() -> None:
    [model] = named(measure_inference(_Nested(), {"image": IMAGE}, runs=1)).values()
    assert model.inputs == {"image": "float32 2x3x32x32"}
    assert model.ran is not None
    outermost = {
        (each.node, each.op_type)
        for each in model.ran.kernels
        if each.op_type in ("aten::conv2d", "aten::linear", "aten::mul", "aten::flatten")
    }
    assert outermost == {
        ("traced.stem.0", "aten::conv2d"),
        ("traced.depthwise.0", "aten::conv2d"),
        ("traced.point.0", "aten::conv2d"),
        ("traced", "aten::flatten"),
        ("traced.head", "aten::linear"),
        ("exported.inner", "aten::linear"),
        ("exported", "aten::mul"),
    }


class _Residual(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = (nn.Conv2d(3, 3, 3, padding=1) for _ in range(2))

    def forward(self, image: torch.Tensor) -> torch.Tensor:
        result: torch.Tensor = self.second(torch.relu(self.first(image) + image))
        return result


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_a_quantized_function_of_a_graph_is_of_its_block_and_not_of_the_next_module() -> None:
    from torch.ao.quantization import get_default_qconfig_mapping, quantize_fx

    torch.backends.quantized.engine = ENGINES[-1]
    mapping = get_default_qconfig_mapping(ENGINES[-1])
    blocks = nn.Sequential(_Residual(), _Residual()).eval()
    prepared = quantize_fx.prepare_fx(blocks, mapping, (IMAGE,))
    prepared(IMAGE)
    [model] = named(measure_inference(quantize_fx.convert_fx(prepared), IMAGE, runs=1)).values()
    assert {name: op_type for name, (op_type, *_) in slowest(model, "quantized::").items()} == {
        name: kind
        for block in ("0", "1")
        for name, kind in (
            (f"{block}.first", "quantized::conv2d"),
            (block, "quantized::add_relu"),
            (f"{block}.second", "quantized::conv2d"),
        )
    }


@pytest.mark.parametrize("name", ['a"b', "a\nb", "a\\q", "\u00e9"])
def test_types_and_modules_are_found_for_any_module_name(name: str) -> None:
    model = nn.Sequential()
    model.add_module(name, nn.Linear(8, 4))
    [result] = measure_inference(model, torch.ones(2, 8), runs=1).models
    assert result.ran is not None
    [kernel] = [each for each in result.ran.kernels if each.op_type == "aten::addmm"]
    assert kernel.node == printable(name)
    assert kernel.inputs == ("float32 4", "float32 2x8", "float32 8x4")
    assert kernel.outputs == ("float32 2x4",)


class _Wrapped(nn.Module):
    """A model with one defect."""

    def __init__(self, planted: Callable[[_Wrapped, torch.Tensor], torch.Tensor]) -> None:
        super().__init__()
        self.planted = planted
        self.register_buffer("weights", torch.ones(10, 3 * 32 * 32, dtype=torch.int8))
        self.convolution = nn.Conv2d(3, 4, 3)

    def forward(self, image: torch.Tensor) -> torch.Tensor:
        return self.planted(self, image)


def _quantized(image: torch.Tensor) -> torch.Tensor:
    return torch.quantize_per_tensor(image, 0.01, 128, torch.quint8)


def _scaled_weights(model: _Wrapped, image: torch.Tensor) -> torch.Tensor:
    assert isinstance(model.weights, torch.Tensor)
    return image.flatten(1) @ (model.weights * torch.ones(10, 1)).t()


def _mean_of_integers(_: _Wrapped, image: torch.Tensor) -> torch.Tensor:
    return torch.mean(_quantized(image), dim=(1,)).dequantize()


def _float_between(_: _Wrapped, image: torch.Tensor) -> torch.Tensor:
    return _quantized(torch.softmax(_quantized(image).dequantize(), dim=1)).dequantize()


def _casts(_: _Wrapped, image: torch.Tensor) -> torch.Tensor:
    return image.to(torch.bfloat16).tanh().float()


def _clean(model: _Wrapped, image: torch.Tensor) -> torch.Tensor:
    result: torch.Tensor = _quantized(model.convolution(image)).dequantize().relu()
    return result


PLANTED: dict[str, tuple[Any, list[tuple[str, str]]]] = {
    "weights": (_scaled_weights, [("in_float", "aten::matmul of `(model)` ran in float32 although its weights are int8")]),
    "mean": (_mean_of_integers, [("in_float", "aten::mean of `(model)` takes quint8, dequantizes it and runs in float (")]),
    "between": (_float_between, [("unfused", "aten::softmax of `(model)` ran in float between")]),
    "casts": (_casts, [
        ("inserted", "aten::to of `(model)` converts bfloat16 -> float32"),
        ("inserted", "aten::to of `(model)` converts float32 -> bfloat16"),
    ]),
    "clean": (_clean, []),
}  # fmt: skip


def test_planted_defects_are_the_only_findings() -> None:
    models = {name: _Wrapped(forward) for name, (forward, _) in PLANTED.items()}
    for name, model in named(measure_inference(models, IMAGE, runs=1)).items():
        expected = PLANTED[name][1]
        sentences = sorted((each.kind, each.sentence) for each in model.findings)
        assert [kind for kind, _ in sentences] == [kind for kind, _ in expected]
        for (_, sentence), (_, begin) in zip(sentences, expected, strict=True):
            assert sentence.startswith(begin)
        assert all(0 < each.share < 1.01 for each in model.findings)
