"""Sends an artificial run to a Collector through the real SDK, with the names of `semconv`.

For what a test machine cannot do: a run on a GPU, with more memory than it may have. Every attribute
that the contract puts on a span or a record is sent, with its example as its value, so that a query
for any of them finds something.

Argument: the run of an inference, to which it gives the speed-up that only some inferences have.
"""

from __future__ import annotations

import itertools
import sys
import time
from collections.abc import Iterable
from typing import Any

from opentelemetry._logs import LogRecord, SeverityNumber
from opentelemetry.exporter.otlp.proto.grpc._log_exporter import OTLPLogExporter
from opentelemetry.exporter.otlp.proto.grpc.metric_exporter import OTLPMetricExporter
from opentelemetry.exporter.otlp.proto.grpc.trace_exporter import OTLPSpanExporter
from opentelemetry.metrics import CallbackOptions, Observation
from opentelemetry.sdk._logs import LoggerProvider
from opentelemetry.sdk._logs.export import SimpleLogRecordProcessor
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import PeriodicExportingMetricReader
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor

from otel_quant.diagnosis.stack_trees import top_lines
from otel_quant.export.otel.service_name import model_name
from otel_quant.schema import catalog, figures, semconv
from otel_quant.schema.code_lines import Amounts, Place

STEPS = ("Model Caching", "Pre-process", "Calibration", "Quantization (Static)", "Post-process")
GIB = 1 << 30
NAME = "artificial resnet50 2026-11-22T09:30:00.123Z"
MODEL, METHOD = "models/resnet50.onnx", "Percentile"
SECONDS_OF_A_STEP = 0.4
LIMIT = GIB
"""Of its memory, which has this at its start."""
READ_BETWEEN = 37 * GIB
"""Memory in use between two checkpoints of a calibration, more than at any of them."""
LIBRARY = {semconv.LIBRARY_NAME: "amd-quark"}
GPU = {semconv.HW_ID: "GPU-8f6d7a52"}
GPU_METRICS = [
    m.name
    for m in catalog.METRICS
    if m.name.startswith(("hw.", "quant.run.gpu.", "quant.forecast.gpu."))
]
PARSE = {"int": int, "double": float, "boolean": lambda text: text == "true", "string": str}
VARIABLE_PARTS = {"<name>": "accuracy", "<type>": "int8"}


LINES = {
    Place("calibrate.py", "merge", 983, "onnxruntime"): Amounts(3_000_000_000, grown=30_000_000),
    Place("quantize.py", "load", 30, ""): Amounts(1_000_000_000, grown=90_000_000),
}


def examples(place: semconv.Place, role: str = "quantized") -> dict[str, object]:
    """Returns every attribute of a place with its example as its value."""
    found: dict[str, object] = {}
    for attribute in catalog.attributes_on(place):
        name = attribute.name.replace("<role>", role)
        for part, value in VARIABLE_PARTS.items():
            name = name.replace(part, value)
        if name == semconv.ERROR_TYPE:
            continue
        if attribute.type.endswith("[]"):
            found[name] = [attribute.example]
        else:
            found[name] = PARSE[attribute.type](attribute.example)
    return found


class ArtificialRun:
    """One run and the providers that send it."""

    def __init__(self) -> None:
        self.active = dict.fromkeys(STEPS, -1)
        self.memory = GIB
        self.samples = 0
        self.began = time.time()
        self.ended: list[float] = []
        self.name = {semconv.RUN_NAME: NAME}
        self.start = {
            **self.name, semconv.INPUT_NAME: model_name(MODEL), semconv.CALIBRATION_METHOD: METHOD,
            semconv.CONFIG_NAME: "XINT8",
        }  # fmt: skip
        resource = Resource.create()
        self.spans = TracerProvider(resource=resource)
        self.spans.add_span_processor(
            BatchSpanProcessor(OTLPSpanExporter(), schedule_delay_millis=200)
        )
        self.logs = LoggerProvider(resource=resource)
        self.logs.add_log_record_processor(SimpleLogRecordProcessor(OTLPLogExporter()))
        reader = PeriodicExportingMetricReader(OTLPMetricExporter(), export_interval_millis=500)
        self.metrics = MeterProvider([reader], resource=resource)
        self.tracer = self.spans.get_tracer(semconv.SCOPE)
        self.logger = self.logs.get_logger(semconv.SCOPE)
        self.sequence = itertools.count()
        self.instruments = self.make_instruments()

    def make_instruments(self) -> dict[str, object]:
        meter = self.metrics.get_meter(semconv.SCOPE)
        observed = {
            semconv.STEP_ACTIVE: self.observe_steps,
            semconv.RUN_START: lambda _: [Observation(self.began, self.start)],
            semconv.RUN_LAST_SEEN: self.observe_last_seen,
            semconv.RUN_END: lambda _: [Observation(end, self.name) for end in self.ended],
            semconv.RUN_MEMORY_PEAK: lambda _: [Observation(self.memory, self.name)],
            semconv.RUN_MEMORY_USAGE: lambda _: [Observation(self.memory)],
            semconv.RUN_MEMORY_LIMIT: lambda _: [Observation(LIMIT)],
            semconv.RUN_DISK_IO: lambda _: [
                Observation(self.memory // 8, {semconv.DISK_IO_DIRECTION: "read"}),
                Observation(self.memory // 16, {semconv.DISK_IO_DIRECTION: "write"}),
            ],
            figures.CACHE_GROWTH.live_metric: lambda _: [Observation(self.memory // 4)],
            **dict.fromkeys(GPU_METRICS, self.observe_gpu),
            semconv.CALIBRATION_PROGRESS: self.observe_progress,
            semconv.STEP_LAYER_PROGRESS: self.observe_progress,
            semconv.STEP_PASS_PROGRESS: self.observe_progress,
            **dict.fromkeys(
                (semconv.FORECAST_TIME_LEFT, semconv.FORECAST_MEMORY, semconv.FORECAST_STALLED),
                self.observe_forecast,
            ),
        }
        made = {}
        for metric in catalog.METRICS:
            name = metric.name.replace("<name>", "accuracy")
            if metric.instrument.startswith("observable"):
                create = getattr(meter, f"create_{metric.instrument}")
                create(name, callbacks=[observed[name]], unit=metric.unit)
            elif metric.instrument == "histogram":
                made[name] = meter.create_histogram(
                    name, unit=metric.unit, explicit_bucket_boundaries_advisory=metric.buckets
                )
            else:
                made[name] = getattr(meter, f"create_{metric.instrument}")(name, unit=metric.unit)
        return made

    def observe_last_seen(self, _: CallbackOptions) -> Iterable[Observation]:
        yield Observation(self.ended[-1] if self.ended else time.time(), self.name)

    def observe_steps(self, _: CallbackOptions) -> Iterable[Observation]:
        for step, open_now in self.active.items():
            if open_now >= 0:
                yield Observation(open_now, labels_of(step))

    def observe_progress(self, _: CallbackOptions) -> Iterable[Observation]:
        if self.samples:
            share = min(self.samples / 1000, 1.0)
            yield Observation(share, labels_of("Calibration"))

    def observe_forecast(self, _: CallbackOptions) -> Iterable[Observation]:
        if self.samples:
            yield Observation(self.memory * 2, labels_of("Calibration"))

    def observe_gpu(self, _: CallbackOptions) -> Iterable[Observation]:
        yield Observation(self.memory // 2, GPU)

    def attributes(self, place: semconv.Place, **more: object) -> dict[str, object]:
        """Returns the attributes of a place, of this run; `more` has names in `semconv`."""
        own = {getattr(semconv, name): value for name, value in more.items()}
        return examples(place) | self.name | own

    def log(
        self,
        event: str,
        body: str | dict[str, Any],
        attributes: dict[str, object],
        severity: SeverityNumber = SeverityNumber.INFO,
    ) -> None:
        self.logger.emit(
            LogRecord(
                timestamp=time.time_ns(), severity_number=severity, severity_text=severity.name,
                body=body, attributes=attributes, event_name=event,
            )
        )  # fmt: skip

    def checkpoint(self, name: str, phase: str, step: str | None) -> None:
        attributes = self.attributes(
            "checkpoint", CHECKPOINT_NAME=name, CHECKPOINT_PHASE=phase,
            CHECKPOINT_SEQUENCE=next(self.sequence), CHECKPOINT_MEMORY=self.memory,
        )  # fmt: skip
        if step is not None:
            attributes |= {semconv.STEP_NAME: step, semconv.STEP_KIND: step}
        self.log(semconv.CHECKPOINT_EVENT, name, attributes)

    def step(self, index: int, name: str) -> None:
        attributes = self.attributes(
            "step", STEP_NAME=name, STEP_KIND=name, STEP_INDEX=index, INPUT_PATH=MODEL,
            CALIBRATION_METHOD=METHOD,
        )  # fmt: skip
        began = time.monotonic()
        with self.tracer.start_as_current_span(name, attributes=attributes):
            self.active[name] = 1
            self.checkpoint(f"{name} Start", "start", name)
            labels = labels_of(name)
            while time.monotonic() - began < SECONDS_OF_A_STEP:
                self.memory += GIB // 64
                if name == "Calibration":
                    self.samples += 1
                    self.instruments[semconv.CALIBRATION_SAMPLES].add(1, labels)
                    self.instruments[semconv.STEP_LAYERS].add(1, labels)
                    self.instruments[semconv.STEP_PASSES].add(1, labels)
                time.sleep(0.05)
            if name == "Calibration":
                reading = self.attributes("reading", STEP_NAME=name)
                reading[f"{semconv.READING_PREFIX}memory"] = READ_BETWEEN
                self.log(semconv.READING_EVENT, name, reading)
                warning = self.attributes("forecast", STEP_NAME=name)
                lines = self.attributes("lines", STEP_NAME=name)
                self.log(semconv.LINES_EVENT, top_lines(LINES), lines)
                grows = f"{name}: memory grows"
                self.log(semconv.FORECAST_EVENT, grows, warning, SeverityNumber.WARN)
            self.active[name] = 0
            self.record(time.monotonic() - began, labels)
            self.checkpoint(f"{name} End", "end", name)

    def record(self, seconds: float, labels: dict[str, str]) -> None:
        made = self.instruments
        made[semconv.STEP_DURATION].record(seconds, labels)
        made[semconv.STEP_MEMORY_PEAK].record(self.memory, labels)
        made[figures.CACHE_GROWTH.steps[0].metric.name].record(self.memory // 4, labels)
        made[semconv.STEP_MEMORY_GROWTH].set(self.memory // 4, labels)
        made["quant.custom.accuracy"].set(97.8, {semconv.STEP_KIND: labels[semconv.STEP_KIND]})
        made[semconv.STEP_GPU_MEMORY_PEAK].set(self.memory // 2, labels | GPU)
        made[figures.STEP_ENERGY.name].add(300 * seconds, labels | {"hw.type": "gpu"})
        for direction in ("read", "write"):
            made[semconv.STEP_DISK_IO].add(4096, labels | {semconv.DISK_IO_DIRECTION: direction})
        for mode in ("user", "system"):
            made[semconv.STEP_CPU_TIME].add(seconds / 2, labels | {semconv.CPU_MODE: mode})

    def cost(self, role: str, share: float) -> None:
        attributes = examples("cost", role) | self.name
        attributes[semconv.MODEL_ROLE] = role
        with self.tracer.start_as_current_span(semconv.COST_SPAN, attributes=attributes):
            for name, value in (
                (semconv.MODEL_SIZE, 102_400_000 * share),
                (semconv.MODEL_PARAMS, 25_557_032),
                (semconv.MODEL_MACS_CONTRACTION, 4_089_000_000),
                (semconv.MODEL_AUDIT_PROBLEMS, 2),
            ):
                self.instruments[name].set(value, {semconv.MODEL_ROLE: role})

    def send(self, measured: str) -> None:
        attributes = examples("run") | examples("run", "float")
        with self.tracer.start_as_current_span(semconv.ROOT_SPAN) as root:
            self.start[semconv.RUN_TRACE_ID] = f"{root.get_span_context().trace_id:032x}"
            self.checkpoint("Start", "point", None)
            for index, name in enumerate(STEPS):
                self.step(index, name)
            self.cost("float", 1.0)
            self.cost("quantized", 0.26)
            root.set_attributes(attributes | self.name | {
                semconv.MEMORY_PEAK: self.memory, semconv.MEMORY_LIMIT: LIMIT,
                semconv.MEMORY_PEAK_RATIO: self.memory / LIMIT, semconv.INPUT_PATH: MODEL,
                semconv.CALIBRATION_METHOD: METHOD,
            })  # fmt: skip
            self.checkpoint("End", "point", None)
        of_model = {semconv.MODEL_NAME: "int8", semconv.MODEL_ROLE: "quantized"}
        provider = {semconv.INFERENCE_PROVIDER: "CPUExecutionProvider"}
        labels = {semconv.RUN_NAME: measured, **of_model, **provider}
        self.instruments[semconv.INFERENCE_SPEEDUP].set(2.7, labels)
        self.ended.append(time.time())
        for provider in (self.spans, self.metrics, self.logs):
            provider.shutdown()


def labels_of(step: str) -> dict[str, str]:
    """Returns the attributes of the points of a step's metrics."""
    return {semconv.STEP_KIND: step, semconv.STEP_NAME: step, **LIBRARY}


if __name__ == "__main__":
    ArtificialRun().send(sys.argv[1])
