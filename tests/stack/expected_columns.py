"""The columns of every table of the dashboards after the runs of `test_queries`, with their units."""

from __future__ import annotations

RUN = "the run"
BASELINE = "the baseline"

UNORDERED = (
    ("Quantization compared", "Peak memory by model and method"),
    ("Model cost", "Size"),
    ("Model cost", "Parameters"),
    ("Model cost", "MACs"),
)

_COSTED_MODELS = [
    ("Costed", "short"),
    ("Run", "short"),
    ("Model", "short"),
    ("File", "bytes"),
    ("Parameters", "short"),
    ("Weights", "bytes"),
    ("MACs", "short"),
    ("Contraction MACs", "short"),
    ("Weights and outputs", "bytes"),
    ("Peak activations", "bytes"),
    ("Nodes", "short"),
    ("Q/DQ nodes", "short"),
    ("Integer MACs", "percentunit"),
    ("Heaviest node", "short"),
    ("Not costed", "short"),
    ("Shapes of inputs", "short"),
    ("Assumed lengths", "short"),
]

COLUMNS = {
    ("Quantization compared", "Runs side by side"): [
        ("Began", "dateTimeAsIso"),
        ("Run", "short"),
        ("Model", "short"),
        ("Method", "short"),
        ("Configuration", "short"),
        ("Duration", "ns"),
        ("Peak memory", "bytes"),
        ("Share of limit", "percentunit"),
        ("Disk", "bytes"),
    ],
    ("Quantization compared", "Duration against the baseline"): [("Step", "short"), (RUN, "short")],
    ("Quantization compared", "Peak memory against the baseline"): [
        ("Step", "short"),
        (RUN, "short"),
    ],
    ("Quantization compared", "Duration by step"): [("Step", "s"), (RUN, "s"), (BASELINE, "s")],
    ("Quantization compared", "Peak memory by step"): [
        ("Step", "bytes"),
        (RUN, "bytes"),
        (BASELINE, "bytes"),
    ],
    ("Quantization compared", "Peak memory by model and method"): [
        ("Model", "bytes"),
        ("MinMSE", "bytes"),
        ("Percentile", "bytes"),
    ],
    ("Model cost", "Size"): [("Run", "bytes"), ("float", "bytes"), ("quantized", "bytes")],
    ("Model cost", "Parameters"): [("Run", "short"), ("float", "short"), ("quantized", "short")],
    ("Model cost", "MACs"): [("Run", "short"), ("float", "short"), ("quantized", "short")],
    ("Model cost", "Float models"): _COSTED_MODELS,
    ("Model cost", "Quantized models"): _COSTED_MODELS,
    ("Model cost", "Precision of the float models"): [
        ("Run", "percentunit"),
        ("Model", "percentunit"),
        ("float32", "percentunit"),
        ("int8", "percentunit"),
    ],
    ("Model cost", "Precision of the quantized models"): [
        ("Run", "percentunit"),
        ("Model", "percentunit"),
        ("int8", "percentunit"),
    ],
    ("Model cost", "Heaviest nodes"): [
        ("Run", "short"),
        ("Model", "short"),
        ("Node", "short"),
        ("MACs", "short"),
    ],
    ("Quantization run", "Steps"): [
        ("Step", "none"),
        ("Name", "short"),
        ("Duration", "ns"),
        ("Growth", "bytes"),
        ("Peak", "bytes"),
        ("Peak from", "short"),
        ("Read", "bytes"),
        ("Written", "bytes"),
        ("CPU user", "s"),
        ("CPU system", "s"),
        ("Major faults", "short"),
        ("Batches", "short"),
    ],
    ("Quantization runs", "Alerts that fire"): [
        ("Since", "dateTimeAsIso"),
        ("Severity", "none"),
        ("Alert", "none"),
        ("Job", "none"),
        ("Run", "none"),
        ("Step", "none"),
    ],
    ("Quantization runs", "Runs"): [
        ("Began", "dateTimeAsIso"),
        ("Run", "short"),
        ("State", "none"),
        ("Job", "short"),
        ("Model", "short"),
        ("Method", "short"),
        ("Configuration", "short"),
        ("Duration", "ns"),
        ("Peak memory", "bytes"),
        ("Share of limit", "percentunit"),
        ("GPU peak", "bytes"),
        ("Disk", "bytes"),
        ("Failed steps", "none"),
    ],
}
