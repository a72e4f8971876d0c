"""The compose file against the schema that Docker Compose itself uses."""

from __future__ import annotations

import json
from pathlib import Path

import jsonschema
import pytest
import yaml

from tests.stack.processes import ROOT


@pytest.mark.servers
def test_the_file_is_as_the_compose_specification_says(binaries: dict[str, str]) -> None:
    schema = json.loads(Path(binaries["compose-spec.json"]).read_text())
    compose = yaml.safe_load((ROOT / "docker-compose.yml").read_text())
    found = jsonschema.validators.validator_for(schema)(schema).iter_errors(compose)
    assert [error.message for error in found] == []
