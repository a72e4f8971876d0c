"""What steps say of their run."""

from __future__ import annotations

from otel_quant.export.quark_yaml.run_facts import RunFacts
from otel_quant.schema import semconv
from otel_quant.schema.records import StepInfo


def test_the_first_method_counts_and_samples_add_up() -> None:
    quark = StepInfo(0, "Calibration", "Calibration", library="amd-quark", library_version="0.13")
    own = StepInfo(1, "Mine", "User-Defined")
    unknown_version = StepInfo(2, "Calibration", "Calibration", library="torch")

    facts = RunFacts().with_step(quark, {semconv.CALIBRATION_METHOD: "MinMax"})
    facts = facts.with_step(quark, {semconv.CALIBRATION_METHOD: "Entropy"}, 8, 64)
    facts = facts.with_step(own, {}, 4, 32).with_step(unknown_version, {})

    assert facts == RunFacts(("amd-quark 0.13", "torch"), "MinMax", 12, 96)


def test_items_are_unknown_once_a_sample_did_not_tell() -> None:
    step = StepInfo(0, "Calibration", "Calibration")
    facts = RunFacts().with_step(step, {}, 8, None).with_step(step, {}, 4, 32)

    assert facts == RunFacts(calibration_samples=12, calibration_items=None)


def test_a_step_that_says_nothing_new_changes_nothing() -> None:
    facts = RunFacts(("torch",))

    assert facts.with_step(StepInfo(0, "a", "a", library="torch"), {}) is facts
