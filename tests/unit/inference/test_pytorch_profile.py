"""The results from profiler events, operands and log lines of libraries, without torch."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from otel_quant.inference import torch_profile
from otel_quant.inference.results import BackendKernel
from otel_quant.inference.torch_findings import FINDINGS, Flow, TorchEvidence
from otel_quant.inference.torch_parts import shown
from otel_quant.inference.torch_profile import (
    Events,
    Operand,
    ProfilerEvent,
    TorchOperator,
    TorchProfile,
    kernels_on_gpu,
    profile,
    ran_of,
    read_operands,
    read_verbose,
    runs_of,
)


def _event(name: str, begin: int, end: int, thread: int = 1, number: int = 0) -> ProfilerEvent:
    is_range = name.startswith("otel-quant") or "::" not in name
    return ProfilerEvent(begin, end - begin, name, thread, number, is_range)


def test_a_run_is_a_tree_with_own_times_modules_and_allocations() -> None:
    events = Events(
        sorted([
            _event("otel-quant run", 0, 100),
            _event("otel-quant module:fc", 10, 60),
            _event("aten::linear", 12, 50, number=1),
            _event("aten::t", 12, 20, number=2),
            _event("a range of the program", 22, 42),
            _event("aten::addmm", 25, 40, number=3),
            _event("aten::relu", 70, 80, number=4),
            _event("aten::sum", 30, 40, thread=2, number=5),
            _event("otel-quant run", 200, 220),
            _event("Torch-Compiled Region: 0/0", 200, 215),
            _event("## Call CompiledFxGraph f12345678 ##", 201, 214, number=6),
            *(
                ProfilerEvent(begin, 0, "[memory]", 1, size=size)
                for begin, size in ((5, 7), (13, 64), (26, 1000), (39, -1000), (75, 500), (90, -571))
            ),
        ]),
        {},
    )  # fmt: skip
    first, second = runs_of(events)
    assert (first.length, first.allocated, first.alive) == (100, 1571, 1071)
    assert first.operators == [
        TorchOperator("aten::linear", "fc", None, 38 - 8 - 20, 38, 0, 1),
        TorchOperator("aten::t", "fc", 0, 8, 8, 64, 2),
        TorchOperator("aten::addmm", "fc", 0, 15, 15, 1000, 3),
        TorchOperator("aten::relu", "", None, 10, 10, 500, 4),
        TorchOperator("aten::sum", "", None, 10, 10, 0, 5),
    ]
    assert [(each.name, each.own) for each in second.operators] == [
        ("## Call CompiledFxGraph f12345678 ##", 13)
    ]
    assert shown(second.operators[0].name) == "compiled code f1234567"


def test_the_faster_half_of_the_runs_with_the_same_operators_is_used(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def runs(*lengths: int, other: str = "aten::mm") -> list[ProfilerEvent]:
        events: list[ProfilerEvent] = []
        for length in lengths:
            begin = 10_000 * len(events)
            name = other if length == 500 else "aten::mm"
            events += [
                _event("otel-quant run", begin, begin + length),
                _event(name, begin + 1, begin + 1 + length // 2),
            ]
        return events

    looked = Events(runs(9000), {})
    timed = Events(runs(4000, 1000, 500, 2000, 3000, other="aten::bmm"), {})
    [what_ran] = runs_of(looked)
    monkeypatch.setattr(torch_profile, "_look", lambda *_: (looked, what_ran, {}))
    monkeypatch.setattr(torch_profile, "_session", lambda *_: timed)
    assert profile(None, lambda: None, 5, on_gpu=False) == TorchProfile(
        2, 1.5, (TorchOperator("aten::mm", "", None, 750.0, 750.0),), 0, 0
    )


def test_operators_on_a_gpu_have_the_time_of_their_kernels() -> None:
    events = Events(
        [
            _event("otel-quant run", 0, 100),
            _event("aten::linear", 10, 20, number=1),
            _event("aten::addmm", 12, 18, number=2),
        ],
        {2: [("gemm", 40), ("bias", 10)]},
    )
    [run] = runs_of(events)
    assert [(each.own, each.total) for each in run.operators] == [(0, 50), (50, 50)]


def test_gpu_kernels_have_their_module() -> None:
    kernels = (
        _kernel("aten::mm", [], [], on_device=("gemm", "bias")),
        _kernel("aten::mm", [], [], module="head", on_device=("gemm", "gemm")),
    )
    assert kernels_on_gpu(TorchProfile(1, 30.0, kernels, 0, 0)) == (
        BackendKernel("GPU", "gemm", "", "", 3, "fc", 2),
        BackendKernel("GPU", "bias", "", "", 1, "fc", 1),
    )


def _tensor(storage: int, dtype: str, *shape: int) -> Operand:
    return Operand(dtype, shape or (8, 8), storage)


def _kernel(
    name: str, inputs: list[Operand], outputs: list[Operand], parent: int | None = None, **more: Any
) -> TorchOperator:
    """Returns an operator of 10 us, or of ``own`` and ``total`` nanoseconds."""
    values = {"module": "fc", "own": 10_000, "total": 10_000} | more
    return TorchOperator(
        name, parent=parent, inputs=tuple(inputs), outputs=tuple(outputs), **values
    )


def _node(number: int, name: str, inputs: dict[str, Any], outputs: dict[str, Any]) -> Any:
    return {"id": number, "name": name, "inputs": inputs, "outputs": outputs, "attrs": []}


def _side(*tensors: tuple[int, str, list[int]]) -> dict[str, Any]:
    return {
        "values": [[1, storage, 0, 4, 4, "cpu"] for storage, _, _ in tensors],
        "shapes": [shape for _, _, shape in tensors],
        "types": [f"Tensor({dtype})" for _, dtype, _ in tensors],
    }


def test_operands_are_joined_to_operators_in_the_order_of_their_start(tmp_path: Path) -> None:
    listed = {
        "values": [[[1, 5, 0, 4, 4, "cpu"], [1, 6, 0, 4, 4, "cpu"]], 3],
        "shapes": [[[2], [3]], []],
        "types": ["GenericList[Tensor(float),Tensor(c10::quint8)]", "Int"],
    }
    path = tmp_path / "operands.json"
    nodes = [
        _node(9, "aten::cat", listed, _side((7, "c10::BFloat16", [5]))),
        _node(1, "[pytorch|profiler|execution_trace|thread]", _side(), _side()),
        _node(3, "aten::t", _side((5, "float", [2, 1])), _side((5, "float", [1, 2]))),
    ]
    path.write_text(json.dumps({"nodes": nodes}))
    assert read_operands(path, ["aten::t", "aten::cat"]) == [
        ((_tensor(5, "float32", 2, 1),), (_tensor(5, "float32", 1, 2),)),
        ((_tensor(5, "float32", 2), _tensor(6, "quint8", 3)), (_tensor(7, "bfloat16", 5),)),
    ]
    assert read_operands(path, ["aten::t", "aten::other"]) == ()
    assert read_operands(tmp_path / "gone.json", []) == ()


def test_equal_operators_of_a_module_are_one_kernel_with_their_allocations() -> None:
    x, y = _tensor(1, "float32"), _tensor(2, "float32")
    kernels = (
        _kernel("aten::add", [x], [y], allocated=0, own=6_000),
        _kernel("aten::empty", [], [y], parent=0, allocated=256, own=2_000),
        _kernel("aten::add", [x], [y], allocated=256, own=6_000),
        _kernel("aten::add", [y, y], [y], own=6_000),
    )
    ran = ran_of(TorchProfile(3, 30.0, kernels, 512, 512), "cpu")
    assert [
        (each.name, each.calls, each.micros, each.share, each.allocated) for each in ran.kernels
    ] == [
        ("fc: aten::add", 2, 12.0, 0.6, 512),
        ("fc: aten::add #2", 1, 6.0, pytest.approx(0.3), 0),
        ("fc: aten::empty", 1, 2.0, 0.1, 0),
    ]
    assert [(each.op_type, each.calls, each.micros) for each in ran.operators] == [
        ("aten::add", 3, 18.0),
        ("aten::empty", 1, 2.0),
    ]
    assert (ran.run_micros, ran.kernel_micros, ran.between_micros) == (30.0, 20.0, 10.0)


def _found(
    *kernels: TorchOperator, engine: str = "x86", machine: str = "x86_64", **more: Any
) -> Any:
    evidence = TorchEvidence(
        kernels, more.pop("backend", ()), engine, Flow(kernels), machine=machine, **more
    )
    found = FINDINGS.of(evidence, sum(kernel.micros for kernel in kernels))
    return [(each.kind, each.node, each.sentence, each.kernels) for each in found]


def test_a_product_of_dequantized_weights_is_named_with_its_dequantizing_operator() -> None:
    found = _found(
        _kernel("aten::quantize_per_tensor", [_tensor(1, "float32")], [_tensor(2, "quint8")]),
        _kernel("aten::dequantize", [_tensor(2, "quint8")], [_tensor(3, "float32")]),
        _kernel("aten::view", [_tensor(3, "float32")], [_tensor(3, "float32")]),
        _kernel("aten::matmul", [_tensor(3, "float32"), _tensor(9, "float32")], [_tensor(4, "float32")]),
        _kernel("aten::mm", [_tensor(3, "float32")], [_tensor(4, "float32")], parent=3),
    )  # fmt: skip
    assert found == [
        (
            "in_float",
            "fc",
            "aten::matmul of `fc` ran in float32 although what it takes was quantized: it is dequantized "
            "before (40.0 % of the time)",
            ("fc: aten::matmul", "fc: aten::dequantize"),
        )
    ]


def test_overwritten_memory_is_not_mistaken_for_dequantized_weights() -> None:
    assert not _found(
        _kernel("aten::dequantize", [_tensor(1, "quint8")], [_tensor(2, "float32")]),
        _kernel("aten::relu", [_tensor(7, "float32")], [_tensor(2, "float32")]),
        _kernel("aten::mm", [_tensor(2, "float32")], [_tensor(3, "float32")]),
    )


def test_weights_dequantized_once_count_for_one_product() -> None:
    x = _tensor(2, "float32")
    found = _found(
        _kernel("aten::dequantize", [_tensor(1, "quint8")], [x], total=30_000),
        _kernel("aten::mm", [x, _tensor(8, "float32")], [_tensor(3, "float32")]),
        _kernel("aten::mm", [x, _tensor(9, "float32")], [_tensor(4, "float32")], module="head"),
        _kernel("aten::quantize_per_tensor", [_tensor(4, "float32")], [_tensor(5, "quint8")]),
    )
    assert [(node, kernels) for _, node, _, kernels in found] == [
        ("fc", ("fc: aten::mm", "fc: aten::dequantize")),
        ("head", ("head: aten::mm",)),
    ]


def test_qnnpack_is_a_finding_only_on_x86() -> None:
    linear = _kernel("quantized::linear", [_tensor(1, "quint8")], [_tensor(2, "quint8")])
    assert [kind for kind, *_ in _found(linear, engine="qnnpack")] == ["fallback"]
    assert _found(linear, engine="qnnpack", machine="aarch64") == []
    assert _found(linear, engine="fbgemm") == []


_SAID = """\
onednn_verbose,v1,info,oneDNN v3.12.0 (commit 80afa71)
onednn_verbose,v1,info,cpu,isa:Intel AVX-512 with Intel DL Boost
onednn_verbose,v1,primitive,info,template:operation,engine,primitive,implementation,prop_kind
otel-quant module:fc
onednn_verbose,v1,primitive,exec,cpu,matmul,ref_int8:any,undef,src:u8:a:blocked:ab::f0 wei:s8:p:blocked:AB::f8,attr-scratchpad:user,,4x32:32x10,0.004
what the model prints
otel-quant module:head
onednn_verbose,exec,cpu,reorder,jit:uni,undef,src_f32::blocked:ab:f0 dst_f32::blocked:ba:f0,,,8x8,0.1
onednn_verbose,v1,primitive,exec,cpu
"""


def test_log_lines_of_libraries_are_attributed_to_modules() -> None:
    assert read_verbose(_SAID) == (
        (
            BackendKernel("oneDNN", "matmul", "ref_int8:any", "src:u8 wei:s8", 1, "fc", 1),
            BackendKernel("oneDNN", "reorder", "jit:uni", "src_f32 dst_f32", 1, "head", 1),
        ),
        {"oneDNN's instruction set": "Intel AVX-512 with Intel DL Boost"},
    )


def test_a_finding_for_a_kernel_without_vector_instructions_has_the_operators_time() -> None:
    found = _found(
        _kernel("aten::matmul", [_tensor(1, "float32")], [_tensor(2, "float32")]),
        _kernel("aten::relu", [_tensor(2, "float32")], [_tensor(3, "float32")]),
        backend=read_verbose(_SAID)[0],
    )
    assert found == [
        (
            "scalar",
            "fc",
            "oneDNN's matmul of `fc` ran without vector instructions: ref_int8:any (src:u8 wei:s8) "
            "(50.0 % of the time)",
            ("fc: aten::matmul",),
        )
    ]
