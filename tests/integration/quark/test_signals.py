"""Unchanged programs that quantize with AMD Quark: everything that reaches the receiver."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from otel_quant.schema import catalog, semconv
from tests.fixtures.figures import ATTRIBUTES, named
from tests.fixtures.steps import audit_of, steps_below, steps_by
from tests.fixtures.written_weights import assert_described
from tests.integration.quark.conftest import FloatModels, QuarkRun
from tests.integration.quark.expected import USAGE, checkpoints_of, onnx_steps, torch_steps

pytestmark = pytest.mark.quark

GROWN = semconv.CACHE_GROWTH
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
        semconv.LIBRARY_NAME: "amd-quark", semconv.CALIBRATION_METHOD: "Percentile, MinMSE",
        semconv.CONFIG_NAME: "XINT8", semconv.INPUT_PATH: f"{float_models.onnx}/conv.onnx",
    }  # fmt: skip
    of_torch = {
        semconv.LIBRARY_NAME: "amd-quark",
        semconv.CALIBRATION_METHOD: "PerTensorMinMaxObserver",
        semconv.INPUT_PATH: str(float_models.checkpoint),
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


def test_each_checkpoint_that_was_written_is_audited(torch_run: QuarkRun) -> None:
    spans = filter(audit_of, torch_run.otlp.by_start())
    found = {each.attributes[semconv.MODEL_PATH]: str(audit_of(each)) for each in spans}
    assert found == {
        f"{torch_run.out}/safetensors": "as configured: 8 of 8 layers int8, 8.96 kB as forecast",
        f"{torch_run.out}/files": "as configured: 1 of 1 layer int8, 760 B as forecast",
    }


def test_what_is_said_of_weights_is_what_the_written_checkpoints_have(
    torch_run: QuarkRun,
    monkeypatch: pytest.MonkeyPatch,
    record_property: Callable[[str, int], None],
) -> None:
    # To import torch takes seconds.
    from safetensors.torch import load_file

    # It is read by scripts too, which have its folder on their path.
    monkeypatch.syspath_prepend(Path(__file__).parents[1] / "libraries/programs")

    from tests.integration.libraries.programs.written import weights_of

    ways = ("Export HF Safetensors", "safetensors"), ("File-to-File Quantization", "files")
    record_property("compared", len(ways))
    for name, folder in ways:
        [file] = (torch_run.out / folder).glob("*.safetensors")
        weights = [each._asdict() for each in weights_of(load_file(file))]
        assert weights
        assert_described(torch_run.otlp.span(name), weights)


def test_each_step_has_its_resource_use(case: Case) -> None:
    otlp = case.run.otlp
    root = otlp.span("quantization").attributes
    spans = [span for span in otlp.by_start() if semconv.STEP_INDEX in span.attributes]
    assert sorted(s.attributes[semconv.STEP_INDEX] for s in spans) == [*range(len(spans))]
    for span in spans:
        used = span.attributes
        measured = dict(USAGE)
        if semconv.CALIBRATION_SAMPLE_COUNT in used:
            measured[semconv.CALIBRATION_SAMPLE_RATE] = float
        if GROWN in used:  # only where a cache directory exists
            measured[GROWN] = int
        assert {key: type(used.get(key)) for key in measured} == measured
        ids = (semconv.RUN_ID, semconv.RUN_NAME)
        assert [used[key] for key in ids] == [root[key] for key in ids]
        assert used[semconv.STEP_NAME] == used[semconv.STEP_KIND] == span.name
        assert used[semconv.MEMORY_PEAK] >= max(
            used[semconv.MEMORY_START], used[semconv.MEMORY_END]
        )
        assert used[semconv.MEMORY_PEAK_SOURCE] in ("kernel", "sampled")
        assert used[named("quant.disk.write_chars")] >= 0


def test_the_root_describes_the_run(case: Case) -> None:
    otlp = case.run.otlp
    root = otlp.span("quantization").attributes
    measured = {
        **USAGE,
        semconv.RUN_ID: str,
        semconv.RUN_NAME: str,
        semconv.CONFIG_HASH: str,
        semconv.MEMORY_LIMIT: int,
        semconv.MEMORY_LIMIT_SOURCE: str,
        semconv.MEMORY_PROCESS_PEAK: int,
        **({GROWN: int} if semconv.CONFIG_NAME in case.of_the_run else {}),
    }

    found = {
        key: value
        for key, value in root.items()
        if key not in {*measured, *FIGURES, *semconv.ORIGIN} and not key.startswith("quant.model.")
    }
    assert any(library.startswith("amd-quark ") for library in root[semconv.LIBRARIES])
    steps = len(checkpoints_of(case.steps)) // 2 - 1
    assert f" {steps} steps took " in found.pop(semconv.RUN_ANSWER)
    assert found == {
        **case.of_the_run, "process.pid": found["process.pid"],
        semconv.RUN_STEPS: steps, semconv.RUN_FAILED_STEPS: 0,
    }  # fmt: skip
    assert {key: type(root.get(key)) for key in measured} == measured
    assert re.fullmatch("[0-9a-f]{16}", root[semconv.RUN_ID])
    assert root[semconv.MEMORY_START] < root[semconv.MEMORY_END] <= root[semconv.MEMORY_PEAK]


def test_one_log_record_for_each_checkpoint_points_at_its_step(case: Case) -> None:
    otlp = case.run.otlp
    records = otlp.records_of(semconv.CHECKPOINT_EVENT)
    root = otlp.span("quantization")
    span_of = {span.attributes.get(semconv.STEP_INDEX): span for span in otlp.spans} | {None: root}

    expected = checkpoints_of(case.steps)
    assert [(r.body, r.attributes.get(semconv.STEP_INDEX)) for r in records] == expected
    for sequence, record in enumerate(records):
        attributes = record.attributes
        span = span_of[attributes.get(semconv.STEP_INDEX)]
        assert (record.trace_id, record.span_id) == (span.trace_id, span.span_id)
        assert attributes[semconv.CHECKPOINT_SEQUENCE] == sequence
        assert attributes[semconv.CHECKPOINT_NAME] == record.body
        # Durations of spans are from the monotonic clock, which differs a little from the wall clock.
        assert span.start_ns - 1e6 <= record.time_ns <= span.end_ns + 1e6
        assert (record.severity, record.severity_number) == ("INFO", 9)
        own = {
            semconv.RUN_ID, semconv.RUN_NAME, "process.pid", semconv.CHECKPOINT_NAME, semconv.CHECKPOINT_PHASE,
            semconv.CHECKPOINT_SEQUENCE, semconv.CHECKPOINT_ELAPSED, semconv.CHECKPOINT_MEMORY,
            named("quant.checkpoint.process_memory"), semconv.CHECKPOINT_MEMORY_LIMIT,
            named("quant.checkpoint.disk_read"), named("quant.checkpoint.disk_write"),
        }  # fmt: skip
        if span is not root:
            own |= {
                semconv.STEP_NAME, semconv.STEP_KIND, semconv.STEP_INDEX, semconv.LIBRARY_NAME,
            }  # fmt: skip
        assert attributes.keys() == own
    # They are sent while the program runs, not with its last spans.
    assert records[1].arrived < root.end_ns


def test_the_metrics_are_the_declared_ones(case: Case) -> None:
    otlp = case.run.otlp
    names = {
        semconv.STEP_DURATION, semconv.STEP_MEMORY_PEAK, semconv.STEP_MEMORY_GROWTH,
        semconv.STEP_DISK_IO, semconv.STEP_CPU_TIME, semconv.STEP_ACTIVE,
        semconv.RUN_START, semconv.RUN_LAST_SEEN, semconv.RUN_END, semconv.RUN_MEMORY_PEAK,
        semconv.RUN_MEMORY_USAGE, semconv.RUN_MEMORY_LIMIT, semconv.RUN_DISK_IO,
        semconv.CALIBRATION_SAMPLES,
    }  # fmt: skip
    if GROWN in otlp.span("quantization").attributes:
        names.add(named("quant.step.cache.disk.peak"))
    if any(map(audit_of, otlp.spans)):
        names |= {semconv.MODEL_SIZE, semconv.MODEL_AUDIT_PROBLEMS}
    if any(name == "model cost" for name, *_ in case.steps):
        names |= {
            semconv.MODEL_SIZE,
            semconv.MODEL_PARAMS,
            semconv.MODEL_MACS_CONTRACTION,
            semconv.MODEL_AUDIT_PROBLEMS,
        }
    # Torch's last calibration consumes no samples: how far an earlier one was may have been sent.
    at_times = {
        semconv.CALIBRATION_PROGRESS, named("quant.run.cache.disk.usage"),
        semconv.STEP_LAYER_PROGRESS, semconv.STEP_LAYERS,
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
        ("checkpoint", record.attributes) for record in otlp.records_of(semconv.CHECKPOINT_EVENT)
    ]
    seen += [("run", record.attributes) for record in otlp.records_of(semconv.RUN_STARTED_EVENT)]
    seen += [("metric", point.attributes) for point in otlp.points]

    undeclared = {
        (place, key)
        for place, attributes in seen
        for key, value in attributes.items()
        if not any(_declares(attribute, key, value) for attribute in catalog.attributes_on(place))
    }
    assert undeclared == set()


TYPES = {
    "string": str,
    "int": int,
    "double": float,
    "boolean": bool,
    "string[]": tuple,
    "int[]": tuple,
}


def _declares(attribute: semconv.Attribute, key: str, value: object) -> bool:
    pattern = re.sub("<[^>]+>", ".+", re.escape(attribute.name).replace("\\<", "<"))
    return re.fullmatch(pattern, key) is not None and type(value) is TYPES[attribute.type]
