"""``otel-quant estimate``: its whole output and its exit codes."""

from __future__ import annotations

import csv
import json
import re
import textwrap
from collections.abc import Callable
from dataclasses import asdict
from functools import partial
from pathlib import Path

import numpy as np
import pytest

from otel_quant.cost.estimate import METHODS, estimate, methods, read
from otel_quant.schema.readings import OWN_MEMORY
from tests.fixtures.commands import Commands
from tests.unit.cli.costed_models import installed, save

NET = """
<ir_version: 9, opset_import: ["" : 17]>
net (float[N, 256] x) => (float[N, 256] y) {
   [head] y = MatMul (x, w)
}
"""


Estimates = Callable[..., str]


@pytest.fixture(autouse=True)
def net(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    save(tmp_path / "net.onnx", NET, {"w": np.ones((256, 256), np.float32)})
    installed(monkeypatch, tmp_path, "onnxruntime", "quark")


@pytest.fixture
def estimates(command: Commands) -> Estimates:
    return partial(command.output, "estimate", "net.onnx")


def test_an_estimate_without_a_method_has_a_line_for_each_method(estimates: Estimates) -> None:
    answer, bars, model, table = estimates("--dim", "N=1024", "--limit", "100MB").split("\n\n")
    assert answer == "net.onnx in 100 MB: perhaps with 1, no with 10 of 11 methods."
    assert [line.split()[0] for line in bars.splitlines()] == [
        *(each.title for each in METHODS),
        "limit",
        "░",
    ]
    assert [line.split("  ")[0] for line in model.splitlines()] == [
        "net.onnx", "weights", "inputs of a sample", "activations of a sample",
    ]  # fmt: skip
    assert [line.split()[0] for line in table.splitlines()[2:]] == [each.title for each in METHODS]
    assert table.splitlines()[2].split()[:2] == ["onnxruntime:MinMax", "perhaps"]


def test_possible_torch_imports_and_missing_libraries_make_the_answer_perhaps(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, estimates: Estimates
) -> None:
    def answers(limit: str, *names: str) -> tuple[list[str], list[str]]:
        with monkeypatch.context() as patch:
            installed(patch, tmp_path / "-".join(names), *names)
            found = json.loads(estimates("--format", "json", "--limit", limit))
        fits = {each["library"]: each["fits"] for each in found["estimates"]}
        return [fits["onnxruntime"], fits["quark"]], found["notes"][1:]

    assert answers("2GB", "onnxruntime", "quark") == (["yes", "yes"], [])
    torch = "onnxruntime: quant_pre_process imports torch, 535 MB, which is in 'at most' alone"
    assert answers("512MB", "onnxruntime", "quark", "torch") == (["perhaps", "no"], [torch])
    assert answers("2GB", "onnxruntime", "quark", "torch") == (["yes", "yes"], [torch])
    away = (
        "quark is not installed here, so its memory is assumed: for its methods the answer is "
        "perhaps or no"
    )
    assert answers("2GB", "onnxruntime") == (["yes", "perhaps"], [away])


def test_the_table_names_the_source_of_each_figure(estimates: Estimates) -> None:
    options = ("--dim", "N=1024", "--samples", "512", "--limit", "1.07GB")
    wanted = ("--method", "onnxruntime:MinMax", "--method", "onnxruntime:Percentile")
    assert estimates(*options, *wanted) == textwrap.dedent("""\
        net.onnx in 1.07 GB: yes with 1, no with 1 of 2 methods.

        onnxruntime:MinMax      91.3 MB  ██                 │
        onnxruntime:Percentile  2.23 GB  ███████████████████│█████████████████████░░░░░░
                                                limit 1.07 GB
                                         ░ at most

        net.onnx
        weights                      262 kB
        inputs of a sample           1.05 MB
        activations of a sample      2.10 MB
        largest layer by quark       head, 2.10 MB: 4 B x (4 x 65,536 parameters + 262,144 elements of its result)
        largest layer by otel-quant  head, 1.31 MB: its weights and results, as they are stored

        method                  fits 1.07 GB  samples     peak  at least  at most    disk  mostly
        ----------------------  ------------  -------  -------  --------  -------  ------  ----------------
        onnxruntime:MinMax               yes      512  91.3 MB   73.1 MB   115 MB  262 kB  libraries
        onnxruntime:Percentile            no      512  2.23 GB   1.79 GB  2.54 GB  262 kB  activations kept

        onnxruntime:MinMax
        memory: libraries         84.0 MB: assumed: as measured with onnxruntime 1.31, onnx 1.22, Python 3.11, Linux x86-64
        memory: model copies      1.05 MB: 4 x 262 kB of weights: the model that is quantized, the one that is calibrated, and its session: twice while it is opened
        memory: session           2.10 MB: largest sum of activations that one run holds at once
        memory: activations kept  4.19 MB: 2 samples x 2.10 MB of 2 calibrated tensors
        disk: model files         262 kB: 1 x 262 kB of weights: MODEL-inferred.onnx beside the model, then augmented_model.onnx

        onnxruntime:Percentile
        memory: libraries             84.0 MB: assumed: as measured with onnxruntime 1.31, onnx 1.22, Python 3.11, Linux x86-64
        memory: model copies          1.05 MB: 4 x 262 kB of weights: the model that is quantized, the one that is calibrated, and its session: twice while it is opened
        memory: session               2.10 MB: largest sum of activations that one run holds at once
        memory: activations kept      1.07 GB: 512 samples x 2.10 MB of 2 calibrated tensors
        memory: values of one tensor  1.07 GB: 2 copies x 512 samples x 1.05 MB of the largest calibrated tensor
        memory: histograms            49.2 kB: 2 calibrated tensors x 2,048 bins x 12 B
        disk: model files             262 kB: 1 x 262 kB of weights: MODEL-inferred.onnx beside the model, then augmented_model.onnx
        """)


def test_what_would_fit_is_answered_by_method_and_number_of_samples(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, estimates: Estimates
) -> None:
    asked = ("--dim", "N=1024", "--samples", "512", "--fit")
    answer, *_, table = estimates(*asked, "--limit", "1.2GB").split("\n\n")
    assert (
        answer
        == "net.onnx in 1.20 GB: 512 samples are sure to fit with 1 of 11 methods, and perhaps with 7 more; with the others at most 64 to 229 are."
    )
    heading = table.splitlines()[0]
    at = slice(heading.index("sure to fit"), heading.index("mostly"))
    assert [line[at].split() for line in table.splitlines()[2:5]] == [["any"], ["229"], ["229"]]
    installed(monkeypatch, tmp_path / "none")
    answer = estimates(*asked, "--limit", "1GB", "--method", "onnxruntime").splitlines()[0]
    assert answer == "net.onnx in 1.00 GB: perhaps with 1, no with 3 of 4 methods."
    # Without a limit the one that is in force here counts.
    assert re.match(r"net.onnx in \d+(\.\d+)? [MGTP]B, the limit here: ", estimates(*asked))


def test_a_limit_in_gib_is_answered_in_gib(estimates: Estimates) -> None:
    options = ("--dim", "N=1024", "--samples", "512", "--limit", "1GiB")
    out = estimates(*options, "--method", "onnxruntime:Percentile")
    assert "no      512  2.08 GiB  1.66 GiB  2.36 GiB  256 KiB  activations kept" in out
    assert not re.search(r"[0-9] [kMG]?B(?!/)", out.replace("x 12 B", "").replace(" 4 B", ""))


def test_json_has_every_figure_in_bytes(estimates: Estimates) -> None:
    options = ("--dim", "N=4", "--samples", "3", "--limit", "90000000", "--format", "json")
    model, [method] = read("net.onnx", dims={"N": 4}), methods(["onnxruntime:MinMax"])
    found = estimate(model, method, 3)
    assert found.peak == 84_000_000 + 4 * 262_144 + 8192 + 2 * 8192
    assert json.loads(estimates("--method", "onnxruntime:MinMax", *options)) == {
        "schema": 1, "model": "net.onnx", "weight_bytes": 262_144, "input_bytes": 4096,
        "input_shapes": {"x": [4, 256]}, "notes": [], "unsized_tensors": 0,
        "layers": {name: asdict(layer) for name, layer in model.layers.items()},
        "limit_bytes": 90_000_000,
        "estimates": [
            {
                "library": "onnxruntime", "method": "MinMax", "samples": 3, "probed_samples": 0,
                "peak_bytes": found.peak, "lowest_bytes": found.lowest,
                "highest_bytes": found.highest, "disk_bytes": 262_144, "fits": "perhaps",
                "most_samples": None, "seconds": None,
                "memory": [asdict(figure) for figure in found.memory],
                "disk": [asdict(figure) for figure in found.disk],
            },
        ],
    }  # fmt: skip


def test_csv_has_a_line_for_each_method(estimates: Estimates) -> None:
    options = ("--method", "onnxruntime", "--format", "csv", "--dim", "N=4", "--limit", "1TB")
    rows = list(csv.DictReader(estimates(*options).splitlines()))
    peak = 84_000_000 + 4 * 262_144 + 8192 + 2 * 8192
    assert rows[0] == {
        "library": "onnxruntime",
        "method": "MinMax",
        "probed_samples": "0",
        "samples": "128",
        "peak_bytes": str(peak),
        "lowest_bytes": str(round(peak * 0.8)),
        "highest_bytes": str(round(peak * 1.13) + OWN_MEMORY),
        "disk_bytes": "262144",
        "most_samples": "",
        "fits": "yes",
    }
    assert [each["method"] for each in rows] == [each.name for each in methods(["onnxruntime"])]


@pytest.mark.parametrize(
    ("text", "size"),
    [("16GiB", 16 << 30), ("1.5 g", 1_500_000_000), ("500MB", 500_000_000), ("4096", 4096)],
)
def test_a_limit_has_binary_or_decimal_units(estimates: Estimates, text: str, size: int) -> None:
    options = ("--limit", text, "--format", "json", "--method", "quark:MinMax")
    assert json.loads(estimates(*options))["limit_bytes"] == size


@pytest.mark.parametrize(
    ("arguments", "code", "problem"),
    [
        (("net.onnx", "--method", "Median"), 2,
         "--method: 'Median' is no calibration method; expected one of onnxruntime:MinMax, "
         "onnxruntime:Entropy, onnxruntime:Percentile, onnxruntime:Distribution, quark:MinMax, "
         "quark:NonOverflow, quark:Entropy, quark:Percentile, quark:Distribution, "
         "quark:LayerWisePercentile, quark:MinMSE, or only the part before or behind the colon"),
        (("net.onnx", "--dim", "M=3"), 2, "--dim: net.onnx has no dimension 'M'; expected a name that otel-quant cost lists"),
        (("net.onnx", "--input", "x"), 2,
         "input shape: 'x' is not understood; expected name=1x3x224x224 or name:f32:1x3x224x224[:values]"),
        (("none.onnx",), 1, "none.onnx: cannot be opened: No such file or directory; expected an ONNX file"),
        (("net.onnx", "--limit", "much"), 2, "argument --limit: 'much' is not a size such as 16GiB, 500MB or 1.5T"),
        (("net.onnx", "--samples", "0"), 2, "argument --samples: '0' is not a number of samples from 1 to 1000000000000"),
    ],
)  # fmt: skip
def test_invalid_arguments_are_rejected_in_one_line(
    arguments: tuple[str, ...], code: int, problem: str, command: Commands
) -> None:
    found, out, err = command("estimate", *arguments)
    by = "otel-quant estimate: error" if problem.startswith("argument ") else "otel-quant"
    assert (found, out, err.splitlines()[-1]) == (code, "", f"{by}: {problem}")
