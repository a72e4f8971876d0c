"""Unchanged programs that quantize with AMD Quark: everything that reaches the receiver."""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass
from typing import Any

import pytest

from otel_quant.schema import catalog, semconv
from tests.fixtures.figures import ATTRIBUTES
from tests.fixtures.steps import steps_below, steps_by
from tests.integration.quark.conftest import FloatModels, QuarkRun
from tests.integration.quark.expected import USAGE, checkpoints_of, onnx_steps, torch_steps

pytestmark = pytest.mark.quark

GROWN = "quant.cache.disk.peak"
FIGURES = set().union(*ATTRIBUTES.values())
"""Those that are not in `USAGE` were added since."""


@dataclass(frozen=True)
class Case:
    """A run, the spans below its span, and the attributes of its span."""

    run: QuarkRun
    steps: list[Any]
    of_the_run: dict[str, Any]


@pytest.fixture(params=["onnx over grpc", "torch over http"])
def case(request: pytest.FixtureRequest, float_models: FloatModels) -> Case:
    """Each program, over one protocol."""
    step = steps_by("amd-quark", "quark.")
    of_onnx = {
        "quant.library.name": "amd-quark",
        "quant.calibration.method": "Percentile",
        "quant.config.name": "XINT8",
        "quant.input.path": f"{float_models.onnx}/conv.onnx",
    }
    of_torch = {
        "quant.library.name": "amd-quark",
        "quant.calibration.method": "PerTensorMinMaxObserver",
        "quant.input.path": str(float_models.checkpoint),
    }
    if request.param == "torch over http":
        run = request.getfixturevalue("torch_run")
        return Case(run, torch_steps(step, str(float_models.checkpoint), str(run.out)), of_torch)
    run = request.getfixturevalue("onnx_run")
    return Case(run, onnx_steps(step, str(float_models.onnx), str(run.out)), of_onnx)


def test_the_spans_nest_as_the_steps_happened_with_their_arguments(case: Case) -> None:
    otlp = case.run.otlp
    assert steps_below(otlp, otlp.span("quantization")) == case.steps

    spans = otlp.spans
    assert {span.trace_id for span in spans} == {spans[0].trace_id}
    assert Counter((span.scope, span.status, span.events) for span in spans) == {
        ("otel_quant", "UNSET", ()): len(spans)
    }


def test_each_step_has_its_resource_use(case: Case) -> None:
    otlp = case.run.otlp
    root = otlp.span("quantization").attributes
    spans = [span for span in otlp.by_start() if "quant.step.index" in span.attributes]
    assert sorted(s.attributes["quant.step.index"] for s in spans) == [*range(len(spans))]
    for span in spans:
        used = span.attributes
        measured = dict(USAGE)
        if "quant.calibration.sample_count" in used:
            measured["quant.calibration.sample_rate"] = float
        if GROWN in used:  # only where a cache directory exists
            measured[GROWN] = int
        assert {key: type(used.get(key)) for key in measured} == measured
        ids = ("quant.run.id", "quant.run.name")
        assert [used[key] for key in ids] == [root[key] for key in ids]
        assert used["quant.step.name"] == used["quant.step.kind"] == span.name
        assert used["quant.memory.peak"] >= max(
            used["quant.memory.start"], used["quant.memory.end"]
        )
        assert used["quant.memory.peak_source"] in ("kernel", "sampled")
        assert used["quant.disk.write_chars"] >= 0


def test_the_root_describes_the_run(case: Case) -> None:
    otlp = case.run.otlp
    root = otlp.span("quantization").attributes
    measured = {
        **USAGE,
        "quant.run.id": str,
        "quant.run.name": str,
        "quant.config.hash": str,
        "quant.memory.limit": int,
        "quant.memory.limit_source": str,
        "quant.memory.process_peak": int,
        **({GROWN: int} if "quant.config.name" in case.of_the_run else {}),
    }

    found = {
        key: value
        for key, value in root.items()
        if key not in {*measured, *FIGURES, *semconv.ORIGIN} and not key.startswith("quant.model.")
    }
    assert any(library.startswith("amd-quark ") for library in root[semconv.LIBRARIES])
    assert found == {
        **case.of_the_run,
        "process.pid": found["process.pid"],
        "quant.run.steps": len(checkpoints_of(case.steps)) // 2 - 1,
        "quant.run.failed_steps": 0,
    }
    assert {key: type(root.get(key)) for key in measured} == measured
    assert re.fullmatch("[0-9a-f]{16}", root["quant.run.id"])
    assert root["quant.memory.start"] < root["quant.memory.end"] <= root["quant.memory.peak"]


def test_one_log_record_for_each_checkpoint_points_at_its_step(case: Case) -> None:
    otlp = case.run.otlp
    records = otlp.records_of("quant.checkpoint.taken")
    root = otlp.span("quantization")
    span_of = {span.attributes.get("quant.step.index"): span for span in otlp.spans} | {None: root}

    expected = checkpoints_of(case.steps)
    assert [(r.body, r.attributes.get("quant.step.index")) for r in records] == expected
    for sequence, record in enumerate(records):
        attributes = record.attributes
        span = span_of[attributes.get("quant.step.index")]
        assert (record.trace_id, record.span_id) == (span.trace_id, span.span_id)
        assert attributes["quant.checkpoint.sequence"] == sequence
        assert attributes["quant.checkpoint.name"] == record.body
        # Durations of spans are from the monotonic clock, which differs a little from the wall clock.
        assert span.start_ns - 1e6 <= record.time_ns <= span.end_ns + 1e6
        assert (record.severity, record.severity_number) == ("INFO", 9)
        own = {
            "quant.run.id", "quant.run.name", "process.pid", "quant.checkpoint.name", "quant.checkpoint.phase",
            "quant.checkpoint.sequence", "quant.checkpoint.elapsed", "quant.checkpoint.memory",
            "quant.checkpoint.process_memory", "quant.checkpoint.memory_limit",
            "quant.checkpoint.disk_read", "quant.checkpoint.disk_write",
        }  # fmt: skip
        if span is not root:
            own |= {
                "quant.step.name", "quant.step.kind", "quant.step.index", "quant.library.name",
            }  # fmt: skip
        assert attributes.keys() == own
    # They are sent while the program runs, not with its last spans.
    assert records[1].arrived < root.end_ns


def test_the_metrics_are_the_declared_ones(case: Case) -> None:
    otlp = case.run.otlp
    names = {
        "quant.step.duration", "quant.step.memory.peak", "quant.step.memory.growth",
        "quant.step.disk.io", "quant.step.cpu.time", "quant.step.active",
        "quant.run.start", "quant.run.last_seen", "quant.run.end", "quant.run.memory.peak",
        "quant.run.memory.usage", "quant.run.memory.limit", "quant.run.disk.io",
        "quant.calibration.samples",
    }  # fmt: skip
    if GROWN in otlp.span("quantization").attributes:
        names.add("quant.step.cache.disk.peak")
    if any(name == "model cost" for name, *_ in case.steps):
        names |= {"quant.model.size", "quant.model.params", "quant.model.macs_contraction"}
    # Torch's last calibration consumes no samples: how far an earlier one was may have been sent.
    at_times = {
        "quant.calibration.progress", "quant.run.cache.disk.usage",
        "quant.step.layer_progress", "quant.step.layers",
    }  # fmt: skip
    assert otlp.metric_names("otel_quant") - at_times == names

    kinds = {
        "histogram": ("histogram", None), "counter": ("sum", True), "gauge": ("gauge", None),
        "observable_counter": ("sum", True), "observable_gauge": ("gauge", None),
    }  # fmt: skip
    for point in otlp.points:
        declared = catalog.METRIC_BY_NAME[point.metric]
        assert (point.unit, point.description) == (declared.unit, declared.brief)
        assert (point.type, point.monotonic) == kinds[declared.instrument]
        assert point.attributes.keys() <= set(declared.attributes)
        assert point.bounds == declared.buckets


def test_no_attribute_is_undeclared(case: Case) -> None:
    """Everything, model cost included, at a place where semconv declares it."""
    otlp = case.run.otlp
    seen: list[tuple[semconv.Place, dict[str, Any]]] = []
    for span in otlp.spans:
        place: semconv.Place = (
            "run" if span.name == semconv.ROOT_SPAN
            else "cost" if span.name == semconv.COST_SPAN
            else "step"
        )  # fmt: skip
        seen.append((place, span.attributes))
    seen += [
        ("checkpoint", record.attributes) for record in otlp.records_of("quant.checkpoint.taken")
    ]
    seen += [("run", record.attributes) for record in otlp.records_of("quant.run.started")]
    seen += [("metric", point.attributes) for point in otlp.points]

    undeclared = {
        (place, key)
        for place, attributes in seen
        for key, value in attributes.items()
        if not any(_declares(attribute, key, value) for attribute in catalog.attributes_on(place))
    }
    assert undeclared == set()


TYPES = {"string": str, "int": int, "double": float, "boolean": bool, "string[]": tuple}


def _declares(attribute: semconv.Attribute, key: str, value: object) -> bool:
    pattern = re.sub("<[^>]+>", ".+", re.escape(attribute.name).replace("\\<", "<"))
    return re.fullmatch(pattern, key) is not None and type(value) is TYPES[attribute.type]
