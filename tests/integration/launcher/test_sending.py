"""`otel-quant send`: what arrives is what the program would have sent itself."""

from __future__ import annotations

import os
import re
import signal
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import fields, replace
from pathlib import Path
from typing import Any, Final

import pytest

from otel_quant.recordings import summary
from otel_quant.recordings.reader import read
from otel_quant.schema import semconv
from tests.fixtures.figures import BEGINNINGS
from tests.fixtures.otlp_messages import Point, Record, Span
from tests.fixtures.otlp_receiver import Mode, OtlpReceiver
from tests.fixtures.programs import FLOAT_MODEL, Finished, Launched, reader
from tests.fixtures.recorded import RecordedFolder

KILLED_AT_THE_LAST: Final = "if self.given == last: os.kill(os.getpid(), signal.SIGKILL)"
QUANTIZATION: Final = f"""{FLOAT_MODEL}{reader(1, 8, samples="5", before_each=KILLED_AT_THE_LAST)}
from onnxruntime.quantization import CalibrationMethod, qdq_loss_debug, quantize_static
import otel_quant

last = int(sys.argv[1])

with otel_quant.step("Model Quantization"):
    for step in "Dataset Loading", "Dataset Loading":
        with otel_quant.step(step):
            pass
    quantize_static("float.onnx", "int8.onnx", Reader(), calibrate_method=CalibrationMethod.MinMax)
    weights = {{name: {{"float": np.ones(4), "dequantized": np.full(4, 0.9)}} for name in "vw"}}
    qdq_loss_debug.compute_weight_error(weights)
    try:
        with otel_quant.step("one of mine"):
            raise ValueError("on two\\nlines")
    except ValueError:
        pass
"""

WORKERS: Final = """
import multiprocessing, os
import otel_quant

def work(number):
    with otel_quant.step("Calibration"):
        pass

if __name__ == "__main__":
    if "RANK" in os.environ:
        work(0)
    else:
        with otel_quant.step("Dataset Loading"):
            with multiprocessing.get_context("fork").Pool(1) as pool:
                pool.map(work, range(2), chunksize=1)
                pool.close()
                pool.join()
"""

LIVE: Final = {
    semconv.CALIBRATION_PROGRESS, semconv.STEP_ACTIVE, semconv.RUN_DISK_IO,
    semconv.RUN_MEMORY_LIMIT, semconv.RUN_MEMORY_USAGE,
}  # fmt: skip
"""Metrics that are observed while a run goes on."""

MEASURED: Final = (
    *BEGINNINGS, "quant.checkpoint.",
    semconv.CALIBRATION_SAMPLE_RATE, semconv.RUN_ID, "process.pid",
    semconv.LIBRARIES,  # the SDK is one of them,
    semconv.RUN_ANSWER,
)  # fmt: skip
"""Beginnings of the names whose values differ between two runs."""


@pytest.fixture
def quantization(launched: Launched) -> list[str]:
    (launched.folder / "quantize.py").write_text(QUANTIZATION)
    return ["python", "quantize.py", "-1"]


def send(
    launched: Launched, variables: Mapping[str, str], *options: str, folder: Path | None = None
) -> Finished:
    recording = os.path.relpath(folder or launched.recording, launched.folder)
    return launched.otel_quant("send", *options, recording, variables=variables)


def received(otlp: OtlpReceiver) -> tuple[list[Span], list[Record], list[Point]]:
    """Returns what has arrived, and forgets it."""
    found = list(otlp.spans), list(otlp.records), list(otlp.points)
    otlp.clear()
    return found


def without_stack_trace(span: Span) -> Span:
    """Returns a span with only the message of an exception, on one line."""
    kept = ("exception.type", "exception.message", "message")
    events = tuple(
        replace(
            event,
            attributes={
                name: " ".join(str(value).split())
                for name, value in event.attributes.items()
                if name in kept
            },
        )
        for event in span.events
    )
    return replace(span, events=events, status_message=" ".join(span.status_message.split()))


PEAKS: Final = {
    semconv.MEMORY_HIGHEST_KNOWN, semconv.MEMORY_PEAK_RATIO, semconv.STEP_MEMORY_PEAK,
    semconv.RUN_MEMORY_PEAK,
}  # fmt: skip
"""Of what is sent later the launcher has seen more than the program."""
BY_CHANCE: Final = (semconv.MEMORY_PEAK_LINE,)
"""Whether it is there depends on when the sampler looked."""


def differences(some: Any, other: Any, but: Iterable[str]) -> dict[str, Any]:
    def known(item: Any, name: str) -> Any:
        value = getattr(item, name)
        if name == "attributes":
            return {key: each for key, each in value.items() if key not in PEAKS}
        return value

    return {
        field.name: (known(some, field.name), known(other, field.name))
        for field in fields(some)
        if field.name not in {"arrived", *but} and known(some, field.name) != known(other, field.name)
    }  # fmt: skip


def at_end(points: Iterable[Point]) -> dict[tuple[str, frozenset[tuple[str, Any]]], Point]:
    """Returns the last point of every series."""
    in_order = sorted(points, key=lambda point: point.time_ns)
    return {(point.metric, frozenset(point.attributes.items())): point for point in in_order}


def exemplars(points: Iterable[Point]) -> set[tuple[str, float, str, str]]:
    return {
        (point.metric, round(each.value, 6), each.trace_id, each.span_id)
        for point in points
        if point.metric.startswith("quant.step.") and point.metric not in PEAKS
        for each in point.exemplars
    }


def test_a_sent_run_arrives_unchanged_when_sent_again(
    launched: Launched, otlp: OtlpReceiver, quantization: list[str]
) -> None:
    environment = otlp.environment("http/protobuf")  # the other tests have gRPC
    assert launched.run(quantization, variables=environment).returncode == 0
    spans, records, points = received(otlp)
    done = send(launched, environment)
    sent = received(otlp)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == (
        f"{launched.recording.name}: {len(sent[0])} spans, {len(sent[1])} log records, "
        f"{len(sent[2])} points of metrics sent\n"
    )

    again = {span.span_id: span for span in sent[0]}
    assert sorted(again) == sorted(span.span_id for span in spans)
    assert len(spans) == 11
    for span in map(without_stack_trace, spans):
        other = again[span.span_id]
        assert differences(span, other, ()) == {}
        known = other.attributes.get(semconv.MEMORY_HIGHEST_KNOWN)
        assert known is None or known > span.attributes[semconv.MEMORY_PEAK]
    (root,) = (span for span in sent[0] if span.name == "quantization")
    own = root.attributes[semconv.MEMORY_PEAK]
    highest = summary.value(read(launched.recording), summary.MEMORY_PEAK)
    assert root.attributes.get(semconv.MEMORY_HIGHEST_KNOWN, own) == highest

    def in_order(found: Iterable[Record]) -> list[Record]:
        return sorted(found, key=lambda r: (r.event_name, r.time_ns, str(r.attributes)))

    assert len(records) == len(sent[1])
    for record, copy in zip(in_order(records), in_order(sent[1]), strict=True):
        assert differences(record, copy, ()) == {}  # else Loki would have both

    assert exemplars(points) <= exemplars(sent[2])
    wanted = {key: point for key, point in at_end(points).items() if key[0] not in LIVE}
    found = at_end(sent[2])
    assert sorted(map(str, found)) == sorted(map(str, wanted))
    for key, point in wanted.items():
        changed = ("buckets",) if key[0] in PEAKS else ()
        assert differences(point, found[key], ("time_ns", "value", "exemplars", *changed)) == {}
        if key[0] in PEAKS:
            assert found[key].value >= point.value
        else:
            assert found[key].value == pytest.approx(point.value), key


def outline(spans: Iterable[Span]) -> list[Any]:
    """Returns what two runs of one program have in common."""
    names = {span.span_id: span.name for span in spans}
    return [
        (
            span.name,
            names.get(span.parent_id),
            span.kind,
            span.status,
            span.status_message,
            span.events,
            {
                name: None if name.startswith(MEASURED) else value
                for name, value in sorted(span.attributes.items())
                if name not in PEAKS and name not in BY_CHANCE
            },
            {n: v for n, v in span.resource.items() if n not in ("telemetry.auto.version", "service.instance.id", "process.pid")},
        )
        for span in map(without_stack_trace, sorted(spans, key=lambda span: (span.start_ns, -span.end_ns)))
    ]  # fmt: skip


def test_a_run_sent_later_equals_a_run_that_sent_itself(
    launched: Launched, otlp: OtlpReceiver, quantization: list[str]
) -> None:
    variables = otlp.environment()
    del variables["OTEL_SERVICE_NAME"]  # the service has the program's name
    # The name of a run has its time, if it is not given.
    above = {"TRACEPARENT": f"00-{'5' * 32}-{'7' * 16}-01", "OTEL_QUANT_RUN_NAME": "tonight"}
    launched.run(quantization, "--out", "direct", variables={**variables, **above})
    direct, direct_records, _ = received(otlp)
    launched.run(quantization, "--out", "later", variables=above)
    assert received(otlp) == ([], [], [])
    turns = []
    for _ in range(2):
        done = send(launched, variables, folder=launched.folder / "later")
        assert (done.returncode, done.stderr) == (0, "")
        turns.append(received(otlp))
    spans, records, _ = turns[0]
    assert outline(spans) == outline(direct)
    assert spans[-1].resource["service.name"] == "quantize"
    (root,) = (span for span in spans if span.name == "quantization")
    assert (root.trace_id, root.parent_id) == ("5" * 32, "7" * 16)
    assert {span.trace_id for span in spans} == {"5" * 32}
    assert bodies(records) == bodies(direct_records)
    known = {span.span_id for span in spans}
    assert {record.span_id for record in records} <= known
    for signal_of_first, signal_of_second in zip(*turns, strict=True):
        for first, second in zip(signal_of_first, signal_of_second, strict=True):
            assert differences(first, second, ()) == {}


def bodies(records: Iterable[Record]) -> Counter[tuple[str, str]]:
    """Returns how often each text was sent; what a run came to has its figures."""
    answer = semconv.ANSWER_EVENT
    names = (
        (each.event_name, "" if each.event_name == answer else str(each.body)) for each in records
    )
    return Counter(names)


@pytest.mark.parametrize("live", ["grpc", "http/protobuf", None])
def test_a_killed_run_arrives_with_its_open_spans_ended_under_their_own_ids_and_its_ending(
    launched: Launched, otlp: OtlpReceiver, quantization: list[str], live: Any
) -> None:
    variables = otlp.environment(live or "grpc")
    del variables["OTEL_SERVICE_NAME"]  # the service has the program's name
    done = launched.run([*quantization[:-1], "3"], variables=variables if live else None)
    assert done.returncode == -signal.SIGKILL
    direct, direct_records, _ = received(otlp)
    done = send(launched, variables)
    assert (done.returncode, done.stderr) == (0, "")
    spans, records, _ = received(otlp)
    names = {span.span_id: span.name for span in spans}
    text = "the program was killed by SIGKILL, in Calibration, sample 3 of 5"
    assert sorted(
        (span.name, names.get(span.parent_id), span.status, span.status_message) for span in spans
    ) == [
        ("Calibration", "Model Quantization", "ERROR", text),
        ("Dataset Loading", "Model Quantization", "UNSET", ""),
        ("Dataset Loading", "Model Quantization", "UNSET", ""),
        ("Model Quantization", "quantization", "ERROR", text),
        ("quantization", None, "ERROR", text),
    ]
    calibration, root = (
        next(span for span in spans if span.name == name)
        for name in ("Calibration", "quantization")
    )
    recording = read(launched.recording)
    (run,), ending = recording.runs, recording.ending
    assert ending is not None
    of_calibration = next(step for step in run.steps if step.name == "Calibration")
    for span, item in ((root, run), (calibration, of_calibration)):
        if live:  # else they have their ids from `send`
            assert (span.trace_id, span.span_id) == (item.trace_id, item.span_id)
        assert abs(span.start_ns - recording.began_ns - item.start * 1e9) < 1e6
        assert abs(span.end_ns - recording.began_ns - ending.time * 1e9) < 1e6
        assert span.attributes["error.type"] == "SIGKILL"
        assert span.resource["service.name"] == "quantize"
    assert calibration.attributes[semconv.CALIBRATION_SAMPLE_COUNT] == 3
    assert calibration.attributes[semconv.CALIBRATION_SAMPLE_TOTAL] == 5
    (told,) = (record for record in records if record.event_name == semconv.ENDING_EVENT)
    assert told.attributes[semconv.ENDING_MEMORY] == ending.memory
    assert (told.span_id, told.severity) == (calibration.span_id, "ERROR")
    if live:
        # Spans that had just ended may not have been sent before the kill: now they are.
        known = {span.span_id: span for span in spans}
        assert [differences(span, known[span.span_id], ()) for span in direct] == [{}] * len(direct)
        assert {"Calibration", "Model Quantization", "quantization"} <= {s.name for s in direct}
        send(launched, variables, "--only-unended")
        spans, records, points = received(otlp)
        assert [span.name for span in spans] == [
            "Calibration",
            "Model Quantization",
            "quantization",
        ]
        (only,) = records
        (first,) = (each for each in direct_records if each.event_name == semconv.ENDING_EVENT)
        assert differences(only, first, ()) == differences(only, told, ()) == {}
        assert points == []


@pytest.mark.parametrize("has_endpoint", [True, False])
def test_workers_are_children_of_the_step_that_started_them_and_ranks_are_roots(
    launched: Launched, otlp: OtlpReceiver, has_endpoint: bool
) -> None:
    (launched.folder / "workers.py").write_text(WORKERS)
    variables = otlp.environment()
    script = (
        "for RANK in 0 1; do export RANK; python workers.py; done; unset RANK; python workers.py"
    )
    launched.run(["sh", "-c", script], variables=variables if has_endpoint else None)
    direct = received(otlp)[0]
    done = send(launched, variables)
    assert (done.returncode, done.stderr) == (0, "")
    tree = sorted(otlp.tree())
    spans = received(otlp)[0]
    rank = ("quantization", [("Calibration", [])])
    tasks: list[Any]
    if has_endpoint:  # a worker has ended its span after each task
        assert sorted(span.span_id for span in spans) == sorted(span.span_id for span in direct)
        tasks = [("quantization", [("Calibration", [])]), ("quantization", [("Calibration", [])])]
    else:
        tasks = [("quantization", [("Calibration", []), ("Calibration", [])])]
    roots = [rank, rank, ("quantization", [("Dataset Loading", tasks)])]
    assert tree == [("program", roots)]
    ranks = {span.attributes.get(semconv.RUN_RANK) for span in spans}
    assert ranks == {0, 1, None}


def test_telemetry_that_an_endpoint_rejected_is_kept_and_can_be_sent_again(
    launched: Launched, otlp: OtlpReceiver, quantization: list[str]
) -> None:
    launched.run(quantization)
    before = {path: path.read_bytes() for path in launched.recording.iterdir()}
    otlp.become(Mode.ERROR)
    done = send(launched, otlp.environment("http/protobuf"))  # whose exporter names no address
    assert (done.returncode, done.stdout) == (1, "")
    (line,) = done.stderr.splitlines()
    problem = f"the endpoint did not take it: {otlp.http_endpoint}/v1/traces: "
    assert line.startswith(f"otel-quant: {launched.recording.name}: {problem}")
    assert line.endswith(
        "; before that 0 spans, 0 log records, 0 points of metrics were sent; the recording is as "
        "it was and can be sent again"
    )
    variables = {**otlp.environment(), "OTEL_EXPORTER_OTLP_TIMEOUT": "1"}
    otlp.stop()
    done = send(launched, variables)
    assert (done.returncode, done.stdout, len(done.stderr.splitlines())) == (1, "", 1)
    assert {path: path.read_bytes() for path in launched.recording.iterdir()} == before
    otlp.become(Mode.ACCEPT)
    configuration = launched.folder / "telemetry.yaml"
    configuration.write_text(
        'file_format: "1.0"\n'
        "tracer_provider:\n  processors:\n    - batch:\n        exporter:\n          otlp_grpc:\n"
        f"            endpoint: {otlp.grpc_endpoint}\n"
    )
    done = send(launched, {"OTEL_CONFIG_FILE": str(configuration)})
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.endswith(": 11 spans, 0 log records, 0 points of metrics sent\n")
    assert len(otlp.spans) == 11


@pytest.mark.parametrize("has_endpoint", [True, False])
def test_the_processes_of_a_pipeline_are_one_trace_below_a_root_span(
    launched: Launched, otlp: OtlpReceiver, has_endpoint: bool
) -> None:
    variables = otlp.environment()
    (launched.folder / "stage.py").write_text(
        "import sys, otel_quant\nwith otel_quant.step(sys.argv[1]):\n    assert sys.argv[1] != 'Export'\n"
    )
    (launched.folder / "all.sh").write_text(
        "python stage.py 'Dataset Loading'\npython stage.py Calibration\npython stage.py Export\n"
    )
    ours = launched.run(["sh", "all.sh"], variables=variables if has_endpoint else None)
    assert ours.returncode == 1
    if not has_endpoint:
        assert send(launched, variables).returncode == 0
    below = [
        ("quantization", [(step, [])]) for step in ("Dataset Loading", "Calibration", "Export")
    ]
    assert otlp.tree() == [("program", below)]
    root = otlp.span("program")
    assert {span.trace_id for span in otlp.spans} == {root.trace_id}
    assert (root.status, root.status_message) == ("ERROR", "exit code 1")
    assert root.attributes == {
        "process.command_line": "sh all.sh", "process.exit.code": 1, "error.type": "exit code 1",
    }  # fmt: skip
    ids = {span.span_id for span in otlp.spans}
    _, records, _ = received(otlp)
    assert {record.trace_id for record in records} == {root.trace_id}
    done = send(launched, variables)
    assert (done.returncode, done.stderr) == (0, "")
    assert otlp.tree() == [("program", below)]
    assert {span.span_id for span in otlp.spans} == ids


@pytest.mark.parametrize("signals", ["all", "spans"])
def test_send_names_before_what_stores_will_refuse_for_its_age(
    launched: Launched, otlp: OtlpReceiver, signals: str
) -> None:
    folder = RecordedFolder(launched.folder / "old")  # of 2023
    process = folder.process()
    process.begin().end(2.0)
    process.gone()
    none = {"OTEL_METRICS_EXPORTER": "none", "OTEL_LOGS_EXPORTER": "none"}
    variables = {**otlp.environment(), **(none if signals == "spans" else {})}
    done = send(launched, variables, folder=folder.path)
    assert done.returncode == 0
    warned = re.fullmatch(
        r"otel-quant: old: began \d{4} days ago: Prometheus and Loki, as collector/backends sets them up, refuse "
        r"metrics and log records that are older than 30 days\. Only the alert StackDataLost tells of it\n|",
        done.stderr,
    )
    assert warned
    assert bool(warned[0]) == (signals == "all")
