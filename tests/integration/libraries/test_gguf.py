"""The writer of GGUF files reports an export, with the types of the matrices that it writes."""

from __future__ import annotations

import pytest

from otel_quant.schema import semconv
from tests.fixtures.otlp_receiver import OtlpReceiver
from tests.fixtures.steps import steps_below, steps_by
from tests.integration.libraries.conftest import Program, each

pytest.importorskip("gguf")


def test_an_export_has_the_types_of_what_it_writes(program: Program, otlp: OtlpReceiver) -> None:
    written = program("gguf_all.py").split()

    [root] = otlp.spans_named("quantization")
    named = ("Export GGUF", "gguf.gguf_writer.GGUFWriter.write_tensors_to_file")
    layers = {semconv.LAYER_COUNT: 3, semconv.LAYER_TOTAL: 3}
    known = {semconv.WEIGHT_TYPE: ", ".join(written), semconv.OUTPUT_PATH: "out.gguf", **layers}
    assert steps_below(otlp, root) == [("written", {}, [steps_by("gguf")(named, known)])]
    program.count_compared(1)
    assert program.progress() == each("Export GGUF", "layer", 3)
