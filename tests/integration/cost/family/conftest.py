"""Makes each model of the family once per session."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.integration.cost.exporting import Case
from tests.integration.cost.family.models import FAMILY


@pytest.fixture(scope="session")
def family(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Case]:
    made: dict[str, Case] = {}

    def model(name: str) -> Case:
        if name not in made:
            made[name] = FAMILY[name](tmp_path_factory.mktemp(name))
        return made[name]

    return model
