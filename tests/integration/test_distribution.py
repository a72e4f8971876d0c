"""What is released: the wheel has the package, does the main job where nothing else is installed, and goes beside other packages."""

from __future__ import annotations

import json
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest

from otel_quant.version import VERSION

ROOT = Path(__file__).resolve().parents[2]


def run(*command: str | Path, cwd: Path = ROOT) -> str:
    return subprocess.run(command, cwd=cwd, check=True, capture_output=True, text=True).stdout


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("dist")
    run(sys.executable, "-m", "build", "--no-isolation", "--outdir", folder)
    return folder


def test_wheel_and_source_have_every_file_of_the_package_and_a_readable_description(
    made: Path,
) -> None:
    wheel, source = made.glob("*.whl"), made.glob("*.tar.gz")
    [wheel_path], [source_path] = wheel, source
    assert (wheel_path.name, source_path.name) == (
        f"otel_quant-{VERSION}-py3-none-any.whl",
        f"otel_quant-{VERSION}.tar.gz",
    )
    package = set(run("git", "ls-files", "otel_quant").split())
    names = set(zipfile.ZipFile(wheel_path).namelist())
    assert {name for name in names if not name.startswith("otel_quant-")} == package
    with tarfile.open(source_path) as file:
        sources = {name.partition("/")[2] for name in file.getnames()}
    assert sources >= package | {"pyproject.toml", "README.md", "LICENSE", "CHANGELOG.md"}
    run(sys.executable, "-m", "twine", "check", "--strict", wheel_path, source_path)


def test_the_wheel_records_a_program_in_an_environment_that_has_nothing_else(
    made: Path, tmp_path: Path
) -> None:
    [wheel] = made.glob("*.whl")
    run(sys.executable, "-m", "uv", "venv", "--python", sys.executable, tmp_path / "bare")
    python = tmp_path / "bare" / "bin" / "python"
    run(sys.executable, "-m", "uv", "pip", "install", "--python", python, wheel)
    (tmp_path / "quantize.py").write_text(
        "import otel_quant\nwith otel_quant.step('Calibration'): held = bytearray(50_000_000)\n"
    )
    command = python.with_name("otel-quant")
    run(command, "run", "--out", "made", "--", python, "quantize.py", cwd=tmp_path)
    [shown] = json.loads(run(command, "show", "--format", "json", "made", cwd=tmp_path))
    assert [(step["step"], step["status"]) for step in shown["steps"]] == [
        ("(before the first step)", "outside"), ("Calibration", "ok"), ("(after the last step)", "outside"),
    ]  # fmt: skip
    assert (tmp_path / "made" / "report.html").exists()


def test_the_folder_of_the_instrumentation_image_instruments_a_program(
    made: Path, tmp_path: Path
) -> None:
    [install] = [
        line
        for line in (ROOT / "Dockerfile").read_text().splitlines()
        if line.startswith("RUN pip install")
    ]
    assert install.endswith('--target /autoinstrumentation "/source[otlp]"')
    [wheel] = made.glob("*.whl")
    folder = tmp_path / "autoinstrumentation"
    run(sys.executable, "-m", "uv", "pip", "install", "--python", sys.executable, "--target", folder,
        f"{wheel}[otlp]")  # fmt: skip
    (tmp_path / "quantize.py").write_text(
        "import otel_quant\nwith otel_quant.step('Calibration'): pass\n"
    )
    # As the Operator sets it. -S: only the folder has packages, as in the pod's own Python.
    path = f"{folder}/opentelemetry/instrumentation/auto_instrumentation:{folder}"
    code = "import sitecustomize, runpy; runpy.run_path('quantize.py')"
    environment = {
        "PATH": "/usr/bin:/bin", "PYTHONPATH": path, "OTEL_TRACES_EXPORTER": "console",
        "OTEL_METRICS_EXPORTER": "none", "OTEL_LOGS_EXPORTER": "none",
    }  # fmt: skip
    out = subprocess.run(
        [sys.executable, "-S", "-c", code],
        cwd=tmp_path, env=environment, check=True, capture_output=True, text=True,
    ).stdout  # fmt: skip
    assert '"name": "Calibration"' in out


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
    printed = run(
        sys.executable, "-m", "uv", "pip", "compile", "--quiet", "--no-header", "--no-annotate",
        "--extra", extra, ROOT / "pyproject.toml", wanted, cwd=folder,
    )  # fmt: skip
    pairs = (line.partition(" ")[0].split("==") for line in printed.splitlines())
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
