"""A configuration has the same hash in every process, and the same attributes whatever a library calls them."""

from __future__ import annotations

import enum
import functools
import json
import os
import subprocess
import sys
from collections import namedtuple
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from otel_quant.capture.instruments.configuration import described, of_arguments
from otel_quant.capture.instruments.hooks import ALL


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
    assert described(Config(bits=3))["quant.config.hash"] != own()["quant.config.hash"]


@pytest.mark.parametrize(
    ("configuration", "attributes"),
    [
        (
            QConfig(
                functools.partial(HistogramObserver),
                functools.partial(HistogramObserver, "qint8", qscheme="per_channel_symmetric"),
            ),
            {
                "quant.activation.type": "quint8",
                "quant.calibration.method": "HistogramObserver",
                "quant.config.name": "QConfig",
                "quant.granularity": "channel",
                "quant.symmetric": True,
                "quant.weight.type": "qint8",
            },
        ),
        (
            QATConfig(Int8DynamicActivationIntxWeightConfig()),
            {
                "quant.activation.type": "int8",
                "quant.block_size": 32,
                "quant.config.name": "QATConfig(Int8DynamicActivationIntxWeightConfig)",
                "quant.weight.type": "int4",
            },
        ),
        (
            {
                "weights": {"num_bits": 4, "strategy": "group", "group_size": 128},
                "input_activations": {"num_bits": 8},
                "output_activations": {"num_bits": 16},
            },
            {
                "quant.activation.bits": 8,
                "quant.bits": 4,
                "quant.block_size": 128,
                "quant.granularity": "group",
            },
        ),
        ({"bits": 8, "group_size": -1, "sym": "no"}, {"quant.bits": 8}),
        ({}, {}),
    ],
)
def test_common_option_names_make_the_same_attributes(
    configuration: Any, attributes: dict[str, Any]
) -> None:
    found = described(configuration)
    assert found.pop("quant.config.hash", None) is not None or not configuration
    assert found == attributes


def test_models_and_data_are_not_configuration() -> None:
    def of_call(**arguments: Any) -> dict[str, Any]:
        return of_arguments(arguments, ALL)

    assert of_call(model="a.onnx", dataset=[1], reader=object(), subset_size=300) == of_call(
        model="b.onnx", dataset=[2], output_path="c", subset_size=300
    )
    assert of_call(subset_size=300)["quant.config.samples"] == 300
    assert of_call(subset_size=301) != of_call(subset_size=300)
