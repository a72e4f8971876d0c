"""Tests one quantization library, in its newest version, in an environment of its own.

    python3 scripts/tested_libraries.py hqq     makes .venv-hqq, runs tests/integration/.../test_hqq.py
    python3 scripts/tested_libraries.py --list  prints the names, for the workflow's matrix

.github/workflows/libraries.yml does so every week for each of them.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tomllib
from dataclasses import dataclass
from pathlib import Path
from typing import Final

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from otel_quant.capture.instruments import PACKAGES
from scripts.workspace import ROOT, environment

_FOLDER: Final = "tests/integration/libraries"


@dataclass(frozen=True, slots=True)
class Tested:
    """How a library is tested."""

    requirements: tuple[str, ...]  # What is installed for its test beside the extra `unit`
    tests: str  # A file or folder for pytest


_SEVERAL_PROGRAMS: Final = {
    "quark": Tested(
        ("amd-quark", "onnxruntime", "torch", "transformers", "onnxscript"),
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


TESTED: Final = {name: _tested(name) for name in PACKAGES} | {
    "openvino": Tested(
        ("onnxruntime-openvino", "onnx", "numpy"), "tests/integration/inference/test_openvino.py"
    )
}
"""By the names of `otel_quant.capture.instruments`, and a provider that compiles models."""


def main(arguments: list[str]) -> int:
    """Runs one library's test; the exit code is pytest's, 5 where the library cannot be imported."""
    if arguments == ["--list"]:
        print(json.dumps(list(TESTED)))
        return 0
    if len(arguments) != 1 or arguments[0] not in TESTED:
        print(f"expected one of: {', '.join(TESTED)}", file=sys.stderr)
        return 2
    library = TESTED[arguments[0]]
    programs = environment(
        "unit", name=f".venv-{arguments[0]}", pins=library.requirements, constrained=False
    )
    env = os.environ | {
        "PATH": f"{programs}{os.pathsep}{os.environ.get('PATH', '')}",
        "TORCH_EXTENSIONS_DIR": str(programs.parent / "torch_extensions"),
    }
    return subprocess.run(
        [programs / "python", "-m", "pytest", "-q", library.tests], cwd=ROOT, env=env
    ).returncode


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
