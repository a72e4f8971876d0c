"""Models by real quantizers are measured whole: each kernel has its node, each MAC its kernel."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping
from pathlib import Path

import numpy as np
import onnx
import pytest
import torch
from torch import nn

from otel_quant.cost import analyze
from otel_quant.inference.measure import measure_files
from otel_quant.inference.results import ModelResult
from otel_quant.inference.subjects import Options
from tests.fixtures.onnx_builder import Builder, quantized_conv
from tests.integration.cost.exporting import export, samples
from tests.integration.cost.test_quark_models import Net

pytestmark = [pytest.mark.quark, pytest.mark.slow]


class _Transformer(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(64)
        self.attention = nn.MultiheadAttention(64, 4, batch_first=True)
        self.up, self.down = nn.Linear(64, 256), nn.Linear(256, 64)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.norm(x)
        x = x + self.attention(y, y, y, need_weights=False)[0]
        result: torch.Tensor = x + self.down(nn.functional.gelu(self.up(x)))
        return result


_FLOAT: Mapping[str, tuple[Callable[[], nn.Module], tuple[int, ...]]] = {
    "convolutions": (Net, (1, 3, 32, 32)),
    "transformer": (_Transformer, (1, 32, 64)),
}
_PRESETS = ("XINT8", "A8W8", "BF16")


def _quantized(path: Path, shape: tuple[int, ...]) -> list[Path]:
    """Writes what each quantizer makes of a float model."""
    batches = [{"x": np.random.default_rng(i).random(shape, np.float32)} for i in range(2)]
    from onnxruntime.quantization import QuantFormat, quantize_dynamic, quantize_static
    from onnxruntime.quantization.matmul_nbits_quantizer import MatMulNBitsQuantizer
    from quark.onnx import ModelQuantizer
    from quark.onnx.quantization.config import Config, get_default_config

    def target(name: str) -> Path:
        return path.with_name(f"{path.stem}-{name}.onnx")

    for preset in _PRESETS:
        config = Config(global_quant_config=get_default_config(preset))
        ModelQuantizer(config).quantize_model(str(path), str(target(preset)), samples(*batches))
    for form in (QuantFormat.QDQ, QuantFormat.QOperator):
        quantize_static(path, target(form.name), samples(*batches), quant_format=form)
    quantize_dynamic(path, target("dynamic"))
    four = MatMulNBitsQuantizer(onnx.load(path), block_size=32, is_symmetric=True)
    four.process()
    four.model.save_model_to_file(str(target("nbits")))
    return [target(each) for each in (*_PRESETS, "QDQ", "QOperator", "dynamic", "nbits")]


@pytest.mark.parametrize("name", _FLOAT)
def test_models_from_real_quantizers_are_measured_completely(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)  # Quark writes reports into the current folder
    build, shape = _FLOAT[name]
    path, has_products = tmp_path / "float.onnx", name == "transformer"
    export(build(), {"x": torch.rand(shape)}, path, dynamo=has_products)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        paths = [path, *_quantized(path, shape)]
    options = Options(runs=6, custom_ops=("quark",))
    results = measure_files(list(map(str, paths)), options).models
    assert {each.path: each.problem for each in results if each.problem} == {}
    for result in results:
        _assert_whole(result)
    by_name = {Path(each.path).stem.removeprefix("float-"): each for each in results}
    unchanged = {"float"} if has_products else {"float", "nbits"}  # it quantizes MatMul alone
    assert {key for key, each in by_name.items() if not each.is_quantized} == unchanged
    dynamic = _weights(by_name["dynamic"], "DynamicQuantizeMatMul")
    assert dynamic
    assert dynamic <= {"int8", "uint8"}
    assert _weights(by_name["nbits"], "MatMulNBits") == ({"uint8"} if has_products else set())
    bfloat = [each for each in by_name["BF16"].findings if "AMD Quark" in each.sentence]
    assert [each.kind for each in bfloat] == ["unfused"]
    # Quark's XINT8 stores a bias in 8 bits, for which no kernel of onnxruntime is there.
    assert any("the bias is int8" in each.sentence for each in by_name["XINT8"].findings)


def test_standard_operators_that_replace_quark_operators_are_fused(tmp_path: Path) -> None:
    def build(prefix: str, domain: str) -> Path:
        graph = Builder([1, 16, 16, 16])
        value = quantized_conv(graph, graph.quantized("x"), "c1", 16, 16)
        how = graph.how("other", np.uint8(128), 0.05)
        other = graph.node(f"{prefix}QuantizeLinear", ["x", *how], "other_Q", domain)
        other = graph.node(f"{prefix}DequantizeLinear", [other, *how], "other_DQ", domain)
        graph.output(graph.quantized(graph.node("Add", [value, other], "sum")))
        model = graph.model()
        model.opset_import.append(onnx.helper.make_opsetid("com.amd.quark", 1))
        onnx.save(model, tmp_path / f"{prefix}.onnx")
        return tmp_path / f"{prefix}.onnx"

    paths = [build("Extended", "com.amd.quark"), build("", "")]
    options = Options(runs=2, custom_ops=("quark",))
    own, standard = measure_files(list(map(str, paths)), options).models
    [of_sum] = [each for each in own.findings if each.node == "sum"]
    assert of_sum.remedy == "QuantizeLinear and DequantizeLinear"
    assert list(standard.findings) == []


def _weights(result: ModelResult, op_type: str) -> set[str]:
    """Returns the types of the second operands, which kernels have packed."""
    assert result.ran is not None
    kernels = [each for each in result.ran.kernels if each.op_type == op_type]
    return {each.inputs[1].split(" ")[0] for each in kernels}


def _assert_whole(result: ModelResult) -> None:
    assert result.ran is not None
    cost = analyze(result.path)
    contractions = {node.name for node in cost.nodes if node.macs_contraction}
    macs = {node.name: node.macs_contraction for node in cost.nodes}
    kernels = [each for each in result.ran.kernels if each.node in contractions]
    assert sum(each.macs or 0 for each in kernels) == sum(macs[name] or 0 for name in contractions)
    total = sum(each.micros for each in result.ran.kernels)
    assert total == pytest.approx(result.ran.kernel_micros, rel=0.01)
    assert result.ran.run_micros >= result.ran.kernel_micros
    for finding in result.findings:
        if finding.kind == "slower":  # it is of the whole model, not of kernels
            continue
        of_it = sum(k.share for k in result.ran.kernels if k.name in finding.kernels)
        assert finding.share == pytest.approx(of_it, rel=0.01)
