"""What is released: the wheel has the package, does the main job where nothing else is installed, and goes beside other packages."""

from __future__ import annotations

import gzip
import json
import subprocess
import sys
import tarfile
import threading
import zipfile
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, ClassVar

import pytest
import yaml

from otel_quant.version import VERSION
from scripts import interpreters

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


@pytest.fixture(scope="module")
def injected(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of the image of the automatic instrumentation, made as the Dockerfile makes it."""
    script = "scripts/autoinstrumentation.py"
    assert f"RUN python /source/{script} /autoinstrumentation" in (ROOT / "Dockerfile").read_text()
    environment = tmp_path_factory.mktemp("pip")
    run(sys.executable, "-m", "uv", "venv", "--seed", "--python", sys.executable, environment)
    folder = tmp_path_factory.mktemp("image") / "autoinstrumentation"
    run(environment / "bin" / "python", script, folder)
    return folder


def test_what_is_put_into_a_pod_fits_every_python_and_hides_no_protobuf(injected: Path) -> None:
    names = [path.relative_to(injected).as_posix() for path in injected.rglob("*")]
    assert [name for name in names if name.endswith(".so") and ".abi3." not in name] == []
    assert [name for name in names if name.startswith(("google", "grpc", "onnx", "numpy"))] == []


class _Receiver(BaseHTTPRequestHandler):
    """Keeps what comes over OTLP as JSON, with the header that an agent of ours wants."""

    seen: ClassVar[list[tuple[str, str | None, dict[str, Any]]]] = []

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        if self.headers.get("Content-Encoding") == "gzip":
            body = gzip.decompress(body)
        self.seen.append((self.path, self.headers.get("Authorization"), json.loads(body)))
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", "2")
        self.end_headers()
        self.wfile.write(b"{}")

    def log_message(self, *_: object) -> None:
        pass


@pytest.mark.parametrize("version", ["3.11", "3.12", "3.13", "3.14"])
def test_a_pods_program_is_recorded_beside_its_own_older_protobuf(
    injected: Path, tmp_path: Path, version: str
) -> None:
    if (python := interpreters.find(version)) is None:
        pytest.skip(f"no Python {version} here")
    own = tmp_path / "own"
    run(sys.executable, "-m", "uv", "pip", "install", "--target", own, "protobuf==3.20.3", "--python", python)  # fmt: skip
    (tmp_path / "quantize.py").write_text(
        "import google.protobuf, otel_quant\n"
        "with otel_quant.step('Calibration'): print(google.protobuf.__version__)\n"
    )
    server = ThreadingHTTPServer(("127.0.0.1", 0), _Receiver)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    resources = yaml.safe_load_all((ROOT / "deploy/kubernetes/instrumentation.yaml").read_text())
    spec = next(iter(resources))["spec"]
    # As the Operator sets it. -S: only the folder and the program's own have packages, as in the pod's own Python.
    environment = {
        "PATH": "/usr/bin:/bin", "PROTOCOL_BUFFERS_PYTHON_IMPLEMENTATION": "python",
        "PYTHONPATH": f"{injected}/opentelemetry/instrumentation/auto_instrumentation:{injected}:{own}",
        **{each["name"]: each["value"] for each in spec["python"]["env"] if "value" in each},
        "OTEL_EXPORTER_OTLP_PROTOCOL": "http/protobuf",
        "OTEL_EXPORTER_OTLP_ENDPOINT": f"http://127.0.0.1:{server.server_port}",
        "OTEL_EXPORTER_OTLP_HEADERS": "Authorization=Bearer%20of-pods",
        "OTEL_RESOURCE_ATTRIBUTES": "k8s.pod.name=quantize-x7k2p",
    }  # fmt: skip
    _Receiver.seen.clear()
    code = "import sitecustomize, runpy; runpy.run_path('quantize.py')"
    done = subprocess.run(
        [python, "-S", "-c", code], cwd=tmp_path, env=environment, check=False, capture_output=True, text=True
    )  # fmt: skip
    server.shutdown()
    assert (done.returncode, done.stdout, done.stderr) == (0, "3.20.3\n", "")
    assert {(path, token) for path, token, _ in _Receiver.seen} == {
        (f"/v1/{signal}", "Bearer of-pods") for signal in ("traces", "metrics", "logs")
    }
    spans = [
        span["name"]
        for _, _, body in _Receiver.seen
        for resource in body.get("resourceSpans", ())
        for scope in resource["scopeSpans"]
        for span in scope["spans"]
    ]
    assert sorted(spans) == ["Calibration", "quantization"]


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
