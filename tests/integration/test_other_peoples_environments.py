"""A package index can be asked for otel-quant together with an application's own packages."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
INSTRUMENTATIONS = (
    "aiohttp-client", "asyncio", "fastapi", "flask", "grpc", "httpx", "logging", "requests",
    "sqlalchemy", "threading", "urllib3",
)  # fmt: skip
YEAR_AGO = {"opentelemetry-sdk": "1.38.0", "opentelemetry-instrumentation": "0.59b0"}
"""The releases of October 2025."""


def resolved(folder: Path, extra: str, *requirements: str) -> dict[str, str]:
    """Returns the versions that a resolver chooses for otel-quant with other requirements."""
    wanted = folder / "requirements.in"
    wanted.write_text("\n".join(requirements))
    done = subprocess.run(
        [
            sys.executable, "-m", "uv", "pip", "compile", "--quiet", "--no-header", "--no-annotate",
            "--extra", extra, ROOT / "pyproject.toml", wanted,
        ],
        cwd=folder, capture_output=True, text=True, timeout=300, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    pairs = (line.partition(" ")[0].split("==") for line in done.stdout.splitlines())
    return {pair[0]: pair[1] for pair in pairs if len(pair) == 2}


@pytest.mark.parametrize("extra", ["otlp", "quark"])
@pytest.mark.parametrize("release", [YEAR_AGO, {}], ids=["of a year ago", "of today"])
def test_the_package_installs_beside_common_instrumentations(
    tmp_path: Path, release: dict[str, str], extra: str
) -> None:
    others = [f"opentelemetry-instrumentation-{name}" for name in INSTRUMENTATIONS]
    versions = resolved(
        tmp_path, extra, *others, *(f"{name}=={version}" for name, version in release.items())
    )

    assert versions.keys() >= {*others, "psutil"}
    assert {name: versions[name] for name in release} == release
