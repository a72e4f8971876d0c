"""A run has a name for people, the same in its processes, from its first record on."""

from __future__ import annotations

import os
from dataclasses import replace

import psutil
import pytest

from otel_quant.capture.recorder.recorder import Recorder
from otel_quant.capture.recorder.run_info import new_run_info
from otel_quant.export.otel import service_name
from otel_quant.export.otel.service_name import described, model_name
from otel_quant.schema.records import RunInfo
from tests.unit.capture.recorder.received import recorder_of
from tests.unit.export.otel.signals import Signals

BEGAN = 1_700_000_000_123_456_789
BARE = RunInfo(id="0", pid=1)


@pytest.fixture
def service(monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setattr(service_name, "service_name", lambda: "nightly")
    return "nightly"


def test_a_name_is_made_of_service_model_and_start(service: str) -> None:
    attributes = {
        "quant.input.path": "models/resnet50.onnx",
        "quant.calibration.method": "Percentile",
        "quant.config.name": "XINT8",
        "quant.bits": 8,
    }
    assert described(BARE, attributes, BEGAN) == replace(
        BARE,
        name="nightly resnet50 2023-11-14T22:13:20.123Z",
        model="resnet50",
        method="Percentile",
        config="XINT8",
    )


def test_a_run_without_a_model_is_named_without_one(service: str) -> None:
    assert described(BARE, {}, BEGAN).name == "nightly 2023-11-14T22:13:20.123Z"


def test_a_name_that_was_given_stays(service: str) -> None:
    assert described(replace(BARE, name="mine"), {}, BEGAN).name == "mine"


def test_a_name_loses_only_line_breaks_and_backticks(service: str) -> None:
    given = '50% of `R&D` #3:\n\ta+b = "$c" \\d.*'
    name = described(replace(BARE, name=given), {}, BEGAN).name
    assert name == "50% of 'R&D' #3: a+b = \"$c\" \\d.*"
    assert described(BARE, {"quant.input.path": "a\n`b`.onnx"}, BEGAN).name == (
        "nightly a 'b' 2023-11-14T22:13:20.123Z"
    )


def test_ranks_of_the_same_launcher_share_a_name(service: str) -> None:
    ranks = [new_run_info({"RANK": str(rank), "WORLD_SIZE": "2"}) for rank in range(2)]
    began = psutil.Process(os.getppid()).create_time()
    assert [rank.launched_ns for rank in ranks] == [int(began * 1e9)] * 2
    names = {described(rank, {}, BEGAN + 10**9 * n).name for n, rank in enumerate(ranks)}
    assert len(names) == 1


@pytest.mark.parametrize(
    ("path", "name"),
    [
        ("models/resnet50.onnx", "resnet50"),
        ("C:\\models\\resnet50.onnx", "resnet50"),
        ("facebook/opt-125m", "opt-125m"),
        ("/data/opt-125m/", "opt-125m"),
        ("model.v1.pt", "model.v1.pt"),
        ("/", None),
    ],
)
def test_a_model_is_named_by_the_last_part_of_its_path(path: str, name: str | None) -> None:
    assert model_name(path) == name


def test_runs_between_two_collections_are_all_in_the_next_one_and_the_last_stays() -> None:
    signals = Signals()
    sink = signals.metrics_sink()

    def collected() -> dict[str, list[object]]:
        return {
            name: [labels["quant.run.name"] for labels, _ in points]
            for (name, _), points in signals.points().items()
            if name in ("quant.run.start", "quant.run.end")
        }

    def begin(name: str) -> Recorder:
        recorder = recorder_of([sink], info=replace(new_run_info({}), name=name))
        recorder.start()
        return recorder

    for name in ("first", "second"):
        begin(name).end()
    begin("third")
    assert collected() == {
        "quant.run.start": ["first", "second", "third"],
        "quant.run.end": ["first", "second"],
    }
    assert collected() == {"quant.run.start": ["third"]}
