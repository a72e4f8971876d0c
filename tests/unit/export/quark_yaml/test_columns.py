"""The columns of the local file, and YAML for any value, read back by PyYAML's pure parser and by libyaml."""

from __future__ import annotations

import decimal
import enum
import logging
import math
from dataclasses import replace
from typing import Any

import numpy as np
import psutil
import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from otel_quant.base.fault_boundary import FAULTS
from otel_quant.export.quark_yaml.columns import ProgramMetrics
from otel_quant.export.quark_yaml.metrics import (
    CheckpointMetric,
    CPUMemoryMbMetric,
    CPUPeakMemoryMetric,
    MetricContext,
    RelativeTimeMetric,
    SummaryMetric,
    TotalTimeMetric,
)
from otel_quant.export.quark_yaml.sink import comment, inline, key, quoted
from otel_quant.schema.figures import Figure, Resource, YamlColumn
from otel_quant.schema.readings import (
    CpuReading,
    DiskReading,
    GpuReading,
    MemoryReading,
    Peaks,
    Reading,
    RunInfo,
)
from tests.fixtures.figures import OF_QUARK, peaks_of
from tests.fixtures.sent import SentRun

MIB = 1024 * 1024

BASELINE = Reading(
    time_ns=1_700_000_000_250_000_000,
    clock_ns=5_000_000_000,
    resources={
        "memory": MemoryReading(rss=100 * MIB, tree_rss=120 * MIB, high_water=110 * MIB),
        "disk": DiskReading(read=10 * MIB, write=20 * MIB),
        "gpu": (GpuReading(0, "GPU-0", None, used=300 * MIB),),
    },
)
LATER = Reading(
    time_ns=1_700_000_002_750_000_000,
    clock_ns=7_123_456_789,
    resources={
        "memory": MemoryReading(rss=200 * MIB, tree_rss=250 * MIB + 5243, high_water=210 * MIB),
        "disk": DiskReading(read=11 * MIB + MIB // 3, write=19 * MIB),
        "gpu": (
            GpuReading(0, "GPU-0", None, used=301 * MIB),
            GpuReading(1, "GPU-1", None, used=7 * MIB + MIB // 2),
        ),
    },
)


Columns = tuple[dict[str, object], dict[str, object]]
"""All columns, and the columns of the program's own metrics."""


def at_checkpoint(
    metrics: ProgramMetrics, name: str, reading: Reading, baseline: Reading
) -> Columns:
    custom = metrics.at_checkpoint(name, reading, baseline)
    event = SentRun(RunInfo("f00d", 1), baseline, metrics=metrics).point(name, reading)
    return metrics.columns(replace(event, custom=custom)), custom


def at_end(metrics: ProgramMetrics, reading: Reading, baseline: Reading, peaks: Peaks) -> Columns:
    custom = metrics.at_end(reading, baseline, peaks)
    run = SentRun(RunInfo("f00d", 1), baseline)
    return metrics.summary(run.ended(reading, peaks, of_run=custom)), custom


@pytest.fixture(autouse=True)
def _fresh_faults(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(FAULTS, "counts", {})


def test_a_checkpoint_has_the_keys_order_units_and_rounding_of_quark() -> None:
    columns, custom = at_checkpoint(ProgramMetrics(OF_QUARK), "Calibration Start", LATER, BASELINE)

    assert list(columns.items()) == [
        ("step", "Calibration Start"),
        ("timestamp", 1700000002.75),
        ("relative_time_secs", 2.123456789),
        ("cpu_memory_mb", 250.01),
        ("gpu_memory_mb", 308.5),
        ("disk_read_mb", 1.33),
        ("disk_write_mb", 0.0),  # the counter fell: never negative
    ]
    assert custom == {}
    with_own = ProgramMetrics(OF_QUARK)  # of its own metrics, the context is filled
    with_own.checkpoint_metrics.append(Accuracy())
    collected, _ = at_checkpoint(with_own, "Calibration Start", LATER, BASELINE)
    assert list(collected.items()) == [*columns.items(), ("accuracy", 0.75)]


def test_the_summary_has_the_keys_order_units_and_rounding_of_quark() -> None:
    columns = ProgramMetrics(OF_QUARK)
    grown = 13 * MIB + MIB // 8
    peaks = Peaks(peaks_of(205 * MIB, 310 * MIB, grown), process_memory=205 * MIB)

    values, custom = at_end(columns, LATER, BASELINE, peaks)

    assert list(values.items()) == [
        ("total_quantization_time_seconds", 2.1235),
        ("peak_memory_mb", 210.0),
        ("peak_gpu_memory_mb", 310.0),
        ("total_disk_read_mb", 1.33),
        ("total_disk_write_mb", 0.0),
        ("peak_cache_dir_disk_usage_mb", 13.125),
    ]
    assert custom == {}


def test_unmeasured_values_are_absent_and_never_zero() -> None:
    nothing = Reading(time_ns=1_700_000_000_000_000_000, clock_ns=0)

    assert at_checkpoint(ProgramMetrics(OF_QUARK), "Start", nothing, nothing)[0] == {
        "step": "Start", "timestamp": 1700000000.0, "relative_time_secs": 0.0,
    }  # fmt: skip
    assert at_end(ProgramMetrics(OF_QUARK), nothing, nothing, Peaks())[0] == {
        "total_quantization_time_seconds": 0.0
    }


def test_the_peak_survives_a_reset_of_the_kernels_mark() -> None:
    reset = LATER._replace(
        resources={"memory": MemoryReading(rss=50 * MIB, tree_rss=50 * MIB, high_water=51 * MIB)}
    )

    values, _ = at_end(ProgramMetrics(OF_QUARK), reset, BASELINE, Peaks(process_memory=90 * MIB))

    assert values["peak_memory_mb"] == 110.0


class Accuracy(CheckpointMetric):
    @property
    def name(self) -> str:
        return "accuracy"

    def get_definition(self) -> str:
        return "Top-1 accuracy."

    def collect(self, context: MetricContext) -> float | None:
        return None if context.step_name == "Start" else 0.75


class TotalDuration(SummaryMetric):
    @property
    def name(self) -> str:
        return "hours"

    def get_definition(self) -> str:
        return "Duration in hours."

    def collect(self, context: MetricContext) -> float:
        assert context.end_time is not None
        assert context.start_time is not None
        return (context.end_time - context.start_time) / 3600


class Broken(CheckpointMetric):
    name = "broken"

    def get_definition(self) -> str:
        raise RuntimeError("no words")

    def collect(self, context: MetricContext) -> float:
        raise ZeroDivisionError("raised by the metric")


def test_custom_metrics_keep_their_position_and_are_returned_separately() -> None:
    columns = ProgramMetrics(OF_QUARK)
    columns.checkpoint_metrics.insert(1, Accuracy())
    columns.checkpoint_metrics.reverse()
    del columns.checkpoint_metrics[:3]
    columns.summary_metrics[1:] = [TotalDuration()]

    assert at_checkpoint(columns, "Start", LATER, BASELINE) == (
        {
            "cpu_memory_mb": 250.01, "relative_time_secs": 2.123456789, "timestamp": 1700000002.75,
            "step": "Start",
        },
        {},
    )  # fmt: skip
    values, custom = at_checkpoint(columns, "a", LATER, BASELINE)
    assert list(values) == [
        "cpu_memory_mb", "relative_time_secs", "timestamp", "accuracy", "step",
    ]  # fmt: skip
    assert custom == {"accuracy": 0.75}
    assert at_end(columns, LATER, BASELINE, Peaks()) == (
        {"total_quantization_time_seconds": 2.1235, "hours": 2.5 / 3600},
        {"hours": 2.5 / 3600},
    )


def test_a_metric_that_raises_is_logged_once_and_the_others_are_kept(
    caplog: pytest.LogCaptureFixture,
) -> None:
    columns = ProgramMetrics(OF_QUARK)
    columns.checkpoint_metrics[1:] = [Broken(), Accuracy()]

    with caplog.at_level(logging.WARNING, logger="otel_quant"):
        for _ in range(3):
            assert at_checkpoint(columns, "a", LATER, BASELINE) == (
                {"step": "a", "accuracy": 0.75},
                {"accuracy": 0.75},
            )
        defined = columns.definitions("checkpoint_metrics")

    assert defined[1:] == [("broken", ""), ("accuracy", "Top-1 accuracy.")]
    assert [record.getMessage().split(";")[0] for record in caplog.records] == [
        "metric broken failed and is skipped",
        "definition of broken failed and is skipped",
    ]


def test_a_metric_does_not_need_our_base_class() -> None:
    class Duck:
        name = "duck"

        def get_definition(self) -> str:
            return "Ducks."

        def collect(self, context: Any) -> Any:
            return [context.base_memory, isinstance(context.process, psutil.Process)]

    columns = ProgramMetrics(OF_QUARK)
    columns.checkpoint_metrics.append(Duck())

    _, custom = at_checkpoint(columns, "a", LATER, BASELINE)

    assert custom == {"duck": [120 * MIB, True]}


def test_the_last_of_two_metrics_with_the_same_name_is_used() -> None:
    class Other(Accuracy):
        def collect(self, context: MetricContext) -> float:
            return 0.5

    columns = ProgramMetrics(OF_QUARK)
    columns.checkpoint_metrics[:] = [Accuracy(), Other()]

    assert at_checkpoint(columns, "a", LATER, BASELINE)[0] == {"accuracy": 0.5}


def test_the_built_in_metrics_work_with_a_context_that_has_only_quarks_fields() -> None:
    context = MetricContext(
        start_time=10.0, end_time=12.25, current_time=11.5, current_memory=5 * MIB, step_name="a"
    )

    assert RelativeTimeMetric().collect(context) == 1.5
    assert TotalTimeMetric().collect(context) == 2.25
    assert CPUMemoryMbMetric().collect(context) == 5.0
    assert CPUPeakMemoryMetric().collect(context) is None


def test_the_base_classes_require_all_three_methods() -> None:
    for base in (CheckpointMetric, SummaryMetric):
        with pytest.raises(TypeError, match="abstract"):
            base()


def test_a_figure_that_quark_does_not_measure_is_a_column_unless_the_file_is_strict() -> None:
    waits = Figure(
        "cpu.wait", "s", "Waits", lambda cpu: cpu.wait, ("delta",), "1",
        column=YamlColumn("cpu_wait_secs", "Waits for a processor.", 1),
    )  # fmt: skip
    metrics = ProgramMetrics((Resource("cpu", (waits,)),))
    first, last = (Reading(0, 0, {"cpu": CpuReading(0, 0, wait=wait)}) for wait in (1.5, 4.0))
    event = SentRun(RunInfo("f00d", 1), first).point("a", last)

    assert metrics.columns(event)["cpu_wait_secs"] == 2.5
    assert metrics.definitions("checkpoint_metrics")[-1] == (
        "cpu_wait_secs",
        "Waits for a processor.",
    )
    assert "cpu_wait_secs" not in metrics.columns(event, strict=True)
    assert "cpu_wait_secs" not in dict(metrics.definitions("checkpoint_metrics", strict=True))


READERS = [yaml.SafeLoader, yaml.CSafeLoader]


def read(text: str) -> list[Any]:
    return [yaml.load(text.encode(), Loader=reader)["value"] for reader in READERS]


class Kind(str, enum.Enum):  # noqa: UP042 - str() of this kind is not its text
    STATIC = "static"


class Level(enum.IntEnum):
    HIGH = 3


@pytest.mark.parametrize(
    ("value", "text", "back"),
    [
        ("Calibration Start", '"Calibration Start"', "Calibration Start"),
        ('say "hi" \\ C:\\new', r'"say \"hi\" \\ C:\\new"', 'say "hi" \\ C:\\new'),
        ("a\nb\tc\r\0\x1b[31m", r'"a\nb\tc\r\u0000\u001b[31m"', "a\nb\tc\r\0\x1b[31m"),
        ("\x85\u2028\u2029", r'"\u0085\u2028\u2029"', "\x85\u2028\u2029"),
        ("\x7f\x9f\ufeff\uffff", r'"\u007f\u009f\ufeff\uffff"', "\x7f\x9f\ufeff\uffff"),
        ("\u202egnp.exe", r'"\u202egnp.exe"', "\u202egnp.exe"),
        ("Kalibrierung für 量化 🚀", '"Kalibrierung für 量化 🚀"', "Kalibrierung für 量化 🚀"),
        ("bad \udcff byte", r'"bad \\udcff byte"', "bad \\udcff byte"),
        ("true", '"true"', "true"),
        (Kind.STATIC, '"static"', "static"),
        (Level.HIGH, "3", 3),
        (True, "True", True),
        (None, "null", None),
        (7, "7", 7),
        (150.5, "150.5", 150.5),
        (1e-05, "1.0e-05", 1e-05),
        (1.5e300, "1.5e+300", 1.5e300),
        (1e22, "1.0e+22", 1e22),
        (math.inf, ".inf", math.inf),
        (-math.inf, "-.inf", -math.inf),
        (np.float64(0.25), "0.25", 0.25),
        (np.float32(0.5), "0.5", 0.5),
        (np.int8(-3), "-3", -3),
        (np.bool_(True), "True", True),
        (np.arange(4).reshape(2, 2), "[[0, 1], [2, 3]]", [[0, 1], [2, 3]]),
        ({"a": [1, (2.5, None)], "no": {"b c": "d"}}, '{a: [1, [2.5, null]], "no": {"b c": "d"}}', {"a": [1, [2.5, None]], "no": {"b c": "d"}}),
        ({1: set()}, '{"1": []}', {"1": []}),
        (decimal.Decimal("1.10"), '"1.10"', "1.10"),
        (b"\x00", r'"b\'\\x00\'"'.replace("\\'", "'"), "b'\\x00'"),
    ],
)  # fmt: skip
def test_every_reader_reads_the_value_that_was_written(
    value: object, text: str, back: object
) -> None:
    assert inline(value) == text
    assert read(f"value: {text}\n") == [back, back]


def test_nan_is_written_and_read_as_nan() -> None:
    assert inline(math.nan) == ".nan"
    assert all(math.isnan(value) for value in read("value: .nan\n"))


@given(st.text(st.characters(exclude_categories=["Cs"]), max_size=40))
def test_any_string_is_read_as_it_was_written(text: str) -> None:
    line = f"value: {quoted(text)}\n"

    assert line.count("\n") == 1
    assert read(line) == [text, text]


@given(st.text(max_size=40))
def test_any_string_with_surrogates_is_one_line_of_valid_yaml(text: str) -> None:
    line = f"{key(text)}: {quoted(text)}\n"

    assert len(line.splitlines()) == 1
    assert [len(yaml.load(line.encode(), Loader=reader)) for reader in READERS] == [1, 1]


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("cpu_memory_mb", "cpu_memory_mb"),
        ("yes", '"yes"'),
        ("NULL", '"NULL"'),
        ("my metric: %", '"my metric: %"'),
        ("", '""'),
        ("- a", '"- a"'),
        ("1st", '"1st"'),
    ],
)
def test_a_key_is_quoted_only_if_yaml_needs_it(name: str, text: str) -> None:
    assert key(name) == text
    assert list(yaml.safe_load(f"{text}: 1")) == [name]


def test_no_definition_can_end_its_comment() -> None:
    assert comment('one "word"\\\n two\r\nthree: 3\x85four\u2028five\x1b\x0b') == [
        'one "word"\\', " two", "three: 3", "four", "five\\u001b\\u000b",
    ]  # fmt: skip
