"""`otel-quant fix`: what pays is written with its proof, what does not is not, and nothing else is touched."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest

import otel_quant
from otel_quant.inference.fix.fixing import FixError
from tests.fixtures.onnx_builder import Builder
from tests.fixtures.programs import run as run_program
from tests.integration.inference.conftest import run

SHORT = ("--seconds", "0.5")


def net(*, is_float: bool = False, scale: float = 0.5) -> Builder:
    """Three convolutions as AMD Quark's XINT8 has them: biases of int8, zero points of 128 behind each Relu."""
    graph = Builder([1, 32, 56, 56])
    value = "x" if is_float else graph.quantized("x", np.uint8(128), 0.03125)
    for name in ("c1", "c2", "c3"):
        codes, bias = (
            graph._random.integers(-9, 9, (32, 32, 3, 3)),
            graph._random.integers(-90, 90, 32),
        )
        if is_float:
            made = [
                graph.constant(f"{name}_{part}", (each * 0.015625).astype(np.float32))
                for part, each in (("w", codes), ("b", bias))
            ]
        else:
            made = [
                graph.dequantized(
                    graph.constant(f"{name}_{part}", each.astype(np.int8)), scale=0.015625
                )
                for part, each in (("w", codes), ("b", bias))
            ]
        value = graph.node("Conv", [value, *made], name, pads=[1, 1, 1, 1])
        value = graph.node("Relu", [value], f"{name}_relu")
        value = value if is_float else graph.quantized(value, np.uint8(128), scale)
    graph.output(graph.node("GlobalAveragePool", [value], "y"))
    return graph


def fixed(folder: Path, *arguments: str, code: int = 0) -> dict[str, Any]:
    out, _ = run(folder, "fix", *arguments, *SHORT, "--format", "json", code=code)
    return dict(json.loads(out))


def states(result: dict[str, Any]) -> dict[str, str]:
    return {each["kind"]: each["state"] for each in result["rewrites"]}


def test_what_pays_is_written_and_proven_against_the_float_model(tmp_path: Path) -> None:
    net().save(tmp_path / "int8.onnx")
    net(is_float=True).save(tmp_path / "float.onnx")
    before = (tmp_path / "int8.onnx").read_bytes()
    result = fixed(tmp_path, "int8.onnx", "-o", "fixed.onnx", "--float", "float.onnx")
    assert states(result) == {"bias": "written", "zero_point": "written"}
    integers = [(each["path"], each["integers"], each["contractions"]) for each in result["proven"]]
    assert integers == [("int8.onnx", 0, 3), ("fixed.onnx", 3, 3), ("float.onnx", 0, 3)]
    old, new, _ = result["proven"]
    assert new["sqnr_float"] > old["sqnr_float"] - 0.1
    latency = result["measured"]["models"][1]["latency"]
    assert latency["is_apart"]
    assert latency["ratio"] < 1
    assert (tmp_path / "int8.onnx").read_bytes() == before
    assert onnx.load(tmp_path / "fixed.onnx").graph.node


def test_without_the_float_model_another_function_is_only_offered(tmp_path: Path) -> None:
    net().save(tmp_path / "int8.onnx")
    result = fixed(tmp_path, "int8.onnx", "-o", "fixed.onnx", "--dry-run")
    assert states(result) == {"bias": "planned", "zero_point": "offered"}
    assert sorted(each.name for each in tmp_path.iterdir()) == ["int8.onnx", "temporary"]


def test_a_dry_run_with_nothing_to_write_has_the_reason(tmp_path: Path) -> None:
    net().save(tmp_path / "int8.onnx")
    out, _ = run(tmp_path, "fix", "int8.onnx", "--dry-run", "--only", "zero_point", code=1)
    assert out.splitlines()[0] == (
        "int8.onnx: 0 of 3 contractions in integers; no rewrite is to be written: zero_point: "
        "values behind it are rounded in finer steps: give the float model (--float), which decides."
    )
    graph = Builder([1, 8])
    made = graph.node(
        "QLinearMatMul",
        [
            graph.node(
                "QuantizeLinear",
                [
                    "x",
                    *(
                        graph.constant(n, v)
                        for n, v in (("xs", np.float32(0.1)), ("xz", np.uint8(0)))
                    ),
                ],
                "xq",
            ),
            "xs",
            "xz",
            graph.weights("w", 8, 8),
            graph.constant("ws", np.float32(0.1)),
            graph.constant("wz", np.int8(0)),
            graph.constant("ys", np.float32(0.1)),
            graph.constant("yz", np.uint8(0)),
        ],
        "m",
    )
    graph.output(graph.node("DequantizeLinear", [made, "ys", "yz"], "y"))
    graph.save(tmp_path / "codes.onnx")
    out, _ = run(tmp_path, "fix", "codes.onnx", "--dry-run", code=1)
    assert out == "codes.onnx: no contraction is in QDQ form (DequantizeLinear in front of it).\n"


def test_outputs_that_are_the_float_models_have_no_gain(tmp_path: Path) -> None:
    net().save(tmp_path / "int8.onnx")
    words = ("int8.onnx", "-o", "fixed.onnx", "--float", "int8.onnx", "--only", "bias")
    result = fixed(tmp_path, *words, code=1)  # no contraction runs in integers by that alone
    assert [each["sqnr_gain"] for each in result["rewrites"]] == [None]


def test_a_rewrite_that_costs_sqnr_is_left_out(tmp_path: Path) -> None:
    # Saturation at 1 is what this float model has, too.
    net(scale=1 / 128).save(tmp_path / "int8.onnx")
    result = fixed(
        tmp_path,
        "int8.onnx",
        "-o",
        "fixed.onnx",
        "--float",
        "int8.onnx",
        "--only",
        "zero_point",
        code=1,
    )
    assert states(result) == {"zero_point": "left out"}
    assert "falls by" in result["why"]
    assert not (tmp_path / "fixed.onnx").exists()


def test_weights_beside_the_model_stay_there_or_come_along(tmp_path: Path) -> None:
    onnx.save(
        net().model(),
        tmp_path / "int8.onnx",
        save_as_external_data=True,
        location="w.bin",
        size_threshold=0,
    )
    net(is_float=True).save(tmp_path / "float.onnx")
    fixed(tmp_path, "int8.onnx", "-o", "fixed.onnx", "--float", "float.onnx")
    (tmp_path / "there").mkdir()
    fixed(tmp_path, "int8.onnx", "-o", "there/fixed.onnx", "--float", "float.onnx")
    assert (tmp_path / "there" / "w.bin").read_bytes() == (tmp_path / "w.bin").read_bytes()
    for name in ("fixed.onnx", "there/fixed.onnx"):
        assert len(onnx.load(tmp_path / name).graph.initializer[0].raw_data)


@pytest.mark.parametrize("place", ["fixed", "there/fixed"])
@pytest.mark.parametrize("is_beside", [True, False])
def test_what_is_too_much_for_a_file_lies_beside_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, place: str, is_beside: bool
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("otel_quant.inference.fix.edited_graph.MOST_INSIDE", 10_000)
    beside = {"save_as_external_data": is_beside, "location": "w.bin", "size_threshold": 0}
    onnx.save(net().model(), "int8.onnx", **beside)
    net(is_float=True).save(tmp_path / "float.onnx")
    (tmp_path / "there").mkdir()
    files = set(tmp_path.rglob("*"))
    result = otel_quant.fix("int8.onnx", f"{place}.onnx", float_model="float.onnx", seconds=0.3)
    assert result.integers_after == 3
    made = {str(it.relative_to(tmp_path)) for it in set(tmp_path.rglob("*")) - files}
    copied = {"there/w.bin"} if is_beside and place.startswith("there") else set()
    own = {f"{place}.onnx"} if is_beside else {f"{place}.onnx", f"{place}.data"}
    assert made == own | copied
    (tmp_path / "int8.onnx").unlink()
    with pytest.raises(FixError, match=r"int8\.onnx: No such file"):
        otel_quant.fix("int8.onnx", "other.onnx")
    session = onnxruntime.InferenceSession(f"{place}.onnx")
    assert session.run(None, {"x": np.ones((1, 32, 56, 56), np.float32)})[0].any()


@pytest.mark.parametrize(
    ("arguments", "code", "says"),
    [
        (("float.onnx", "-o", "f.onnx"), 1, "has no QuantizeLinear"),
        (("int8.onnx", "-o", "int8.onnx"), 1, "int8.onnx: exists"),
        (("int8.onnx", "-o", "no/f.onnx"), 1, "is no folder"),
        (("int8.onnx",), 2, "-o is missing"),
        (("none.onnx", "-o", "f.onnx"), 1, "none.onnx: No such file"),
        (("text.onnx", "-o", "f.onnx"), 1, "text.onnx: is no ONNX model"),
        (("refused.onnx", "-o", "f.onnx"), 1, "refused.onnx: loading it failed"),
        (("int8.onnx", "--dry-run", "--float", "other.onnx"), 1, "other.onnx: it has other inputs than int8.onnx"),
        (("int8.onnx", "--dry-run", "--float", "text.onnx"), 1, "text.onnx: "),
        (("int8.onnx", "--dry-run", "--float", "float.onnx", "--data", "text.onnx"), 1, "text.onnx: is not a file of numpy.savez"),
        (("beside.onnx", "-o", "there/f.onnx", "--dry-run"), 1, "there/w.bin: exists"),
        (("cut.onnx", "--dry-run"), 1, "exceeds file size"),
        (("gone.onnx", "-o", "f.onnx"), 1, "gone.bin"),
    ],
)  # fmt: skip
def test_what_cannot_be_fixed_is_one_line_and_nothing_is_written(
    tmp_path: Path, arguments: tuple[str, ...], code: int, says: str
) -> None:
    net().save(tmp_path / "int8.onnx")
    net(is_float=True).save(tmp_path / "float.onnx")
    (tmp_path / "text.onnx").write_text("no model")
    graph = Builder([1, 8])
    graph.output(graph.node("Relu", ["x"], "y"))
    graph.save(tmp_path / "other.onnx")
    model = net().model()
    model.graph.node.append(onnx.helper.make_node("Sigh", ["y"], ["z"]))
    model.graph.output[0].name = "z"
    onnx.save(model, tmp_path / "refused.onnx")
    beside = {"save_as_external_data": True, "location": "w.bin", "size_threshold": 0}
    onnx.save(net().model(), tmp_path / "beside.onnx", **beside)
    for name in ("cut", "gone"):
        onnx.save(net().model(), tmp_path / f"{name}.onnx", **{**beside, "location": f"{name}.bin"})
    os.truncate(tmp_path / "cut.bin", 5000)
    (tmp_path / "gone.bin").unlink()
    (tmp_path / "there").mkdir()
    (tmp_path / "there" / "w.bin").touch()
    files = sorted(each.name for each in tmp_path.iterdir())
    _, error = run(tmp_path, "fix", *arguments, *SHORT, code=code)
    assert says in error
    assert sorted(each.name for each in tmp_path.iterdir()) == sorted([*files, "temporary"])


def test_what_no_file_can_say_is_beside_it_and_measured_with_it(tmp_path: Path) -> None:
    for name, is_float in (("int8", False), ("float", True)):
        graph = Builder([1, 16, 32, 32])
        value = "x" if is_float else graph.quantized("x", scale=0.03)
        weight = np.random.default_rng(1).standard_normal((16, 16, 3, 3), np.float32) / 10
        weight[:, 0, 0, 0] = 20  # one scale for all of them leaves little of the others
        value = graph.node("Conv", [value, graph.constant("w", weight)], "left", pads=[1] * 4)
        graph.output(value if is_float else graph.quantized(value, np.uint8(128), 0.6))
        graph.save(tmp_path / f"{name}.onnx")
    result = fixed(tmp_path, "int8.onnx", "-o", "fixed.onnx", "--float", "float.onnx")
    assert states(result) == {"session": "written"}
    assert result["rewrites"][0]["sqnr_gain"] > 1
    told = {"disabled_optimizers": ["WeightBiasQuantization"]}
    assert json.loads((tmp_path / "fixed.session.json").read_text()) == told
    assert result["disabled_optimizers"] == told["disabled_optimizers"]
    for options, kinds in ((), ["undone"]), (("--session",), []):
        out, _ = run(
            tmp_path, "inference", "fixed.onnx", "--runs", "2", "--format", "json", *options
        )
        [model] = json.loads(out)["models"]
        kinds_found = [each["kind"] for each in model["findings"]]
        assert [each for each in kinds_found if each in ("undone", "unexpected")] == kinds
    (tmp_path / "fixed.onnx").unlink()
    _, error = run(tmp_path, "fix", "int8.onnx", "-o", "fixed.onnx", *SHORT, code=1)
    assert "fixed.session.json: exists" in error
    (tmp_path / "fixed.session.json").write_text("no JSON")
    (tmp_path / "int8.onnx").rename(tmp_path / "fixed.onnx")
    _, error = run(tmp_path, "inference", "fixed.onnx", "--session", code=1)
    assert "fixed.onnx: loading it failed: JSONDecodeError" in error


PROGRAM = """
import numpy as np
from onnxruntime.quantization import CalibrationDataReader, quantize_static

class Images(CalibrationDataReader):
    left = [{"x": np.ones((1, 32, 56, 56), np.float32)}]
    def get_next(self):
        return self.left.pop() if self.left else None

quantize_static("float.onnx", "int8.onnx", Images(), reduce_range=True)  # saturates nowhere
"""


def test_a_run_that_is_to_be_fixed_says_what_came_of_each_model(tmp_path: Path) -> None:
    net(is_float=True).save(tmp_path / "float.onnx")
    (tmp_path / "quantize.py").write_text(PROGRAM)
    python, own = sys.executable, ("-m", "otel_quant", "run", "--fix", "--no-report", "--out", "R")
    done = run_program([python, *own, "--", python, "quantize.py"], tmp_path, dict(os.environ))
    assert (
        "fix:       int8.onnx: 3 of 3 contractions in integers; there is nothing to rewrite"
        in done.stderr
    )
    assert not (tmp_path / "int8.fixed.onnx").exists()


def test_a_function_in_python_does_the_same(tmp_path: Path) -> None:
    path = net().save(tmp_path / "int8.onnx")
    found = otel_quant.fix(path, tmp_path / "fixed.onnx", dry_run=True)
    assert (found.integers_before, found.contractions, found.output) == (0, 3, None)
    assert [each.state for each in found.rewrites] == ["planned", "offered"]
