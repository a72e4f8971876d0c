"""Makes the folder that the OpenTelemetry Operator puts into a pod, for every Python from 3.11 on.

    python scripts/autoinstrumentation.py FOLDER

Whatever is in it comes before the application's own packages, so it holds little: no wheel that is bound to one Python,
and no protobuf. OTLP leaves as JSON over HTTP. Needs pip, and the platform that the pods have.
"""

from __future__ import annotations

import platform
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
REQUIREMENTS = (
    "opentelemetry-distro>=0.66b1", "opentelemetry-exporter-otlp-json-http>=0.66b1", "psutil>=5.9", "wrapt>=1.14,<3",
)  # fmt: skip
"""What a recorded program loads. Reports and tables need the whole package."""


def make(folder: Path) -> None:
    """Installs otel-quant and what it needs into a folder."""
    machine = platform.machine()
    wheels = (
        "--only-binary=:all:", "--implementation=cp", "--python-version=3.11", "--abi=abi3", "--abi=none",
        *(f"--platform={each}_{machine}" for each in ("manylinux2014", "manylinux_2_28")), "--platform=any",
    )  # fmt: skip
    pip = sys.executable, "-m", "pip", "install", "--quiet", "--no-cache-dir"
    install = *pip, f"--target={folder}"
    subprocess.run([*install, *wheels, *REQUIREMENTS], check=True)
    subprocess.run([*install, "--no-deps", str(ROOT)], check=True)


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit(f"{len(sys.argv) - 1} arguments; expected one: the folder to make")
    make(Path(sys.argv[1]))
