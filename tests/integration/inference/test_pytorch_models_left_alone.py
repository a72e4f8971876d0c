"""Measuring PyTorch models changes nothing of them, of the program or of what it prints."""

from __future__ import annotations

import os
import sys
import threading
import time
from collections.abc import Callable, Iterator
from html import unescape
from pathlib import Path
from typing import Any

import psutil
import pytest
import torch
from torch import nn
from torch.nn.modules import module as hooks
from torch.profiler import ProfilerActivity, profile

from otel_quant import measure_inference
from otel_quant.inference import torch_models
from otel_quant.inference.results import Accuracy
from tests.integration.inference.pytorch_models import (
    IDS,
    IMAGE,
    converted_export,
    convolutions,
    prepared_eager,
    prepared_export,
    transformer,
)

pytestmark = pytest.mark.usefixtures("one_thread")


@pytest.fixture(autouse=True)
def _the_engine_is_put_back() -> Iterator[None]:
    before = torch.backends.quantized.engine
    yield
    torch.backends.quantized.engine = before


@pytest.fixture(autouse=True)
def _no_process_is_left() -> Iterator[None]:
    before = psutil.Process().children()
    yield
    assert set(psutil.Process().children()) <= set(before)


@pytest.fixture(scope="module", autouse=True)
def _profiled_once() -> None:
    """What torch's profiler loads at its first use, it keeps."""
    measure_inference(nn.Identity(), IMAGE, runs=1)


class _Cache(nn.Module):
    """Keeps its last input, as a key and value cache does, and draws random numbers."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("last", torch.zeros(2, 3, 32, 32))
        self.register_buffer("count", torch.zeros((), dtype=torch.int64))
        self.drop = nn.Dropout(0.5)

    def forward(self, image: torch.Tensor) -> torch.Tensor:
        self.last = image.clone()
        assert isinstance(self.count, torch.Tensor)
        self.count += 1
        return self.drop(image) + torch.rand(1)


MODELS: dict[str, tuple[Callable[[], nn.Module], torch.Tensor]] = {
    "convolutions in training": (lambda: convolutions().train(), IMAGE),
    "transformer": (transformer, IDS),
    "observers of torch.ao": (lambda: prepared_eager("qnnpack"), IMAGE),
    "observers of PT2E": (prepared_export, IMAGE),
    "PT2E": (converted_export, IMAGE),
    "TorchScript": (lambda: torch.jit.trace(convolutions(), IMAGE), IMAGE),
    "buffers that a run changes": (_Cache, IMAGE),
}


def state(model: nn.Module) -> dict[str, Any]:
    """Returns all of a model that a measurement could leave changed."""
    return {
        "values": {name: _copy(value) for name, value in model.state_dict().items()},
        "buffers": {name: id(each) for name, each in model.named_buffers()},
        "training": {name: getattr(each, "training", None) for name, each in model.named_modules()},
        "hooks": {
            name: (len(each._forward_hooks), len(each._forward_pre_hooks))
            for name, each in model.named_modules()
            if not isinstance(each, torch.jit.ScriptModule)
        },
        "own": {name: "forward" in vars(each) for name, each in model.named_modules()},
        "of all modules": (len(hooks._global_forward_hooks), len(hooks._global_forward_pre_hooks)),
        "gradients": (torch.is_grad_enabled(), torch.is_inference_mode_enabled()),
        "random": torch.get_rng_state().tolist(),
        "engine": torch.backends.quantized.engine,
        "threads": threading.active_count(),
        "files": len(os.listdir("/proc/self/fd")),
    }


def _copy(value: Any) -> Any:
    return value.tolist() if isinstance(value, torch.Tensor) else str(value)


@pytest.mark.parametrize("name", MODELS)
def test_a_model_is_unchanged_after_a_measurement(name: str) -> None:
    make, inputs = MODELS[name]
    model = make()
    before = state(model)
    [result] = measure_inference(model, inputs, runs=2, warmup=1).models
    assert result.problem == ""
    assert state(model) == before


def test_the_quantized_engine_set_by_a_function_applies_only_to_its_model() -> None:
    torch.backends.quantized.engine = "fbgemm"

    def made() -> nn.Module:
        torch.backends.quantized.engine = "onednn"
        return nn.Identity()

    result = measure_inference({"first": nn.Identity(), "second": made}, IMAGE, runs=1)
    engines = [each.facts["quantized engine"] for each in result.models]
    assert (engines, torch.backends.quantized.engine) == (["fbgemm", "onednn"], "fbgemm")


def test_functions_with_random_weights_make_the_same_weights_each_time() -> None:
    models = {name: lambda: nn.Linear(8, 8) for name in ("first", "second")}
    [of_second] = measure_inference(models, torch.ones(1, 8), runs=1).models[1].accuracy.outputs
    assert of_second.max_abs == 0


class _Raises(nn.Module):
    """Runs a number of times, and then no more."""

    def __init__(self, runs: int) -> None:
        super().__init__()
        self.left = runs
        self.inner = nn.Identity()

    def forward(self, image: torch.Tensor) -> torch.Tensor:
        self.left -= 1
        if self.left < 0:
            raise ValueError("no more runs\nand a second line")
        result: torch.Tensor = self.inner(image)
        return result


def _makes_nothing() -> nn.Module:
    raise OSError("no weights")


def _ends_the_program() -> nn.Module:
    sys.exit("no license")


def test_a_failed_model_has_a_row_and_the_others_continue(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    models = {
        "too narrow": nn.Linear(3, 4),
        "not made": _makes_nothing,
        "ends the program": _ends_the_program,
        "no model": lambda: 3,
        "no function": 3,
        "a file": "model.onnx",
        "fails while warming up": _Raises(2),
        "fails while timed": _Raises(5),
        "fails while profiled": _Raises(9),
        "good": convolutions(),
    }
    result = measure_inference(models, IMAGE, runs=2, warmup=2)
    fed = "(called with input float32 2x3x32x32)"
    raised = f"ValueError: no more runs {fed}"
    # PyTorch 2.15 names the operator.
    problems = [(each.path, each.problem.replace("addmm: ", "")) for each in result.models]
    assert problems == [
        (
            "too narrow",
            f"RuntimeError: mat1 and mat2 shapes cannot be multiplied (192x32 and 3x4) {fed}",
        ),
        ("not made", "OSError: no weights"),
        ("ends the program", "SystemExit: no license"),
        (
            "no model",
            "the function has returned 3; expected a torch module, or a pair of a module and its inputs",
        ),
        (
            "no function",
            "3 is no model; expected a torch module, or a function without arguments that makes one",
        ),
        (
            "a file",
            "model.onnx is an ONNX file; expected a PyTorch model (otel-quant inference measures ONNX "
            "files by themselves)",
        ),
        ("fails while warming up", raised),
        ("fails while timed", raised),
        ("fails while profiled", raised),
        ("good", ""),
    ]
    good = result.models[-1]
    assert good.ran is not None
    assert good.accuracy == Accuracy(problem="too narrow was not measured")
    assert good.latency is not None
    assert good.latency.ratio is None
    table = repr(result)
    assert all(f"{each.problem}"[:100] in table for each in result.models[:-1])
    # The copy of the process that runs it has no more runs either.
    assert list(tmp_path.iterdir()) == []
    assert capfd.readouterr().out == ""


class _Elsewhere(nn.Module):
    """Runs in this process alone."""

    def __init__(self, otherwise: Callable[[], object]) -> None:
        super().__init__()
        self.pid, self.otherwise = os.getpid(), otherwise

    def forward(self, image: torch.Tensor) -> torch.Tensor:
        if os.getpid() != self.pid:
            self.otherwise()
        return image.clone()


@pytest.mark.parametrize(
    ("otherwise", "why"),
    [
        (lambda: time.sleep(60), "a copy of the process did not end within 1 s"),
        (os.abort, "a copy of the process could not run the model"),
    ],
)
def test_a_copy_that_hangs_or_dies_leaves_no_values_and_no_process(
    otherwise: Callable[[], object], why: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch_models, "_LEAST_SECONDS", 1.0)
    monkeypatch.setattr(torch_models, "_RUNS_AT_MOST", 0)
    [model] = measure_inference(_Elsewhere(otherwise), IMAGE, runs=1).models
    assert model.facts["memory of a run and kernels below the operators"] == f"not known: {why}"
    assert (model.problem, model.backend) == ("", ())
    assert model.memory is not None
    assert (model.memory.peak, model.memory.run_growth) == (None, None)
    assert model.memory.alive == 2 * 3 * 32 * 32 * 4


def test_output_of_other_threads_is_complete(capfd: pytest.CaptureFixture[str]) -> None:
    stop = threading.Event()
    written = 0

    def print_on() -> None:
        nonlocal written
        while not stop.wait(0.001):
            os.write(1, b"a line of the program\n")
            written += 1

    thread = threading.Thread(target=print_on)
    thread.start()
    try:
        [model] = measure_inference(convolutions(), IMAGE, runs=2).models
    finally:
        stop.set()
        thread.join()
    assert "oneDNN" in {each.library for each in model.backend}
    assert capfd.readouterr().out == "a line of the program\n" * written


class _Draws(nn.Module):
    def forward(self, image: torch.Tensor) -> torch.Tensor:
        return image + torch.randn_like(image)


def test_models_draw_the_same_random_numbers_and_the_program_continues_its_own() -> None:
    before = torch.get_rng_state()
    _, other = measure_inference({"one": _Draws(), "other": _Draws()}, IMAGE, runs=1).models
    assert other.accuracy is not None
    assert [each.max_abs for each in other.accuracy.outputs] == [0.0]
    assert torch.equal(torch.get_rng_state(), before)


def test_a_profiler_of_the_program_is_left_to_it() -> None:
    with (
        profile(activities=[ProfilerActivity.CPU]) as session,
        pytest.raises(RuntimeError, match="torch's profiler is running; expected a call outside"),
    ):
        measure_inference(nn.Identity(), IMAGE)
    assert session.profiler is not None


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"models": {}}, "there are no models; expected a module, or a mapping"),
        ({"runs": 0}, "runs=0, seconds=3.0, warmup=3; expected at least one run"),
        ({"seconds": 0.0}, "runs=None, seconds=0.0, warmup=3; expected at least one run"),
        ({"warmup": -1}, "runs=None, seconds=3.0, warmup=-1; expected at least one run"),
    ],
)
def test_invalid_arguments_raise_errors(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        measure_inference(**{"models": nn.Identity(), "inputs": IMAGE, **arguments})


def test_a_result_is_saved_in_the_format_of_its_file_name(tmp_path: Path) -> None:
    result = measure_inference({"one": nn.ReLU(), "other": nn.Flatten()}, IMAGE, runs=1)
    for suffix, begin in {
        ".json": '{"schema": 1',
        ".csv": "model,kernel,operator",
        ".md": "other takes ",
        ".txt": "other takes ",
        ".html": "<!DOCTYPE html>",
    }.items():
        path = tmp_path / f"result{suffix}"
        result.save(path)
        assert path.read_text().startswith(begin)
    assert (tmp_path / "result.txt").read_text().rstrip("\n") == str(result)
    assert (tmp_path / "result.html").read_text() == result.to_html()
    why = "other: its error is not known: output 'output' is [2, 3072], not [2, 3, 32, 32]"
    assert why in str(result)
    assert why in unescape(result.to_html())
    with pytest.raises(ValueError, match=r"'result.xls' ends with '.xls'; expected one of .json"):
        result.save(tmp_path / "result.xls")
