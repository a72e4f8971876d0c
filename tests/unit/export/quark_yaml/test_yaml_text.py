"""YAML for any value, read back by PyYAML's pure parser and by libyaml."""

from __future__ import annotations

import decimal
import enum
import math
from typing import Any

import numpy as np
import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from otel_quant.export.quark_yaml.yaml_text import comment, inline, key, quoted

READERS = [yaml.SafeLoader, yaml.CSafeLoader]


def read(text: str) -> list[Any]:
    return [yaml.load(text.encode(), Loader=reader)["value"] for reader in READERS]


class Kind(str, enum.Enum):  # noqa: UP042 - str() of this kind is not its text
    STATIC = "static"


class Level(enum.IntEnum):
    HIGH = 3


@pytest.mark.parametrize(
    ("value", "text", "back"),
    [
        ("Calibration Start", '"Calibration Start"', "Calibration Start"),
        ('say "hi" \\ C:\\new', r'"say \"hi\" \\ C:\\new"', 'say "hi" \\ C:\\new'),
        ("a\nb\tc\r\0\x1b[31m", r'"a\nb\tc\r\u0000\u001b[31m"', "a\nb\tc\r\0\x1b[31m"),
        ("\x85\u2028\u2029", r'"\u0085\u2028\u2029"', "\x85\u2028\u2029"),
        ("\x7f\x9f\ufeff\uffff", r'"\u007f\u009f\ufeff\uffff"', "\x7f\x9f\ufeff\uffff"),
        ("\u202egnp.exe", r'"\u202egnp.exe"', "\u202egnp.exe"),
        ("Kalibrierung für 量化 🚀", '"Kalibrierung für 量化 🚀"', "Kalibrierung für 量化 🚀"),
        ("bad \udcff byte", r'"bad \\udcff byte"', "bad \\udcff byte"),
        ("true", '"true"', "true"),
        (Kind.STATIC, '"static"', "static"),
        (Level.HIGH, "3", 3),
        (True, "True", True),
        (None, "null", None),
        (7, "7", 7),
        (150.5, "150.5", 150.5),
        (1e-05, "1.0e-05", 1e-05),
        (1.5e300, "1.5e+300", 1.5e300),
        (1e22, "1.0e+22", 1e22),
        (math.inf, ".inf", math.inf),
        (-math.inf, "-.inf", -math.inf),
        (np.float64(0.25), "0.25", 0.25),
        (np.float32(0.5), "0.5", 0.5),
        (np.int8(-3), "-3", -3),
        (np.bool_(True), "True", True),
        (np.arange(4).reshape(2, 2), "[[0, 1], [2, 3]]", [[0, 1], [2, 3]]),
        ({"a": [1, (2.5, None)], "no": {"b c": "d"}}, '{a: [1, [2.5, null]], "no": {"b c": "d"}}', {"a": [1, [2.5, None]], "no": {"b c": "d"}}),
        ({1: set()}, '{"1": []}', {"1": []}),
        (decimal.Decimal("1.10"), '"1.10"', "1.10"),
        (b"\x00", r'"b\'\\x00\'"'.replace("\\'", "'"), "b'\\x00'"),
    ],
)  # fmt: skip
def test_every_reader_reads_the_value_that_was_written(
    value: object, text: str, back: object
) -> None:
    assert inline(value) == text
    assert read(f"value: {text}\n") == [back, back]


def test_nan_is_written_and_read_as_nan() -> None:
    assert inline(math.nan) == ".nan"
    assert all(math.isnan(value) for value in read("value: .nan\n"))


@given(st.text(st.characters(exclude_categories=["Cs"]), max_size=40))
def test_any_string_is_read_as_it_was_written(text: str) -> None:
    line = f"value: {quoted(text)}\n"

    assert line.count("\n") == 1
    assert read(line) == [text, text]


@given(st.text(max_size=40))
def test_any_string_with_surrogates_is_one_line_of_valid_yaml(text: str) -> None:
    line = f"{key(text)}: {quoted(text)}\n"

    assert len(line.splitlines()) == 1
    assert [len(yaml.load(line.encode(), Loader=reader)) for reader in READERS] == [1, 1]


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("cpu_memory_mb", "cpu_memory_mb"),
        ("yes", '"yes"'),
        ("NULL", '"NULL"'),
        ("my metric: %", '"my metric: %"'),
        ("", '""'),
        ("- a", '"- a"'),
        ("1st", '"1st"'),
    ],
)
def test_a_key_is_quoted_only_if_yaml_needs_it(name: str, text: str) -> None:
    assert key(name) == text
    assert list(yaml.safe_load(f"{text}: 1")) == [name]


def test_no_definition_can_end_its_comment() -> None:
    assert comment('one "word"\\\n two\r\nthree: 3\x85four\u2028five\x1b\x0b') == [
        'one "word"\\', " two", "three: 3", "four", "five\\u001b\\u000b",
    ]  # fmt: skip
