"""Tests quantization libraries, each in an environment of its own, and notes the versions tried.

    python3 scripts/test.py --libraries                   every library in its newest version
    python3 scripts/test.py --libraries hqq torch==2.13   some of them, in the newest version or another

`docs/libraries_tried.json` gets what came of it, from which `scripts/docs.py` makes a table in
docs/libraries.md. .github/workflows/libraries.yml does so every week for each library.
"""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
import time
import tomllib
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final
from xml.etree import ElementTree

from otel_quant.capture.instruments import PACKAGES
from scripts.workspace import ROOT, environment, pytest_command, uv

_FOLDER: Final = "tests/integration/libraries"
TRIED: Final = ROOT / "docs" / "libraries_tried.json"
"""By library, a row for each of its versions that was tried, the newest first."""
_BESIDE: Final = ("onnx", "onnxruntime", "onnxruntime-gpu", "torch", "torchao", "transformers")
"""Distributions whose versions are noted beside the library's own."""

Row = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Tested:
    """How a library is tested."""

    # What is installed for its test beside the extra `unit`: the library itself first
    requirements: tuple[str, ...]
    tests: str  # A file or folder for pytest


_SEVERAL_PROGRAMS: Final = {
    "quark": Tested(
        # One of its tests has pip install an older Quark.
        ("amd-quark", "onnxruntime", "torch", "transformers", "onnxscript", "pip"),
        "tests/integration/quark",
    ),
    # onnxruntime's MatMulNBits quantizer imports onnx-ir, which the package does not ask for.
    "onnxruntime": Tested(("onnxruntime", "onnx-ir"), f"{_FOLDER}/test_onnxruntime.py"),
    "torch": Tested(("torch", "numpy"), f"{_FOLDER}/test_torch.py"),
    "torchao": Tested(("torchao", "torch", "transformers"), f"{_FOLDER}/test_torchao.py"),
    # It loads a model that torchao quantizes.
    "transformers": Tested(("transformers", "torch", "torchao"), f"{_FOLDER}/test_torchao.py"),
}
"""Any other library has a test and one program, which declares what it needs (as PEP 723 has it)."""

_METADATA: Final = re.compile(r"(?m)^# /// script\n((?:#.*\n)+?)# ///$")


def _tested(name: str) -> Tested:
    if name in _SEVERAL_PROGRAMS:
        return _SEVERAL_PROGRAMS[name]
    stem = name.replace("-", "_")
    program = ROOT / _FOLDER / "programs" / f"{stem}_all.py"
    found = _METADATA.match(program.read_text(encoding="utf-8"))
    if found is None:
        sys.exit(f"{program.name}: expected a block `# /// script` with its dependencies")
    text = "\n".join(line.removeprefix("#") for line in found[1].splitlines())
    return Tested(tuple(tomllib.loads(text)["dependencies"]), f"{_FOLDER}/test_{stem}.py")


_PIPELINES: Final = "tests/integration/pipelines"
TESTED: Final = {name: _tested(name) for name in PACKAGES} | {
    "openvino": Tested(
        ("onnxruntime-openvino", "onnx", "numpy"), "tests/integration/inference/test_openvino.py"
    ),
    "mlflow": Tested(("mlflow",), f"{_PIPELINES}/test_mlflow.py"),
    "wandb": Tested(("wandb",), f"{_PIPELINES}/test_wandb.py"),
    "prefect": Tested(("prefect",), f"{_PIPELINES}/test_prefect.py"),
    "apache-airflow": Tested(("apache-airflow",), f"{_PIPELINES}/test_airflow.py"),
}
"""By the names of `otel_quant.capture.instruments`, a provider that compiles models, and what runs pipelines or keeps their figures."""


def run(asked: list[str]) -> int:
    """Tries libraries one after the other; the exit code is 1 if one of them does not pass."""
    chosen = [each.partition("==") for each in asked or TESTED]
    unknown = [name for name, *_ in chosen if name not in TESTED]
    if unknown:
        sys.exit(f"no library {unknown[0]}; expected some of: {', '.join(TESTED)}")
    tried = []
    for name, _, version in chosen:
        print(f"--- {name}", flush=True)
        tried.append((name, _tried(name, version)))
        note(*tried[-1])
    for name, row in tried:
        result = ", ".join(row["failed"]) or "passed"
        print(f"{name:18} {row['version']:12} {row['seconds']:5} s   {result}")
    return int(any(row["failed"] for _, row in tried))


def note(name: str, row: Row, path: Path = TRIED) -> None:
    """Writes down what came of a version, in place of what came of it before."""
    noted = json.loads(path.read_text(encoding="utf-8"))
    others = [each for each in noted.get(name, ()) if each["version"] != row["version"]]
    noted[name] = sorted([row, *others], key=_numbers, reverse=True)
    in_order = {name: noted[name] for name in TESTED if name in noted}
    path.write_text(json.dumps(in_order, indent=2) + "\n", encoding="utf-8")


def _numbers(row: Row) -> list[int]:
    return [int(number) for number in re.findall(r"\d+", row["version"])]


def _tried(name: str, version: str) -> Row:
    began = time.monotonic()
    itself, *more = TESTED[name].requirements
    distribution = itself.partition("[")[0]
    # The newest is asked for by its number, lest an older one be chosen that allows newer others.
    version = version or _newest(distribution)
    folder = ROOT / f".venv-{name}"
    shutil.rmtree(folder, ignore_errors=True)
    versions: dict[str, str] = {}
    try:
        pins = (f"{itself}=={version}", *more)
        programs = environment("unit", name=folder.name, pins=pins, constrained=False)
    except SystemExit as failure:
        print(failure, file=sys.stderr)
        outcome = {"passed": 0, "failed": ["cannot be installed"], "skipped": []}
    else:
        versions = _installed(programs / "python")
        report = folder / "report.xml"
        subprocess.run(**pytest_command(programs, f"--junit-xml={report}", TESTED[name].tests))
        outcome = outcome_of(report)
    if not outcome["failed"]:
        shutil.rmtree(folder)  # torch alone has 5 GB
    beside = {each: versions[each] for each in _BESIDE if each in versions and each != distribution}
    return {
        "version": versions.get(distribution, version),
        "with": beside | {"Python": ".".join(map(str, sys.version_info[:2]))},
        "date": f"{datetime.now(UTC):%Y-%m-%d}",
        **outcome,
        "seconds": round(time.monotonic() - began),
    }


def outcome_of(report: Path) -> Row:
    """Returns how many tests passed, which failed or were skipped, and how many ways were compared with what they have written."""
    if not report.exists():
        return {"passed": 0, "failed": ["the tests did not end"], "skipped": []}
    passed, failed, skipped, compared = 0, [], [], 0
    for case in ElementTree.parse(report).getroot().iter("testcase"):
        noted = case.findall("properties/property[@name='compared']")
        compared += sum(int(each.get("value", "0")) for each in noted)
        if case.find("failure") is not None or case.find("error") is not None:
            failed.append(case.get("name", ""))
        elif case.find("skipped") is not None:
            skipped.append(case.get("name", ""))
        else:
            passed += 1
    if not passed and not failed:
        failed.append("no test ran")  # the library cannot be imported, for one
    return {"passed": passed, "failed": failed, "skipped": skipped} | (
        {"compared": compared} if compared else {}
    )


def _newest(distribution: str) -> str:
    command = [*uv(), "pip", "compile", "--quiet", "--no-deps", "--no-header", "--no-annotate",
               "--python", sys.executable, "-"]  # fmt: skip
    found = subprocess.run(command, input=distribution, capture_output=True, text=True, check=True)
    return found.stdout.partition("==")[2].strip()


def _installed(python: Path) -> dict[str, str]:
    command = [*uv(), "pip", "list", "--quiet", "--format", "json", "--python", str(python)]
    listed = json.loads(subprocess.run(command, capture_output=True, check=True).stdout)
    return {each["name"]: each["version"] for each in listed}
