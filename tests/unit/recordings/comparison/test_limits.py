"""Limits as they are written, on the command line and in the file of a repository."""

from __future__ import annotations

from pathlib import Path

import pytest

from otel_quant.recordings.comparison.gate import Limit, LimitError, find, load, parse
from otel_quant.recordings.summary import BY_NAME


@pytest.mark.parametrize(
    ("text", "step", "figure", "sign", "amount", "is_share"),
    [
        ("memory.peak=10%", None, "memory.peak", "=", 0.1, True),
        (" duration = 12.5 % ", None, "duration", "=", 0.125, True),
        ("Calibration:memory.peak=500MiB", "Calibration", "memory.peak", "=", 500 << 20, False),
        ("memory.peak <= 12 GiB", None, "memory.peak", "<=", 12 << 30, False),
        ("total:duration<=1.5h", "total", "duration", "<=", 5400, False),
        ("Load: all of it:duration=90 s", "Load: all of it", "duration", "=", 90, False),
        ("A=B <= C:cpu.time=5min", "A=B <= C", "cpu.time", "=", 300, False),
        ("calibration.sample_rate >= 40", None, "calibration.sample_rate", ">=", 40, False),
        ("model.quantized.macs<=4G", None, "model.quantized.macs", "<=", 4e9, False),
        (
            "model.quantized.integer_mac_share>=95%", None, "model.quantized.integer_mac_share",
            ">=", 0.95, False,
        ),
        ("gpu.memory.peak=5%", None, "gpu.torch_allocated.peak", "=", 0.05, True),
    ],
)  # fmt: skip
def test_a_limit_has_a_step_a_figure_and_an_amount(
    text: str, step: str | None, figure: str, sign: str, amount: float, is_share: bool
) -> None:
    assert parse(text) == Limit(text, step, BY_NAME[figure], sign, pytest.approx(amount), is_share)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (
            "memory.peak",
            "'memory.peak' is no limit; expected [STEP:]FIGURE=10%, [STEP:]FIGURE=500MiB or "
            "[STEP:]FIGURE<=12GiB",
        ),
        (
            "memory.peek=10%",
            "'memory.peek=10%': memory.peek is no figure; did you mean memory.peak? expected one "
            f"of {', '.join(BY_NAME)}",
        ),
        (
            "memory.peak=much",
            "'memory.peak=much': 'much' is no amount; expected a number and its unit, such as "
            "10%, 500MiB or 90 s",
        ),
        (
            "memory.peak=10",
            "'memory.peak=10': memory.peak cannot be given in a number without a unit; expected "
            "%, B, kB, MB, GB, TB, KiB, MiB, GiB, TiB",
        ),
        (
            "duration<=10%",
            "'duration<=10%': duration cannot be given in %; expected ms, s, min, h",
        ),
    ],
)
def test_an_error_for_an_invalid_limit_shows_a_valid_one(text: str, said: str) -> None:
    with pytest.raises(LimitError) as caught:
        parse(text)
    assert str(caught.value) == said


def test_the_file_of_a_repository_has_limits_and_budgets(tmp_path: Path) -> None:
    file = tmp_path / "otel-quant.toml"
    file.write_text(
        '[compare]\nfail-over = ["memory.peak=10%"]\nbudgets = ["memory.peak <= 12 GiB"]\n'
    )
    assert load(file) == [parse("memory.peak=10%"), parse("memory.peak <= 12 GiB")]


def test_the_file_is_found_from_a_folder_of_the_repository_and_not_above_it(
    tmp_path: Path,
) -> None:
    (tmp_path / "otel-quant.toml").touch()
    inner = tmp_path / "repository" / "models"
    inner.mkdir(parents=True)
    assert find(inner) == tmp_path / "otel-quant.toml"
    (tmp_path / "repository" / ".git").mkdir()
    assert find(inner) is None
    (tmp_path / "repository" / "otel-quant.toml").touch()
    assert find(inner) == tmp_path / "repository" / "otel-quant.toml"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("[compare", "not TOML: Expected ']' at the end of a table declaration"),
        ("[gate]", "'gate' is not known; expected a table [compare]"),
        ("compare = 1", "'compare' is not known; expected a table [compare]"),
        ("[compare]\nlimit = []", "[compare] limit is []; expected fail-over and budgets, lists"),
        ('[compare]\nbudgets = "1"', "[compare] budgets is '1'; expected fail-over and budgets"),
        ('[compare]\nbudgets = ["x"]', "budgets: 'x' is no limit; expected"),
        ("[compare]\nfail-over = [1]", "fail-over: '1' is no limit; expected"),
    ],
)
def test_an_error_for_an_unknown_entry_of_the_file_names_it(
    tmp_path: Path, text: str, said: str
) -> None:
    file = tmp_path / "otel-quant.toml"
    file.write_text(text)
    with pytest.raises(LimitError) as caught:
        load(file)
    assert str(caught.value).startswith(f"{file}: {said}")
