"""What steps say of their run."""

from __future__ import annotations

from typing import Any

from otel_quant.export.quark_yaml.run_section import RunFacts
from otel_quant.schema import semconv
from otel_quant.schema.events import Event
from otel_quant.schema.records import RunInfo, StepInfo

QUARK = StepInfo(0, "Calibration", "Calibration", library="amd-quark", library_version="0.13")
OWN = StepInfo(1, "Mine", "User-Defined")
UNKNOWN_VERSION = StepInfo(2, "Calibration", "Calibration", library="torch")


def of(step: StepInfo, method: str | None = None, **known: Any) -> Event:
    attributes = {} if method is None else {semconv.CALIBRATION_METHOD: method}
    run = RunInfo("f00d", 1)
    return Event(
        kind="step.ended", time_ns=0, clock_ns=0, run=run, step=step, attributes=attributes, **known
    )


def test_the_first_method_counts_and_samples_add_up() -> None:
    facts = RunFacts().with_step(of(QUARK, "MinMax"))
    facts = facts.with_step(of(QUARK, "Entropy", samples=8, items=64))
    facts = facts.with_step(of(OWN, samples=4, items=32)).with_step(of(UNKNOWN_VERSION))
    assert facts == RunFacts(("amd-quark 0.13", "torch"), "MinMax", 12, 96)


def test_items_are_unknown_once_a_sample_did_not_tell() -> None:
    facts = RunFacts().with_step(of(OWN, samples=8)).with_step(of(OWN, samples=4, items=32))
    assert facts == RunFacts(calibration_samples=12, calibration_items=None)


def test_a_step_that_says_nothing_new_changes_nothing() -> None:
    facts = RunFacts(("torch",))
    assert facts.with_step(of(UNKNOWN_VERSION)) is facts
