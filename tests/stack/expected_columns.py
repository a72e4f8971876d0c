"""The columns of every table of the dashboards after the runs of `test_queries`, with their units."""

from __future__ import annotations

RUN = "the run"
BASELINE = "the baseline"

UNORDERED = (
    ("Quantization compared", "Peak memory by model and method"),
    ("Model cost", "Size"),
    ("Model cost", "Parameters"),
    ("Model cost", "MACs"),
    ("Inference", "Latency"),
    ("Inference", "Peak memory"),
    ("Inference", "Time in conversions"),
    ("Inference", "Share of time by operator"),
)
"""Their columns but for the first are values of a label, in the store's order."""

_COSTED_MODELS = (
    "Costed, Run, Model, File and external data [bytes], Parameters [short], MACs [short], MACs of "
    "contractions [short], Weights [bytes], Memory [bytes], Peak of activations [bytes], Nodes "
    "[short], (De)QuantizeLinear nodes [short], Node with the most memory, Contractions that ask for "
    "integers [percentunit], Contractions expected to run in integers [percentunit], Expected of, "
    "Contractions expected in float, Contractions left in float, Problems that an audit found [short], Shapes of inputs, Assumed, Nodes without known MACs"
)

COLUMNS = {
    ("Quantization compared", "Runs side by side"): (
        "Began [dateTimeAsIso], Run, Model, Method, Configuration, Duration [ns], Peak memory "
        "[bytes], Share of limit [percentunit], Disk [bytes]"
    ),
    ("Quantization compared", "Duration against the baseline"): "Step, the run [short]",
    ("Quantization compared", "Peak memory against the baseline"): "Step, the run [short]",
    ("Quantization compared", "Duration by step"): "Step, the run [s], the baseline [s]",
    ("Quantization compared", "Peak memory by step"): "Step, the run [bytes], the baseline [bytes]",
    ("Quantization compared", "Peak memory by model and method"): ("Model, MinMSE [bytes], Percentile [bytes]"
    ),
    ("Model cost", "Size"): "Run, float [bytes], quantized [bytes]",
    ("Model cost", "Parameters"): "Run, float [short], quantized [short]",
    ("Model cost", "MACs"): "Run, float [short], quantized [short]",
    ("Model cost", "Float models"): _COSTED_MODELS,
    ("Model cost", "Quantized models"): _COSTED_MODELS,
    ("Model cost", "Precision of the float models"): ("Run, Model, float32 [percentunit], int8 [percentunit]"
    ),
    ("Model cost", "Precision of the quantized models"): "Run, Model, int8 [percentunit]",
    ("Model cost", "Expected precision of the quantized models"): ("Run, Model, float32 [percentunit], int8 [percentunit]"
    ),
    ("Model cost", "Heaviest nodes"): "Run, Model, Node, MACs [short]",
    ("Inference", "Latency"): "Run, float [s], quantized [s]",
    ("Inference", "Peak memory"): "Run, float [bytes], quantized [bytes]",
    ("Inference", "Time in conversions"): "Run, float [percentunit], quantized [percentunit]",
    ("Inference", "Models side by side"): (
        "Began [dateTimeAsIso], Run, Model, Role, Provider, Median [s], p10 [s], p90 [s], Speed-up "
        "[short], Peak memory [bytes], SQNR [dB], Findings [none], Conversions [percentunit]"
    ),
    ("Inference", "Share of time by operator"): ("Operator, exp [percentunit], float [percentunit], int8 [percentunit]"
    ),
    ("Inference", "Slowest kernels"): ("Model, Node, Operator, Time [s], Share [percentunit], MACs per second [short], Types, " "Provider"
    ),
    ("Inference", "Findings"): ("Run, Model, Kind, Finding, Share of time [percentunit]"),
    ("Inference", "Measured models"): (
        "Began [dateTimeAsIso], Run, Model, File, Runtime, Version, Runs [short], Weights [bytes], Time in kernels "
        "[s], Not measured"
    ),
    ("Quantization run", "Steps"): (
        "Step [none], Name, Duration [ns], Growth [bytes], Peak [bytes], Peak from, Read [bytes], "
        "Written [bytes], CPU user [s], CPU system [s], Major faults [short], Batches [short], "
        "Samples/s [short], Caches [bytes]"
    ),
    ("Quantization runs", "Alerts that fire"): ("Since [dateTimeAsIso], Severity, Alert, Job, Run"),
    ("Quantization runs", "Runs"): (
        "Began [dateTimeAsIso], Run, State [none], Job, Model, Method, Configuration, Duration "
        "[ns], Peak memory [bytes], Share of limit [percentunit], GPU peak [bytes], Disk [bytes], "
        "Failed steps [none]"
    ),
    ("Quantization runs", "Runs without an end"): "Run, Peak memory [bytes]",
}  # fmt: skip
"""The columns in their order, with Grafana's name of the unit where it is not text."""
