"""What a command needs and is not installed is an error that has what to install."""

from __future__ import annotations

import pytest

from otel_quant.cli.command import UserError
from otel_quant.cli.measured_models import require


def test_the_first_package_that_is_not_installed_is_named_with_its_extra() -> None:
    require("json", "pathlib")
    with pytest.raises(UserError) as caught:
        require("json", "no_such_package", "nor_this", extra="inference")
    error = "no_such_package is not installed; expected: pip install otel-quant[inference]"
    assert caught.value.lines == [error]
