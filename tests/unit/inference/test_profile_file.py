"""The profiler's file is read event by event: what ran, how long, and what is between."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from otel_quant.inference.onnx_kernels import Profile, read_profile
from otel_quant.inference.results import RanKernel

MULTIPLY = {
    "op_name": "MatMul",
    "provider": "CPUExecutionProvider",
    "node_index": "0",
    "input_type_shape": [{"float": [1, 8]}, {"float": [8, 2]}],
    "output_type_shape": [{"float": [1, 2]}],
    "mem_in_use_peak": "96",
}
LOOP = MULTIPLY | {
    "op_name": "Loop",
    "node_index": "1",
    "input_type_shape": [],
    "output_type_shape": [],
}


def _line(name: str, begin: int, length: int, args: dict[str, Any] | None = None) -> str:
    """Returns an event as onnxruntime writes it."""
    category = "Node" if args else "Session"
    return (
        f'{{"cat" : "{category}","pid" :1,"tid" :1,"dur" :{length},"ts" :{begin},"ph" : "X",'
        f'"name" :{json.dumps(name)},"args" : {json.dumps(args or {})}}},\n'
    )


def _written(folder: Path, *lines: str) -> Path:
    path = folder / "profile.json"
    path.write_text("[\n" + "".join(lines).rstrip(",\n") + "\n]\n")
    return path


def _run(begin: int, length: int, multiply: int) -> tuple[str, str]:
    return (
        _line("m1_kernel_time", begin + 1, multiply, MULTIPLY),
        _line("model_run", begin, length),
    )


def test_the_faster_half_of_the_runs_after_the_first_is_used(tmp_path: Path) -> None:
    path = _written(
        tmp_path,
        _line("session_initialization", 0, 90),
        *_run(100, 99, 90),
        *_run(200, 20, 10),
        *_run(300, 95, 80),
        *_run(400, 24, 14),
        *_run(500, 30, 21),
    )
    kernel = RanKernel(
        "m1", "MatMul", None, 0, "CPUExecutionProvider", 12.0, 1.0, 1.0,
        ("float32 1x8", "float32 8x2"), ("float32 1x2",), None, None,
    )  # fmt: skip
    profile = read_profile(path)
    assert profile == Profile(
        (kernel,),
        ((200, 20), (400, 24)),
        arena_used=96,
    )
    assert profile.run_micros == 22


def test_the_time_of_a_loop_excludes_its_body(tmp_path: Path) -> None:
    path = _written(
        tmp_path,
        _line("model_run", 0, 9),
        _line("m1_kernel_time", 112, 20, MULTIPLY),
        _line("m1_kernel_time", 140, 25, MULTIPLY),
        _line("loop_kernel_time", 110, 60, LOOP),
        _line("model_run", 100, 80),
    )
    profile = read_profile(path)
    times = {each.name: (each.calls, each.micros) for each in profile.kernels}
    assert times == {"m1": (2, 45), "loop": (1, 15)}


def test_nodes_with_the_same_name_are_distinguished_by_their_index(tmp_path: Path) -> None:
    path = _written(
        tmp_path,
        _line("model_run", 0, 9),
        _line('a "name"_kernel_time', 110, 5, MULTIPLY),
        _line('a "name"_kernel_time', 120, 7, MULTIPLY | {"node_index": "4"}),
        _line("model_run", 100, 80),
    )
    profile = read_profile(path)
    assert [(each.name, each.micros) for each in profile.kernels] == [
        ('a "name"', 5),
        ('a "name"', 7),
    ]


def test_a_truncated_file_has_the_runs_before_the_cut(tmp_path: Path) -> None:
    path = _written(tmp_path, *_run(100, 20, 10), *_run(200, 20, 10))
    path.write_text(path.read_text()[:-60] + "\n")
    assert read_profile(path, warmup=0).runs == ((100, 20),)
    path.write_text("")
    assert read_profile(path) == Profile((), ())
