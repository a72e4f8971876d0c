"""With ``OTEL_QUANT_PATHS=false`` no path leaves the process, wherever it comes from.

One element is in every path of the program: its own folder, the working directory (a link), the
models, the cache of the library, the local file, and the messages of exceptions of libraries.
"""

from __future__ import annotations

import pytest

from tests.fixtures.otlp_receiver import OtlpReceiver
from tests.fixtures.programs import WITHOUT_TORCHAO, Workshop, reader

ELEMENT = "unspoken"

SOURCE = """
import os
from pathlib import Path
import onnx
import onnxruntime
from quark.onnx import quantize_static
import otel_quant
from otel_quant.quark import CheckpointMetric, GlobalProfiler

HERE = Path(__file__).parent
MODEL = onnx.parser.parse_model('''
    <ir_version: 8, opset_import: ["" : 17]>
    agraph (float[1, 3, 16, 16] x) => (float[1, 8, 16, 16] y) { y = Conv (x, weight) }
''')
MODEL.graph.initializer.append(
    onnx.numpy_helper.from_array(numpy.ones((8, 3, 3, 3), numpy.float32), "weight")
)

class Failing(CheckpointMetric):
    name = "failing"
    def collect(self, context):
        return os.stat(HERE / "no metric")
    def get_definition(self):
        return "Fails with a path."

@otel_quant.step("function")
def function():
    try:
        onnx.load(HERE / "missing.onnx")
    except FileNotFoundError as error:
        raise RuntimeError(f"no model in {HERE}") from error

class MissingFolderError(Exception):
    pass

GlobalProfiler().checkpoint_metrics.append(Failing())
Path("float.onnx").write_bytes(MODEL.SerializeToString())
quantize_static(str(HERE / "float.onnx"), os.path.join(os.getcwd(), "int8.onnx"), Reader())
for model in ("truncated.onnx", "missing.onnx"):
    Path("truncated.onnx").write_bytes(MODEL.SerializeToString()[:-100])
    try:
        quantize_static(str(HERE / model), "never.onnx", Reader())
    except Exception:
        pass
for fails in (
    function,
    otel_quant.step("onnx")(lambda: onnx.load(HERE / "missing.onnx")),
    otel_quant.step("onnxruntime")(lambda: onnxruntime.InferenceSession(HERE / "missing.onnx")),
):
    try:
        fails()
    except Exception:
        pass
raise MissingFolderError(HERE)
"""


def sent_by(
    workshop: Workshop, otlp: OtlpReceiver, source: str = SOURCE, **variables: str
) -> dict[str, str]:
    """Runs a program; returns all that it sent and wrote, as text."""
    folder = workshop.folder / ELEMENT
    (folder / "cache").mkdir(parents=True)
    link = workshop.folder / f"link to {ELEMENT}"
    link.symlink_to(folder)
    finished = (
        Workshop(link)
        .script(WITHOUT_TORCHAO + reader(1, 3, 16, 16) + source)
        .run(
            {
                **otlp.environment("http/protobuf"),
                "OTEL_QUANT_PROFILE": str(folder / "profile.yaml"),
                "OTEL_SERVICE_NAME": "",
                "OTEL_PYTHON_LOGGING_AUTO_INSTRUMENTATION_ENABLED": "true",
                "TMPDIR": str(folder / "cache"),
                **variables,
            }
        )
    )
    assert finished.returncode == 1
    assert finished.stderr.splitlines()[-1].startswith("MissingFolderError: ")
    ours = [record for record in otlp.records if record.scope == "otel_quant"]
    return {
        "spans": repr(otlp.spans),
        "log records": repr(ours),
        "metrics": repr(otlp.points),
        "local file": (folder / "profile.yaml").read_text(),
    }


@pytest.mark.quark
def test_signals_and_files_contain_no_path_if_paths_are_off(
    workshop: Workshop, otlp: OtlpReceiver
) -> None:
    sent = sent_by(workshop, otlp, OTEL_QUANT_PATHS="false")
    assert [where for where, text in sent.items() if ELEMENT in text] == []
    assert "site-packages" not in sent["spans"]

    assert otlp.span("quantization").attributes["error.type"] == "__main__.MissingFolderError"
    failed = otlp.span("function")
    assert failed.attributes["error.type"] == "RuntimeError"
    assert (failed.status, failed.status_message) == ("ERROR", "")
    assert [(event.name, event.attributes) for event in failed.events] == [
        ("exception", {"exception.type": "RuntimeError"})
    ]
    [lost] = [record.body for record in otlp.records if "metric failing" in str(record.body)]
    assert lost == (
        "metric failing failed and is skipped; the program goes on without it: "
        "FileNotFoundError: No such file or directory"
    )


def test_signals_and_files_contain_paths_by_default(workshop: Workshop, otlp: OtlpReceiver) -> None:
    # Quark takes ten times as long to load.
    sent = sent_by(workshop, otlp, SOURCE.replace("quark.onnx", "onnxruntime.quantization"))
    assert [where for where, text in sent.items() if ELEMENT in text] == [
        "spans", "log records", "local file"
    ]  # fmt: skip
    message = otlp.span("function").status_message
    assert message.startswith("no model in ")
    assert message.endswith(ELEMENT)
