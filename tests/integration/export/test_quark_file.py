"""The local file beside the one that AMD Quark's own profiler writes for the same script."""

from __future__ import annotations

import re
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.fixtures.programs import reader, run_script, steps_in
from tests.integration.quark.float_models import write_conv

pytestmark = pytest.mark.quark

OURS, QUARKS = "otel_quant.quark", "quark.common.profiler"

SCRIPT = """
import os
from {profiler} import (
    CheckpointMetric, GlobalProfiler, MetricContext, ProfileStep, SummaryMetric, profile_scope,
)

class Depth(CheckpointMetric):
    @property
    def name(self):
        return "depth"
    def get_definition(self):
        return "Depth of the model.\\n    - in layers"
    def collect(self, context: MetricContext):
        return None if context.step_name == "Start" else 3

class Size(SummaryMetric):
    def __init__(self, path):
        self.path = path
    @property
    def name(self):
        return "model_size_mb"
    def get_definition(self):
        return "Size of the model's file."
    def collect(self, context):
        return os.path.getsize(self.path) / 1024

profiler = GlobalProfiler(output_path="{output}")
profiler.checkpoint_metrics.append(Depth())
profiler.summary_metrics.append(Size("model"))

@profile_scope(ProfileStep.CALIBRATION)
def calibrate(samples):
    return [bytes(1 << 20) for _ in range(samples)]

@profile_scope(ProfileStep.USER_DEFINED, user_msg="Custom Validation")
def validate(*, rate=1):
    return rate

os.mkdir("cache-{output}")
profiler.start_cache_dir_monitoring("cache-{output}")
with profiler.scope(ProfileStep.MODEL_LOADING) as given:
    assert given is profiler is GlobalProfiler()
    with open("model", "wb") as file:
        file.write(bytes(8 << 20))
        os.fsync(file.fileno())
    with profiler.scope(ProfileStep.USER_DEFINED, user_msg="Custom Data Preprocessing"):
        held = bytearray(os.urandom(64 << 20))
    with open("cache-{output}/blob", "wb") as file:
        file.write(bytes(3 << 20))
profiler._checkpoint(ProfileStep.MODEL_LOADED)
assert len(calibrate(3)) == 3 and validate(rate=2) == 2
try:
    with profiler.scope(ProfileStep.EXPORT_ONNX):
        raise ValueError("no such layer")
except ValueError:
    pass
with profiler.scope("Last"):
    del held
assert profiler.enabled and profiler.start_time > 0 and profiler.base_memory > 0
assert [record["step"] for record in profiler.records][:3] == [
    "Start", "Model Loading Start", "Custom Data Preprocessing Start",
]
print(len(profiler.records), sorted(profiler.records[-1]))
"""

INSTRUMENT = "import otel_quant\notel_quant.QuantInstrumentor().instrument()\n"
OWN_STEP = "with otel_quant.step('Not a step of Quark'):\n    pass\n"

STEPS = [
    "Start",
    "Model Loading Start",
    "Custom Data Preprocessing Start",
    "Custom Data Preprocessing End",
    "Model Loading End",
    "Model Loaded",
    "Calibration Start",
    "Calibration End",
    "Custom Validation Start",
    "Custom Validation End",
    "Export ONNX Start",
    "Export ONNX End",
    "Last Start",
    "Last End",
    "End",
]


def run(folder: Path, script: str, **environ: str) -> str:
    out, _ = run_script(folder, script, QUARK_PROFILING="1", **environ)
    return out.splitlines()[0]


def shape(path: Path) -> list[str]:
    """The file's lines with each number by its format and each definition by its name."""
    lines, in_definitions = [], False
    for line in re.sub("(?m)^ +\n", "", path.read_text()).splitlines():
        if line.startswith("# Metric Definitions"):
            in_definitions = True
        if line == "run_end:":
            in_definitions = False
        if in_definitions and line.startswith("# - "):
            line = line.partition(": ")[0]
        elif in_definitions and not re.match(r"# [A-Z]|#?$", line):
            continue  # the second line of a definition
        key, separator, value = line.partition(": ")
        if re.match("-?[0-9]", value):
            value = number_format(key.strip(), value)
        lines.append(key + separator + value)
    return lines


def number_format(key: str, number: str) -> str:
    assert re.fullmatch(r"[0-9]+|[0-9]+\.[0-9]+(e[-+][0-9]+)?", number), (key, number)
    if "." not in number:
        return "INTEGER"
    if key in ("timestamp", "relative_time_secs", "model_size_mb", "peak_cache_dir_disk_usage_mb"):
        return "AS IT IS"
    rounding = 4 if key == "total_quantization_time_seconds" else 2
    return f"{max(len(number.partition('.')[2]), rounding)} DECIMALS AT MOST"


def without_our_sections(lines: list[str]) -> list[str]:
    text = "\n".join(lines) + "\n"
    text = re.sub(r"\nrun:\n(  .*\n)+", "", text, count=1)
    return re.sub(r"\nrun_end:\n(  .*\n)+", "", text, count=1).splitlines()


def without_ours(lines: list[str]) -> list[str]:
    ours = ("  error: ", "  error_message: ", "  # ")
    return [line for line in without_our_sections(lines) if not line.startswith(ours)]


def read(path: Path) -> dict[str, Any]:
    loaded: dict[str, Any] = yaml.safe_load(path.read_bytes())
    return loaded


@pytest.fixture(scope="module")
def quarks(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    """The file of Quark's own profiler alone, and what the script printed."""
    folder = tmp_path_factory.mktemp("quarks")
    printed = run(folder, SCRIPT.format(profiler=QUARKS, output="quarks.yaml"))
    return folder / "quarks.yaml", printed


@pytest.mark.parametrize("strict", ["false", "true"])
def test_a_script_with_only_its_import_changed_gives_the_same_file(
    tmp_path: Path, quarks: tuple[Path, str], strict: str
) -> None:
    script = SCRIPT.format(profiler=OURS, output="ours.yaml")
    printed = run(tmp_path, script, OTEL_QUANT_YAML_STRICT=strict)

    ours, of_quark = shape(tmp_path / "ours.yaml"), shape(quarks[0])
    assert printed == quarks[1]
    assert steps_in(tmp_path / "ours.yaml") == STEPS
    assert "  cpu_memory_mb: 2 DECIMALS AT MOST" in ours
    if strict == "true":
        assert ours == of_quark
        return
    assert without_ours(ours) == of_quark
    added = [line for line in without_our_sections(ours) if line not in of_quark]
    assert [line for line in added if "peak" not in line] == [
        '  error_message: "no such layer"',
        '  error: "ValueError"',
    ]


def test_our_profiler_and_quarks_write_the_same_figures_to_separate_files(
    tmp_path: Path,
) -> None:
    run(tmp_path, INSTRUMENT + SCRIPT.format(profiler=QUARKS, output="quark_profile.yaml"))

    assert sorted(path.name for path in tmp_path.glob("*.yaml*")) == [
        "cache-quark_profile.yaml", "quark_profile.otel.yaml", "quark_profile.yaml",
    ]  # fmt: skip
    paths = tmp_path / "quark_profile.otel.yaml", tmp_path / "quark_profile.yaml"
    assert without_ours(shape(paths[0])) == shape(paths[1])
    ours, quarks = map(read, paths)
    assert list(ours)[:2] == ["run", "memory_usage"]
    assert list(ours)[-1] == "run_end"
    del ours["run"], ours["run_end"]
    tolerance = {
        "cpu_memory_mb": 4.0, "disk_read_mb": 1.0, "disk_write_mb": 1.0, "peak_memory_mb": 1.0,
        "total_disk_read_mb": 1.0, "total_disk_write_mb": 1.0, "peak_cache_dir_disk_usage_mb": 0.0,
        "model_size_mb": 0.0, "depth": 0,
    }  # fmt: skip
    assert steps_in(paths[1]) == STEPS
    pairs = list(zip(ours.pop("memory_usage"), quarks.pop("memory_usage"), strict=True))
    # Only the order of two clocks is certain: between two readings a busy machine may do something else.
    times = [sorted((mine["timestamp"], theirs.pop("timestamp"))) for mine, theirs in pairs]
    assert all(one[1] <= next_[0] for one, next_ in pairwise(times))
    began = pairs[0][0]["timestamp"]
    for mine, theirs in pairs:
        assert mine.pop("relative_time_secs") == pytest.approx(
            mine.pop("timestamp") - began, abs=1e-3
        )
        del theirs["relative_time_secs"]
    took = [each.pop("total_quantization_time_seconds") for each in (ours, quarks)]
    assert min(took) >= times[-1][0] - times[0][1]
    for mine, theirs in [*pairs, (ours, quarks)]:
        mine.pop("error_message", None)
        mine.pop("error", None)
        assert mine.pop("step", None) == theirs.pop("step", None)
        assert mine.keys() == theirs.keys()
        far = {key: (mine[key], theirs[key]) for key in theirs
               if abs(mine[key] - theirs[key]) > tolerance[key]}  # fmt: skip
        assert far == {}
    assert ours["peak_cache_dir_disk_usage_mb"] == 3.0


def test_a_file_begun_before_quark_was_loaded_is_moved_aside_for_quarks(tmp_path: Path) -> None:
    run(
        tmp_path,
        f"{INSTRUMENT}{OWN_STEP}"
        "from quark.common.profiler import GlobalProfiler\n"
        "with GlobalProfiler().scope('After'):\n"
        "    print('on')\n",
    )

    own = "Not a step of Quark"
    assert steps_in(tmp_path / "quark_profile.otel.yaml") == [
        "Start", f"{own} Start", f"{own} End", "After Start", "After End", "End",
    ]  # fmt: skip
    assert steps_in(tmp_path / "quark_profile.yaml") == ["Start", "After Start", "After End", "End"]


QUANTIZES = f"""{reader(1, 3, 8, 8)}
from quark.onnx import ModelQuantizer
from quark.onnx.quantization.config import Config, get_default_config
from otel_quant.quark import GlobalProfiler, ProfileStep

profiler = GlobalProfiler("ours.yaml")
with profiler.scope(ProfileStep.MODEL_PREPARATION):
    pass
quantizer = ModelQuantizer(Config(global_quant_config=get_default_config("XINT8")))
quantizer.quantize_model("float.onnx", "int8.onnx", Reader())
print()
"""


def test_the_steps_that_quark_reports_itself_are_in_the_file_too(tmp_path: Path) -> None:
    write_conv(tmp_path / "float.onnx")
    run(tmp_path, QUANTIZES, OTEL_QUANT_YAML_STRICT="true")

    text = (tmp_path / "ours.yaml").read_text()
    fills = re.findall(r"^ +\n", text, re.MULTILINE)
    assert len(fills) <= len(text) // 4096  # of a page, what has no room for another line
    assert re.findall(r"\S[ \t]+\n|\n\n\n", text) == []
    # Quark's own profiler wrote as well, at its default path: the steps that it reports itself.
    ours, quarks = steps_in(tmp_path / "ours.yaml"), steps_in(tmp_path / "quark_profile.yaml")
    prepared = ["Model Preparation Start", "Model Preparation End"]
    assert ours == [quarks[0], *prepared, *quarks[1:]]
    assert "Calibration Start" in quarks


CACHES = """
import time
from quark.onnx.utils.system_utils import create_tmp_dir
from quark.common.profiler import GlobalProfiler, ProfileStep

def write(folder, size):
    with open(f"{folder.name}/{size}", "wb") as file:
        file.write(bytes(size << 20))

outer = create_tmp_dir("quark_onnx.quant.")  # Quark makes it before its first step
write(outer, 1)
with GlobalProfiler().scope(ProfileStep.QUANTIZATION_STATIC):
    with GlobalProfiler().scope(ProfileStep.CALIBRATION):
        with create_tmp_dir("quark_onnx.calib.") as inner:
            with open(f"{inner}/cache", "wb") as file:
                file.write(bytes(7 << 20))
            time.sleep(1.5)  # one looks at them once a second
    write(outer, 4)
    time.sleep(1.5)
    outer.cleanup()
print()
"""


def test_cache_directories_are_measured_before_the_first_step_and_until_removal(
    tmp_path: Path,
) -> None:
    run_script(tmp_path, INSTRUMENT + CACHES, OTEL_QUANT_PROFILE="ours.yaml")

    assert read(tmp_path / "ours.yaml")["peak_cache_dir_disk_usage_mb"] == 7.0


def test_metrics_of_quarks_profiler_do_not_run_while_it_is_switched_off(tmp_path: Path) -> None:
    script = SCRIPT.format(profiler=QUARKS, output="quarks.yaml")
    script = script.replace('return None if context.step_name == "Start" else 3', "os._exit(1)")
    script = script[: script.index("assert profiler.enabled")] + "print()"

    run_script(
        tmp_path,
        INSTRUMENT + script,
        OTEL_QUANT_PROFILE="ours.yaml",
    )

    records = read(tmp_path / "ours.yaml")["memory_usage"]
    assert steps_in(tmp_path / "ours.yaml") == STEPS
    assert "depth" not in {key for record in records for key in record}


COUNTS = """
from quark.common.profiler import CheckpointMetric, GlobalProfiler, ProfileStep, profile_scope

class Calls(CheckpointMetric):
    calls = 0
    name = "calls"
    def get_definition(self):
        return "How often it was asked."
    def collect(self, context):
        Calls.calls += 1
        return Calls.calls

@profile_scope(ProfileStep.CALIBRATION)
def calibrate():
    with profiler.scope("Inner"):
        pass

profiler = GlobalProfiler("quarks.yaml")
profiler.checkpoint_metrics.append(Calls())
with profiler.scope("Scope"):
    pass
assert Calls.calls == 2, Calls.calls
calibrate()
profiler._checkpoint("Point")
assert Calls.calls == 7, Calls.calls
print([record.get("calls") for record in profiler.records])
"""


def test_a_metric_of_quarks_profiler_is_asked_once_for_each_of_its_checkpoints(
    tmp_path: Path,
) -> None:
    before = "import quark.common.profiler\n" + INSTRUMENT

    printed = run(tmp_path, before + COUNTS + OWN_STEP, OTEL_QUANT_PROFILE="ours.yaml")

    assert printed == "[None, 1, 2, 3, 4, 5, 6, 7]"
    records = read(tmp_path / "ours.yaml")["memory_usage"]
    assert [(record["step"], record.get("calls")) for record in records] == [
        ("Start", None), ("Scope Start", 1), ("Scope End", 2), ("Calibration Start", 3),
        ("Inner Start", 4), ("Inner End", 5), ("Calibration End", 6), ("Point", 7),
        ("Not a step of Quark Start", None), ("Not a step of Quark End", None), ("End", 8),
    ]  # fmt: skip
