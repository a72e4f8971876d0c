"""Tests one quantization library, in its newest version, in an environment of its own.

    python3 scripts/tested_libraries.py hqq     makes .venv-hqq, runs tests/integration/.../test_hqq.py

.github/workflows/libraries.yml does so every week for each of them.
"""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Final

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from scripts.workspace import ROOT, environment

_FOLDER: Final = "tests/integration/libraries"
_NBITS: Final = "onnx-ir"
"""What onnxruntime's MatMulNBits quantizer imports and the package does not ask for."""


@dataclass(frozen=True, slots=True)
class Tested:
    """How a library is tested."""

    requirements: tuple[str, ...]  # What is installed for its test beside the extra `unit`
    tests: str  # A file or folder for pytest


TESTED: Final = {
    "quark": Tested(
        ("amd-quark", "onnxruntime", "torch", "transformers", "onnxscript"),
        "tests/integration/quark",
    ),
    "onnxruntime": Tested(("onnxruntime", _NBITS), f"{_FOLDER}/test_onnxruntime.py"),
    "torch": Tested(("torch", "numpy"), f"{_FOLDER}/test_torch.py"),
    "torchao": Tested(("torchao", "torch", "transformers"), f"{_FOLDER}/test_torchao.py"),
    # It loads a model that torchao quantizes.
    "transformers": Tested(("transformers", "torch", "torchao"), f"{_FOLDER}/test_torchao.py"),
    "optimum-onnx": Tested(
        ("optimum-onnx[onnxruntime]", "accelerate", "datasets", _NBITS),
        f"{_FOLDER}/test_optimum_onnx.py",
    ),
    "nncf": Tested(("nncf", "onnxruntime", _NBITS), f"{_FOLDER}/test_nncf.py"),
    "optimum-quanto": Tested(("optimum-quanto",), f"{_FOLDER}/test_quanto.py"),
    "hqq": Tested(("hqq", "transformers"), f"{_FOLDER}/test_hqq.py"),
    "neural-compressor": Tested(
        ("neural-compressor[pt]", "torch", "transformers", "accelerate"),
        f"{_FOLDER}/test_neural_compressor.py",
    ),
    "llmcompressor": Tested(("llmcompressor",), f"{_FOLDER}/test_llmcompressor.py"),
    "auto-round": Tested(("auto-round", "gguf", "sentencepiece"), f"{_FOLDER}/test_auto_round.py"),
}
"""By the names of `otel_quant.capture.instruments`."""


def main(arguments: list[str]) -> int:
    """Runs one library's test; the exit code is pytest's, 5 where the library cannot be imported."""
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
