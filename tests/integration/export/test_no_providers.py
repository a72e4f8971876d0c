"""`opentelemetry-instrument` where a package is missing: one warning names it, and nobody else gets one."""

from __future__ import annotations

import os
import subprocess
import sys
import sysconfig
import venv
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Final

import pytest

import otel_quant

STEP: Final = (
    "import otel_quant\nwith otel_quant.step('Load'): pass\nwith otel_quant.step('Save'): pass\n"
)
OWN_PROVIDER: Final = """
from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider
trace.set_tracer_provider(TracerProvider())
"""
INSTRUMENT: Final = """
import sys
from opentelemetry.instrumentation.auto_instrumentation import run
sys.argv = ["opentelemetry-instrument", *sys.argv[1:]]
run()
"""
MISSING: Final = {"sdk": ("sdk", "distro"), "distro": ("distro",)}
"""What is not there, by the package that the warning names: the distro needs the SDK."""


def linked_without(folder: Path, missing: str) -> Path:
    """Returns an environment that has all installed packages but one of OpenTelemetry."""
    venv.create(folder / "env", symlinks=True)
    installed, packages = Path(sysconfig.get_path("purelib")), folder / "packages"
    (packages / "opentelemetry").mkdir(parents=True)
    gone = MISSING[missing]
    hidden = (*(f"opentelemetry_{each}" for each in gone), "opentelemetry-", "opentelemetry.")
    for each in installed.iterdir():
        if (
            each.suffix != ".pth"
            and each.name != "opentelemetry"
            and not each.name.startswith(hidden)
        ):
            (packages / each.name).symlink_to(each)
    for each in (installed / "opentelemetry").iterdir():
        if each.name not in gone:
            (packages / "opentelemetry" / each.name).symlink_to(each)
    python = f"python{sys.version_info[0]}.{sys.version_info[1]}"
    places = f"{packages}\n{Path(otel_quant.__file__).parents[1]}\n"
    (folder / "env" / "lib" / python / "site-packages" / "all.pth").write_text(places)
    return folder / "env" / "bin"


@dataclass(frozen=True)
class Instrumented:
    """Runs scripts under `opentelemetry-instrument` without a package."""

    missing: str
    folder: Path

    @cached_property
    def programs(self) -> Path:
        return linked_without(self.folder, self.missing)

    def __call__(self, script: str, **environ: str) -> str:
        """Returns what a script wrote to standard error."""
        (self.folder / "script.py").write_text(script)
        path = f"{self.programs}:{os.environ['PATH']}"
        kept = {name: each for name, each in os.environ.items() if not name.startswith("OTEL_")}
        done = subprocess.run(
            [self.programs / "python", "-c", INSTRUMENT, "python", "script.py"],
            cwd=self.folder, env={**kept, "PATH": path, **environ}, capture_output=True, text=True, check=True,
        )  # fmt: skip
        return done.stderr


@pytest.fixture(scope="module", params=MISSING)
def run(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Instrumented:
    return Instrumented(request.param, tmp_path_factory.mktemp(request.param))


def test_a_missing_package_is_named_once(run: Instrumented) -> None:
    told = f"nothing is recorded or sent: opentelemetry-{run.missing} is not installed"
    assert run(STEP).count(told) == run(STEP).count("nothing is recorded") == 1
    assert "pip install 'otel-quant[otlp]'" in run(STEP)


def test_a_program_without_steps_or_with_another_output_gets_no_warning(run: Instrumented) -> None:
    for script, environ in (
        ("import otel_quant", {}),
        (STEP, {"OTEL_QUANT_RECORD": "recorded"}),
        (STEP, {"OTEL_SDK_DISABLED": "true"}),
        (STEP, {"OTEL_QUANT_PROFILE": "profile.yaml"}),
    ):
        assert "nothing is recorded" not in run(script, **environ), environ
    if run.missing == "distro":
        assert "nothing is recorded" not in run(OWN_PROVIDER + STEP)
