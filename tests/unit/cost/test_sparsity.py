"""Zeros in weights: how many, in which blocks, and where a weight may lie."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from otel_quant.cost import CostError, WeightSparsity, analyze
from tests.fixtures.onnx_builder import model_of_text
from tests.unit.cost.text_models import with_external_weight

RNG = np.random.default_rng(7)


def matmul(weight: np.ndarray | TensorProto) -> onnx.ModelProto:
    if isinstance(weight, np.ndarray):
        weight = numpy_helper.from_array(weight, "w")
    rows, columns = weight.dims
    graph = helper.make_graph(
        [helper.make_node("MatMul", ["x", "w"], ["y"], name="mm")],
        "g",
        [helper.make_tensor_value_info("x", weight.data_type, [1, rows])],
        [helper.make_tensor_value_info("y", weight.data_type, [1, columns])],
        [weight],
    )
    return helper.make_model(graph)


def found(model: onnx.ModelProto | Path) -> WeightSparsity:
    cost = analyze(model, sparsity=True)
    assert cost.sparsity is not None
    (only,) = cost.sparsity
    assert cost.nodes[-1].sparsity == only or cost.nodes[0].sparsity == only
    return only


def dense(*shape: int) -> np.ndarray:
    return RNG.uniform(0.5, 1.0, shape).astype(np.float32)


def strewn(share: float, *shape: int) -> np.ndarray:
    weight = dense(*shape)
    weight[RNG.random(shape) < share] = 0
    return weight


def blocks(height: int, width: int, share: float, rows: int, columns: int) -> np.ndarray:
    mask = RNG.random((rows // height, columns // width)) < share
    return dense(rows, columns) * ~np.kron(mask, np.ones((height, width), bool))


def test_a_dense_weight_has_no_zeros() -> None:
    assert found(matmul(dense(64, 64))) == WeightSparsity("w", 0.0, (1, 1), 0.0, False)


@pytest.mark.parametrize("share", [0.5, 0.8, 0.9, 0.95, 0.99])
def test_random_zeros_are_not_blocks(share: float) -> None:
    weight = strewn(share, 256, 256)
    seen = found(matmul(weight))
    ratio = float((weight == 0).mean())
    assert (seen.ratio, seen.block, seen.block_ratio) == (ratio, (1, 1), ratio)


@pytest.mark.parametrize("size", [(1, 4), (4, 1), (4, 4), (8, 8), (1, 16), (2, 2)])
@pytest.mark.parametrize("share", [0.5, 0.7, 0.95])
def test_blocks_of_zeros_are_found(size: tuple[int, int], share: float) -> None:
    weight = blocks(*size, share, 256, 256)
    seen = found(matmul(weight))
    ratio = float((weight == 0).mean())
    assert (seen.block, seen.ratio) == (size, ratio)
    assert seen.block_ratio == pytest.approx(ratio)


def test_two_of_four_along_the_summed_axis_is_recognised() -> None:
    weight = dense(128, 64)
    for group in range(0, 128, 4):
        for column in range(64):
            weight[group + RNG.permutation(4)[:2], column] = 0
    assert found(matmul(weight)) == WeightSparsity("w", 0.5, (1, 1), 0.5, True)
    weight[0:4, 0] = 1
    assert not found(matmul(weight)).two_of_four


def test_a_convolution_has_its_blocks_over_the_channels() -> None:
    mask = RNG.random((16, 8, 3, 3)) < 0.6
    weight = dense(64, 32, 3, 3) * ~mask.repeat(4, 0).repeat(4, 1)
    seen = found(
        model_of_text(
            """<ir_version: 9, opset_import: ["": 17]>
            g (float[1, 32, 9, 9] x) => (float[] y) { y = Conv (x, w) }""",
            w=weight,
        )
    )
    assert seen.block == (4, 4)
    assert seen.ratio == float((weight == 0).mean())


@pytest.mark.parametrize(
    "array",
    [
        strewn(0.3, 64, 64).astype(np.float16),
        strewn(0.3, 64, 64).astype(np.float64),
        -strewn(0.3, 64, 64),
        (strewn(0.3, 64, 64) * 9).astype(np.int8),
    ],
    ids=["float16", "float64", "minus zero", "int8"],
)
def test_zeros_of_every_type_are_counted(array: np.ndarray) -> None:
    assert found(matmul(array)).ratio == float((array == 0).mean())


def test_bfloat16_and_four_bit_weights_are_read_as_they_are_stored() -> None:
    weight = strewn(0.3, 64, 64)
    halves = (weight.view(np.uint32) >> 16).astype("<u2")
    tensor = TensorProto(
        name="w", data_type=TensorProto.BFLOAT16, dims=[64, 64], raw_data=halves.tobytes()
    )
    assert found(matmul(tensor)).ratio == float((weight == 0).mean())
    values = RNG.integers(0, 4, (64, 64)).astype(np.uint8)
    flat = values.reshape(-1)
    tensor = TensorProto(
        name="w",
        data_type=TensorProto.INT4,
        dims=[64, 64],
        raw_data=(flat[::2] | flat[1::2] << 4).tobytes(),
    )
    assert found(matmul(tensor)).ratio == float((values == 0).mean())


@pytest.mark.parametrize("per_channel", [False, True])
def test_uint8_zeros_are_at_the_zero_point_and_not_at_128(per_channel: bool) -> None:
    points = np.arange(60, 124, dtype=np.uint8) if per_channel else np.array(37, np.uint8)
    weight = RNG.integers(0, 256, (32, 64)).astype(np.uint8)
    weight[:16] = points  # half of the elements, and a few by chance
    model = model_of_text(
        """<ir_version: 9, opset_import: ["": 17]> g (float[1, 32] x) => (float[1, 64] y) {
            f = DequantizeLinear <axis = 1> (w, s, z) y = MatMul (x, f) }""",
        w=weight, s=np.ones(64 if per_channel else (), np.float32), z=points,
    )  # fmt: skip
    assert found(model).ratio == float((weight == points).mean())


@pytest.mark.parametrize(("size", "zeros"), [(0, 0), (1023, 0), (1025, 1), (1 << 20, 1)])
def test_a_weight_with_fewer_bytes_than_its_shape_has_no_sparsity(size: int, zeros: int) -> None:
    tensor = TensorProto(name="w", data_type=TensorProto.FLOAT, dims=[16, 16], raw_data=bytes(size))
    seen = analyze(matmul(tensor).SerializeToString(), sparsity=True).sparsity or ()
    assert [each.ratio for each in seen] == [1.0] * zeros


def test_external_weights_are_read_from_their_file(tmp_path: Path) -> None:
    weight = strewn(0.25, 512, 1024)  # two mebibytes: more than one piece
    path = with_external_weight(tmp_path, weight.shape, "sub/w.bin", offset=4096)
    (tmp_path / "sub").mkdir()
    (tmp_path / "sub" / "w.bin").write_bytes(bytes(4096) + weight.tobytes())
    assert found(path).ratio == float((weight == 0).mean())


@pytest.mark.parametrize(
    "location",
    [
        "../secret.bin", "/etc/passwd", "link.bin", "", "pipe", "folder", "folder/secret.bin",
        "a/../../secret.bin", ".", "\0",
    ],
)  # fmt: skip
def test_nothing_outside_the_models_folder_is_opened(
    tmp_path: Path, location: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "models"
    folder.mkdir()
    weight = dense(64, 64)
    (tmp_path / "secret.bin").write_bytes(weight.tobytes())
    (folder / "link.bin").symlink_to(tmp_path / "secret.bin")
    (folder / "folder").symlink_to(tmp_path, target_is_directory=True)
    os.mkfifo(folder / "pipe")
    opened: list[str] = []
    real_open = os.open

    def watched(path: str | Path, *rest: int) -> int:
        opened.append(str(path))
        return real_open(path, *rest)

    path = with_external_weight(folder, weight.shape, location)
    assert analyze(path).params == 64 * 64  # no file is opened unless sparsity is requested
    monkeypatch.setattr(os, "open", watched)
    with pytest.raises(CostError) as caught:
        analyze(path, sparsity=True)
    assert "external data" in str(caught.value)
    assert [name for name in opened if not name.startswith(str(folder))] == []


def test_external_data_that_is_missing_or_short_is_an_error_only_if_it_is_read(
    tmp_path: Path,
) -> None:
    path = with_external_weight(tmp_path, (64, 64))
    assert analyze(path).weight_bytes == 4 * 64 * 64
    with pytest.raises(CostError, match=r"external data 'w.bin' of tensor w cannot be opened"):
        analyze(path, sparsity=True)
    (tmp_path / "w.bin").write_bytes(bytes(100))
    with pytest.raises(
        CostError, match=r"has 100 bytes; expected a regular file of at least 16384"
    ):
        analyze(path, sparsity=True)


def test_a_time_limit_ends_the_reading_of_a_weight(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    weight = dense(1024, 2048)  # eight pieces
    path = with_external_weight(tmp_path, weight.shape)
    (tmp_path / "w.bin").write_bytes(weight.tobytes())
    now = [0.0]
    monkeypatch.setattr("otel_quant.cost.analysis.monotonic", lambda: now[0])

    def later() -> float:
        now[0] += 1.0
        return now[0]

    monkeypatch.setattr("otel_quant.cost.walk.monotonic", later)
    with pytest.raises(CostError, match="the time limit passed"):
        analyze(path, sparsity=True, time_limit=4.5)
    assert now[0] == 5.0


def test_a_constant_nodes_weight_is_called_after_its_result() -> None:
    graph = helper.make_graph(
        [
            helper.make_node("Constant", [], ["k"], value=numpy_helper.from_array(dense(64, 64))),
            helper.make_node("MatMul", ["x", "k"], ["y"]),
        ],
        "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, 64])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [1, 64])],
    )
    assert found(helper.make_model(graph)).weight == "k"
