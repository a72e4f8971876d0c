"""Each tool that reads a committed file finds no error in it."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import jsonschema
import pytest
import yaml

from tests.stack.processes import CONFIGS, ROOT

pytestmark = pytest.mark.servers

WORKFLOWS = [*(ROOT / ".github" / "workflows").glob("*.yml"), ROOT / "examples/ci/quantization.yml"]
LINT = ("--lint=all", "--lint-fatal")
COMMANDS = {
    "prometheus' configuration": ("promtool", "check", "config", *LINT, CONFIGS / "backends/prometheus.yaml"),
    "rules": ("promtool", "check", "rules", *LINT, ROOT / "grafana/alerts/quant.yaml"),
    "alerts": ("promtool", "test", "rules", ROOT / "tests/stack/alerts.test.yaml"),
    # It would run shellcheck and pyflakes too, where they happen to be installed.
    "workflows": ("actionlint", "-no-color", "-shellcheck=", "-pyflakes=", *sorted(WORKFLOWS)),
    **{
        f"the Collector's {name}": ("otelcol-quant", "validate", f"--config={CONFIGS / name}.yaml")
        for name in ("config", "agent", "gateway")
    },
}  # fmt: skip


@pytest.mark.parametrize("command", COMMANDS.values(), ids=COMMANDS)
def test_the_tool_finds_no_error(command: tuple[str, ...], binaries: dict[str, str]) -> None:
    tool, *arguments = command
    done = subprocess.run(
        [binaries[tool], *arguments],
        capture_output=True, text=True, check=False, cwd=ROOT / "tests" / "stack",
    )  # fmt: skip
    said = done.stdout + done.stderr
    assert done.returncode == 0, said
    assert said == "" or tool == "promtool"


def test_the_compose_file_is_as_the_schema_of_docker_compose_says(binaries: dict[str, str]) -> None:
    schema = json.loads(Path(binaries["compose-spec.json"]).read_text())
    compose = yaml.safe_load((ROOT / "docker-compose.yml").read_text())
    found = jsonschema.validators.validator_for(schema)(schema).iter_errors(compose)
    assert [error.message for error in found] == []
