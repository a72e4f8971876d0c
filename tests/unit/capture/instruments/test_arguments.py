"""What is made of the arguments of a call: one is replaced; models, items of batches and the configuration are found."""

from __future__ import annotations

import collections
import enum
import functools
import inspect
import json
import logging
import os
import shutil
import subprocess
import sys
from collections import namedtuple
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import onnx
import pytest

from otel_quant.capture.instruments.configuration import (
    OF_WEIGHTS,
    completed,
    described,
    of_arguments,
    with_outer,
)
from otel_quant.capture.instruments.hooks import ALL, Arguments
from otel_quant.capture.instruments.libraries import of_compressor
from otel_quant.capture.instruments.samples import items_in
from otel_quant.capture.instruments.steps import models_of
from otel_quant.schema import semconv
from tests.fixtures.figures import named


def calibrate(model: str, loader: Any = None, *rest: Any, seed: int = 0) -> tuple[Any, ...]:
    return model, loader, rest, seed


def doubled(value: int | None) -> int | None:
    return None if value is None else 2 * value


@pytest.mark.parametrize(
    ("args", "kwargs", "expected"),
    [
        (("m", 1), {}, (("m", 2), {})),
        (("m", 1, 5), {"seed": 7}, (("m", 2, 5), {"seed": 7})),
        (("m",), {"loader": 1}, (("m",), {"loader": 2})),
        (("m",), {}, (("m",), {})),
        (("m",), {"loader": None}, (("m",), {"loader": None})),
    ],
)
def test_an_argument_is_replaced_where_it_is_passed(
    args: tuple[Any, ...], kwargs: dict[str, Any], expected: tuple[Any, ...]
) -> None:
    before = dict(kwargs)
    assert Arguments(calibrate).replaced(args, kwargs, "loader", doubled) == expected
    assert kwargs == before


def test_only_passed_or_default_arguments_are_replaced() -> None:
    read = Arguments(calibrate)
    assert read.replaced(("m", 1, 5, 6), {"seed": 7}, "seed", doubled) == (
        ("m", 1, 5, 6),
        {"seed": 14},
    )
    assert read.replaced(("m",), {}, "loader", repr) == (("m",), {"loader": "None"})
    assert read.replaced((), {}, "model", doubled) == ((), {})
    assert read.replacing(calibrate, "run_fn", doubled) is calibrate


def test_parameters_hidden_by_a_decorator_come_from_the_table() -> None:
    def hidden(*args: Any, **kwargs: Any) -> tuple[Any, ...]:
        return calibrate(*args, **kwargs)

    assert Arguments(hidden).replacing(hidden, "loader", doubled) is hidden
    read = Arguments(hidden, ("model", "loader"))
    wrapper = read.replacing(hidden, "loader", doubled)
    assert wrapper("m", 1) == wrapper("m", loader=1) == ("m", 2, (), 0)
    assert read.bound(("m",), {"seed": 7})["model"] == "m"


def test_a_call_continues_unchanged_if_the_replacement_fails(
    caplog: pytest.LogCaptureFixture,
) -> None:
    def fails(value: object) -> object:
        raise ValueError("no such loader")

    wrapper = Arguments(calibrate).replacing(calibrate, "loader", fails)
    with caplog.at_level(logging.WARNING, "otel_quant"):
        assert wrapper("m", 1) == ("m", 1, (), 0)
    assert caplog.messages == [
        "argument loader of calibrate failed and is skipped; the program goes on without it: "
        "ValueError: no such loader"
    ]
    assert inspect.signature(wrapper) == inspect.signature(calibrate)


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("model_input", "model_output"),
        ("input_model", "output_model_path"),
        ("input_model_path", "output_model"),
    ],
)
def test_input_and_output_models_of_every_call_style_are_costed(
    model: Path, tmp_path: Path, before: str, after: str
) -> None:
    quantized = tmp_path / "quantized.onnx"
    shutil.copy(model, quantized)

    found = models_of({before: str(model), after: quantized, "per_channel": True}, None)

    assert found == [("float", str(model)), ("quantized", quantized)]


def test_the_result_is_the_quantized_model_if_no_file_was_requested(model: Path) -> None:
    result = onnx.ModelProto()
    found = models_of({"model_input": model, "model_output": None}, result)
    assert found == [("float", model), ("quantized", result)]


def test_a_model_quantized_in_place_is_costed_once(model: Path) -> None:
    assert models_of({"model_input": str(model), "model_output": model}, None) == [
        ("quantized", model)
    ]


def test_a_path_that_is_not_an_onnx_model_is_not_costed(tmp_path: Path) -> None:
    (tmp_path / "checkpoint.bin").write_bytes(b"weights")
    arguments = {
        "model_input": str(tmp_path / "checkpoint.bin"),
        "model_output": str(tmp_path / "was_never_written.onnx"),
    }
    assert models_of(arguments, None) == []


IMAGES, LABELS = np.zeros((8, 3, 4, 4)), np.zeros(8)


class OrtValue:
    """Returns its shape from a method, as onnxruntime's does."""

    def shape(self) -> list[int]:
        return [8, 3]


@pytest.mark.parametrize(
    ("batch", "items"),
    [
        (IMAGES, 8),
        (np.zeros((0, 3)), 0),
        ({"x": IMAGES}, 8),
        ({"x": IMAGES, "y": LABELS, "scale": np.float32(1), "name": "first"}, 8),
        (collections.UserDict(tokens=np.zeros((2, 512)), mask=np.zeros((2, 512))), 2),
        ([IMAGES], 8),
        ([IMAGES, LABELS], 8),
        ((IMAGES, LABELS), 8),
        (({"x": IMAGES}, LABELS), 8),
        ([IMAGES, ["a label"] * 8], 8),
    ],
)
def test_the_number_of_items_is_the_shared_first_dimension_of_the_arrays(
    batch: Any, items: int
) -> None:
    assert items_in(batch) == items


@pytest.mark.parametrize(
    "batch",
    [
        None,
        "text",
        7,
        np.float32(1),
        OrtValue(),
        [],
        {},
        ["a text", "another"],
        {"x": IMAGES, "y": np.zeros(7)},
        [np.zeros((3, 4, 4))] * 8,  # eight images with three channels, or eight inputs
        [np.zeros((3, 4, 4)), np.zeros((3, 5, 5))],
        [{"x": np.zeros((3, 4, 4))}] * 8,
        [LABELS] * 100,
        [1.5] * 100_000,
    ],
)
def test_a_batch_without_a_clear_size_has_no_number_of_items(batch: Any) -> None:
    assert items_in(batch) is None


class Mode(enum.Enum):
    INT4_SYM = "int4_sym"


class HistogramObserver:
    def __init__(self, dtype: str = "quint8", qscheme: str = "per_tensor_affine") -> None:
        raise AssertionError("it is only described")


QConfig = namedtuple("QConfig", ["activation", "weight"])  # as in PyTorch


@dataclass
class Int8DynamicActivationIntxWeightConfig:
    weight_dtype: str = "int4"
    group_size: int = 32


@dataclass
class Int8WeightOnlyConfig:
    group_size: int | None = None


@dataclass
class QATConfig:
    base_config: Any


@dataclass
class Config:
    bits: int = 4
    modes: frozenset[Mode] = frozenset(Mode)
    names: set[str] = field(default_factory=lambda: {"a", "b", "c", "d"})
    observer: Any = field(default_factory=lambda: functools.partial(HistogramObserver, "qint8"))
    scale: Callable[[int], int] = lambda value: value
    cache_dir: str = field(default_factory=os.getcwd)
    path: Path = field(default_factory=Path.cwd)
    owner: Any = None
    _scratch: int = field(default_factory=os.getpid)


def own() -> dict[str, Any]:
    config = Config()
    config.owner = config  # it refers to itself
    return described(config)


def test_a_hash_has_no_address_path_or_order_in_it(tmp_path: Path) -> None:
    program = f"import json, runpy; print(json.dumps(runpy.run_path({__file__!r})['own']()))"
    found = [
        json.loads(
            subprocess.run(
                [sys.executable, "-c", program],
                cwd=folder, env={**os.environ, "PYTHONHASHSEED": seed, "PYTHONPATH": os.getcwd()},
                capture_output=True, text=True, check=True,
            ).stdout
        )
        for folder, seed in ((tmp_path, "1"), ("/", "2"))
    ]  # fmt: skip
    assert found == [own(), own()]
    assert described(Config(bits=3))[semconv.CONFIG_HASH] != own()[semconv.CONFIG_HASH]


@pytest.mark.parametrize(
    ("configuration", "attributes"),
    [
        (
            QConfig(
                functools.partial(HistogramObserver),
                functools.partial(HistogramObserver, "qint8", qscheme="per_channel_symmetric"),
            ),
            {"activation.type": "quint8", "weight.type": "qint8", "granularity": "channel", "symmetric": True,
             "bits": 8, "activation.bits": 8, "calibration.method": "HistogramObserver", "config.name": "QConfig"},
        ),
        (
            QATConfig(Int8DynamicActivationIntxWeightConfig()),
            {"activation.type": "int8", "weight.type": "int4", "block_size": 32,
             "bits": 4, "activation.bits": 8, "granularity": "group", "config.name": "QATConfig(Int8DynamicActivationIntxWeightConfig)"},
        ),
        (
            {"weights": {"num_bits": 4, "strategy": "group", "group_size": 128},
             "input_activations": {"num_bits": 8}, "output_activations": {"num_bits": 16}},
            {"activation.bits": 8, "bits": 4, "block_size": 128, "granularity": "group"},
        ),
        ({"bits": 8, "group_size": -1, "sym": "no"}, {"bits": 8, "granularity": "channel"}),
        ({}, {}),
        # Where parts of the model differ: all names; no number that is true of one part alone.
        (
            {"fqn_to_config": {"output": Int8WeightOnlyConfig(), "kv": Int8DynamicActivationIntxWeightConfig()}},
            {"activation.type": "int8", "activation.bits": 8, "weight.type": "int4, int8", "parts.bits": (4, 8),
             "parts.block_size": (32,)},
        ),
        (
            {"bits": 4, "group_size": 64, "dynamic": {"+:down": {"bits": 8}, "-:up": {}, "lm_head": {"bits": 16}}},
            {"parts.bits": (4, 8), "block_size": 64, "granularity": "group"},
        ),
        (
            {"weight_type": "int4", "layer_quant_config": {"a": {"weight": {"dtype": "int8", "block_size": 128}}}, "block_size": 32},
            {"weight.type": "int4, int8", "parts.bits": (4, 8), "parts.block_size": (32, 128), "granularity": "group"},
        ),
        # The sizes of an algorithm are not those of the weights.
        ({"mode": "int8", "gptq_params": {"block_size": 128, "subset_size": 9}}, {"config.samples": 9}),
        ({"weights": {"name": "qfloat8_e4m3fn"}}, {"weight.type": "qfloat8_e4m3fn", "bits": 8}),
        ({"quant_method": "torchao", "WeightSymmetric": False, "ActivationSymmetric": True},
         {"symmetric": False, "activation.symmetric": True}),
        ({"weights": {"num_bits": 4, "type": "float", "group_size": 16, "strategy": "tensor_group"}},
         {"weight.type": "float4", "bits": 4, "block_size": 16, "granularity": "group"}),  # NVFP4
        # A block of rows and columns, as ModelOpt has it
        ({"weight": {"num_bits": (4, 3), "block_sizes": {-1: 128, -2: 128}}},
         {"weight.type": "float8", "bits": 8, "granularity": "block"}),
        # As AutoRound has types
        ({"data_type": "mx_fp", "bits": 6, "act_data_type": "nv_fp4_with_static_gs", "act_bits": 4, "group_size": 32},
         {"weight.type": "mx_fp6", "bits": 6, "activation.type": "nv_fp4_with_static_gs", "activation.bits": 4,
          "block_size": 32, "granularity": "group"}),
        ({"data_type": "fp", "bits": 8, "act_data_type": "fp", "act_bits": 16, "group_size": (128, 128)},
         {"weight.type": "fp8", "bits": 8, "granularity": "block"}),
    ],
)  # fmt: skip
def test_common_option_names_make_the_same_attributes(
    configuration: Any, attributes: dict[str, Any]
) -> None:
    found = described(configuration)
    assert found.pop(semconv.CONFIG_HASH, None) is not None or not configuration
    assert found == {named(f"quant.{name}"): value for name, value in attributes.items()}
    assert (
        completed(dict(found)) == found
    )  # of an outer step, whose attributes those within have too


def test_a_step_for_one_part_of_a_mixture_has_nothing_of_the_others() -> None:
    mixture = {
        semconv.WEIGHT_TYPE: "float8, int8", semconv.BITS: 8, semconv.PARTS_BLOCK_SIZE: (128,),
        semconv.ACTIVATION_TYPE: "float8", semconv.ACTIVATION_BITS: 8, semconv.CONFIG_HASH: "2-1",
    }  # fmt: skip
    part = {semconv.WEIGHT_TYPE: "int8", semconv.BITS: 8}
    assert with_outer(mixture, part) == {**part, semconv.CONFIG_HASH: "2-1"}
    assert with_outer(mixture, {}) == mixture


def test_models_and_data_are_not_configuration() -> None:
    def of_call(**arguments: Any) -> dict[str, Any]:
        return of_arguments(arguments, ALL)

    assert of_call(model="a.onnx", dataset=[1], reader=object(), subset_size=300) == of_call(
        model="b.onnx", dataset=[2], output_path="c", subset_size=300
    )
    assert of_call(subset_size=300)[semconv.CONFIG_SAMPLES] == 300
    assert of_call(subset_size=301) != of_call(subset_size=300)


@pytest.mark.parametrize(("bits", "types"), [(4, {semconv.BITS, semconv.WEIGHT_TYPE}), (16, set())])
def test_weights_that_autoround_leaves_as_they_are_have_no_type_of_its_scheme(
    bits: int, types: set[str]
) -> None:
    rounding = SimpleNamespace(
        scheme="any", bits=bits, group_size=128, sym=True, data_type="fp", act_bits=8,
        act_data_type="int", quantize_config=SimpleNamespace(),
    )  # fmt: skip
    found = of_compressor({"self": rounding})
    assert found.keys() & OF_WEIGHTS == types | (
        {semconv.BLOCK_SIZE, semconv.GRANULARITY, semconv.SYMMETRIC} if types else set()
    )
    assert found[semconv.ACTIVATION_TYPE] == "int8"
