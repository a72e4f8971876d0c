"""`otel_quant.quark` in place of AMD Quark's own profiler: the same file for the same script, and every name that Quark has."""

from __future__ import annotations

import inspect
import json
import re
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.fixtures.programs import WITHOUT_TORCHAO, reader, run_script, steps_in
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
    "Start", "Model Loading Start", "Custom Data Preprocessing Start",
    "Custom Data Preprocessing End", "Model Loading End", "Model Loaded", "Calibration Start",
    "Calibration End", "Custom Validation Start", "Custom Validation End", "Export ONNX Start",
    "Export ONNX End", "Last Start", "Last End", "End",
]  # fmt: skip


def run(folder: Path, script: str, **environ: str) -> str:
    out, _ = run_script(folder, WITHOUT_TORCHAO + script, QUARK_PROFILING="1", **environ)
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


# Of the private names of Quark's, those that programs have been seen to use.
DESCRIBE = '''
import importlib
import inspect
import json

PRIVATE = {"_has_psutil", "_gpu_available", "_disk_io_available", "_checkpoint", "_instance"}


def is_offered(name):
    return not name.startswith("_") or name in PRIVATE


def parameters_of(function):
    """Name, kind and default of each parameter, without annotations."""
    return [
        [each.name, str(each.kind), repr(each.default)]
        for each in inspect.signature(function).parameters.values()
    ]


def describe(value):
    if inspect.isclass(value):
        bases = [base for base in reversed(value.__mro__) if base.__module__ not in ("abc", "builtins", "enum")]
        own = {name: vars(base)[name] for base in bases for name in vars(base)}
        members = {name: kind_of(own[name]) for name in own if is_offered(name)}
        return {"kind": "class", "parameters": parameters_of(value), "members": members}
    return kind_of(value)


def kind_of(value):
    if isinstance(value, (staticmethod, classmethod)):
        return {"kind": type(value).__name__, "parameters": parameters_of(value.__func__)}
    if callable(value):
        return {"kind": "function", "parameters": parameters_of(value)}
    return {"kind": "attribute"}


def names_of(module):
    """The names that a module offers: those of its `__all__`, or those that it defines."""
    return getattr(module, "__all__", None) or [
        name
        for name, value in vars(module).items()
        if is_offered(name) and getattr(value, "__module__", None) == module.__name__
    ]


def described(package):
    """What the modules of a package have of the names that Quark's offer."""
    found = {}
    for name in ["", ".profiler", ".metrics", ".utils", ".cache_dir_disk_monitor"]:
        module = importlib.import_module(package + name)
        names = names_of(importlib.import_module("quark.common.profiler" + name))
        found[name] = {each: describe(getattr(module, each)) for each in names if hasattr(module, each)}
    return found


def instances(package):
    module = importlib.import_module(package)
    profiler = module.GlobalProfiler("p.yaml")
    monitor = importlib.import_module(package + ".cache_dir_disk_monitor").CacheDirDiskMonitor(".")
    found = {}
    for each in (profiler, monitor, module.MetricContext()):
        names = [name for name in dir(each) if is_offered(name)]
        found[type(each).__name__] = {
            name: [callable(getattr(each, name)), type(getattr(each, name)).__name__]
            for name in names
        }
    return found


print(json.dumps([
    {"modules": described(package), "instances": instances(package)}
    for package in ["quark.common.profiler", "otel_quant.quark"]
]))
'''


@dataclass(frozen=True)
class OfQuark:
    """A program with Quark's own profiler alone, which describes it and ours when it is done."""

    file: Path  # What Quark's profiler wrote
    printed: str  # What the script printed
    described: list[dict[str, Any]]  # The names of Quark's profiler, and those of ours


@pytest.fixture(scope="module")
def quarks(tmp_path_factory: pytest.TempPathFactory) -> OfQuark:
    folder = tmp_path_factory.mktemp("quarks")
    script = WITHOUT_TORCHAO + SCRIPT.format(profiler=QUARKS, output="quarks.yaml") + DESCRIBE
    first, last = run_script(folder, script, QUARK_PROFILING="1")[0].splitlines()
    return OfQuark(folder / "quarks.yaml", first, json.loads(last))


@pytest.mark.parametrize("strict", ["false", "true"])
def test_a_script_with_only_its_import_changed_gives_the_same_file(
    tmp_path: Path, quarks: OfQuark, strict: str
) -> None:
    script = SCRIPT.format(profiler=OURS, output="ours.yaml")
    printed = run(tmp_path, script, OTEL_QUANT_YAML_STRICT=strict)

    ours, of_quark = shape(tmp_path / "ours.yaml"), shape(quarks.file)
    assert printed == quarks.printed
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


def test_our_profiler_and_quarks_write_the_same_figures_to_separate_files(tmp_path: Path) -> None:
    loaded = "import quark.common.profiler\n"  # before it is instrumented
    run(tmp_path, loaded + INSTRUMENT + SCRIPT.format(profiler=QUARKS, output="quark_profile.yaml"))

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

profiler = GlobalProfiler()
profiler.checkpoint_metrics.append(Calls())
with profiler.scope("Scope"):
    pass
assert Calls.calls == 2, Calls.calls
calibrate()
profiler._checkpoint("Point")
assert Calls.calls == 7, Calls.calls
print([record.get("calls") for record in profiler.records])
"""


@pytest.fixture(scope="module")
def late(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    """The folder of a program that loads Quark after its first step, and what it printed."""
    folder = tmp_path_factory.mktemp("late")
    return folder, run(folder, INSTRUMENT + OWN_STEP + COUNTS + OWN_STEP)


OF_QUARK = [
    ("Scope Start", 1), ("Scope End", 2), ("Calibration Start", 3), ("Inner Start", 4),
    ("Inner End", 5), ("Calibration End", 6), ("Point", 7),
]  # fmt: skip
OWN = [("Not a step of Quark Start", None), ("Not a step of Quark End", None)]


def test_a_file_begun_before_quark_was_loaded_is_moved_aside_for_quarks(
    late: tuple[Path, str],
) -> None:
    steps = [name for name, _ in (*OWN, *OF_QUARK, *OWN)]
    assert steps_in(late[0] / "quark_profile.otel.yaml") == ["Start", *steps, "End"]
    of_quark = [name for name, _ in OF_QUARK]
    assert steps_in(late[0] / "quark_profile.yaml") == ["Start", *of_quark, "End"]


def test_a_metric_of_quarks_profiler_is_asked_once_for_each_of_its_checkpoints(
    late: tuple[Path, str],
) -> None:
    folder, printed = late
    assert printed == "[None, 1, 2, 3, 4, 5, 6, 7]"
    records = read(folder / "quark_profile.otel.yaml")["memory_usage"]
    assert [(record["step"], record.get("calls")) for record in records] == [
        ("Start", None), *OWN, *OF_QUARK, *OWN, ("End", 8),
    ]  # fmt: skip


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
"""


@pytest.fixture(scope="module")
def switched_off(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """What is in our file of a program that uses Quark's profiler, which is switched off, and its caches."""
    folder = tmp_path_factory.mktemp("off")
    script = SCRIPT.format(profiler=QUARKS, output="quarks.yaml")
    script = script.replace('return None if context.step_name == "Start" else 3', "os._exit(1)")
    script = script[: script.index("assert profiler.enabled")]
    script = WITHOUT_TORCHAO + INSTRUMENT + CACHES + script
    run_script(folder, script, OTEL_QUANT_PROFILE="ours.yaml")
    return read(folder / "ours.yaml")


def test_cache_directories_are_measured_before_the_first_step_and_until_removal(
    switched_off: dict[str, Any],
) -> None:
    assert switched_off["peak_cache_dir_disk_usage_mb"] == 7.0


def test_metrics_of_quarks_profiler_do_not_run_while_it_is_switched_off(
    switched_off: dict[str, Any],
) -> None:
    records = switched_off["memory_usage"]
    assert [record["step"] for record in records][1 - len(STEPS) :] == STEPS[1:]
    assert "depth" not in {key for record in records for key in record}


NO_DEFAULT = repr(inspect.Parameter.empty)
MODULES = ["", ".profiler", ".metrics", ".utils", ".cache_dir_disk_monitor"]


@pytest.mark.parametrize("module", MODULES)
def test_every_quark_name_exists_with_the_same_kind_and_parameters(
    quarks: OfQuark, module: str
) -> None:
    of_quark, ours = (each["modules"][module] for each in quarks.described)

    assert of_quark.keys() - ours.keys() == set()
    for name, theirs in of_quark.items():
        mine = ours[name]
        assert mine["kind"] == theirs["kind"], name
        assert_same_parameters(mine, theirs, name)
        for member, described_ in theirs.get("members", {}).items():
            assert member in mine["members"], (name, member)
            assert mine["members"][member]["kind"] == described_["kind"], (name, member)
            assert_same_parameters(mine["members"][member], described_, f"{name}.{member}")


def assert_same_parameters(mine: dict[str, Any], theirs: dict[str, Any], name: str) -> None:
    """Ours may have more, at the end and with a default."""
    known, own = theirs.get("parameters", []), mine.get("parameters", [])
    assert own[: len(known)] == known, name
    required = [each for each, _, default in own[len(known) :] if default == NO_DEFAULT]
    assert required == [], name


def test_every_attribute_of_quark_objects_exists_with_the_same_type(quarks: OfQuark) -> None:
    of_quark, ours = (each["instances"] for each in quarks.described)

    assert of_quark.keys() == ours.keys()
    missing = {
        (kind, name, tuple(what), tuple(ours[kind].get(name, ())))
        for kind, names in of_quark.items()
        for name, what in names.items()
        if ours[kind].get(name) != what
    }
    assert missing == set()
