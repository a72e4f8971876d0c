"""Figures as texts, with their units and as many digits as they deserve."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from datetime import UTC, datetime
from typing import Final

MB: Final = 10**6
GB: Final = 10**9
WITHIN: Final = " > "  # Between the name of a step and the name of a step within it
BINARY: Final = "iB"  # End of the units of which one is 1,024 of the next smaller
_KIB: Final = 1 << 10

UNITS: Final[Mapping[str, Mapping[str, float]]] = {
    "By": {
        "B": 1, "kB": 1e3, "MB": 1e6, "GB": 1e9, "TB": 1e12,
        "KiB": _KIB, "MiB": _KIB**2, "GiB": _KIB**3, "TiB": _KIB**4,
    },
    "s": {"ms": 1e-3, "s": 1, "min": 60, "h": 3600},
    "J": {"J": 1, "kJ": 1e3, "Wh": 3600},
    "1": {"": 1, "%": 0.01},
}  # fmt: skip
"""What an amount may be written in, by its UCUM unit."""

_DECIMAL_SIZES: Final = ("B", "kB", "MB", "GB", "TB", "PB"), 1000
_BINARY_SIZES: Final = ("B", "KiB", "MiB", "GiB", "TiB", "PiB"), 1024
_SIZES: Final = ContextVar("_SIZES", default=_DECIMAL_SIZES)
"""Units of sizes, and how many of one are the next larger."""

_ROUNDED: Final = ((99.95, 0), (9.995, 1), (0, 2))
"""Sizes from which on that many decimals are shown: three digits."""

_COUNTS: Final = ((10**12, "T"), (10**9, "G"), (10**6, "M"))
_DIGITS: Final = 3


@contextmanager
def binary_sizes(is_binary: bool) -> Iterator[None]:
    """Makes sizes within it binary (``16.0 GiB``): what was asked in GiB is answered in GiB."""
    token = _SIZES.set(_BINARY_SIZES if is_binary else _SIZES.get())
    try:
        yield
    finally:
        _SIZES.reset(token)


def size(number: float) -> str:
    """Returns bytes with a unit and three digits: ``7.53 GB``.

    The unit is decimal, except within :func:`binary_sizes`.
    """
    names, base = _SIZES.get()
    position, left = 0, abs(float(number))
    while left >= 999.5 and position < len(names) - 1:
        left, position = left / base, position + 1
    decimals = next(each for least, each in _ROUNDED if left >= least) if position else 0
    return f"{'-' if number < 0 else ''}{left:.{decimals}f} {names[position]}"


def size_unit(largest: float) -> tuple[str, float, int]:
    """Returns the unit in which all of some sizes are shown: its name, its bytes, digits."""
    names, base = _SIZES.get()
    largest = largest or base**2  # of nothing in the unit that is most usual
    for power, least, digits in ((3, 10 * base**3, 2), (2, base**2, 1), (1, base, 1)):
        if largest >= least:
            return names[power], base**power, digits
    return names[0], 1, 0


def joined(texts: Sequence[str]) -> str:
    """Returns texts as a sentence lists them: ``a, b and c``."""
    return " and ".join(filter(None, (", ".join(texts[:-1]), texts[-1])))


def count_text(value: float) -> str:
    """Returns a number of things: ``25.6 M``."""
    for unit, name in _COUNTS:
        if abs(value) >= unit:
            return f"{digits_text(value / unit)} {name}"
    return f"{value:,.0f}"


def digits_text(value: float) -> str:
    """Returns a number with three digits, or all of those before the point: ``7.52``, ``1,024``."""
    whole = len(str(int(abs(value))))
    return f"{value:,.{max(0, _DIGITS - whole)}f}"


def share_text(share: float) -> str:
    """Returns a share: ``93.8 %``, ``0.41 %``."""
    percent = 100 * share
    return f"{percent:.2f} %" if 0 < abs(percent) < 1 else f"{percent:.1f} %"


def types_text(shares: Mapping[str, float]) -> str:
    """Returns the shares of some types, the largest first: ``int8 98.20 %, float32 1.80 %``."""
    least = 0.00005  # what two digits show
    return ", ".join(f"{name} {100 * part:.2f} %" for name, part in shares.items() if part >= least)


def speed_text(ratio: float) -> str:
    """Returns what a time is to another one: ``1.31 x slower``, ``3.0 x faster``."""
    times = max(ratio, 1 / ratio)
    return f"{times:.{2 if times < 2 else 1}f} x {'slower' if ratio > 1 else 'faster'}"


def change_text(ratio: float, what: str) -> str:
    """Returns how much more or less of something is needed: ``12.0 % less time``, ``3.4 times the memory``."""
    if ratio >= _TIMES:
        return f"{'twice' if ratio < _TWICE else f'{ratio:,.1f} times'} the {what}"
    return f"{share_text(abs(ratio - 1))} {'more' if ratio > 1 else 'less'} {what}"


_TIMES: Final = 1.95
"""Ratio from which on it is told how many times as much something is, not how much more."""

_TWICE: Final = 2.05


_LEAST_MS: Final = 0.0005  # Seconds that are no millisecond when they are rounded


def duration_text(seconds: float) -> str:
    """Returns a length of time: ``9 h 58 min``, ``2 min 05 s``, ``8.75 s``, ``12 ms``, ``45 us``."""
    if 0 < seconds < _LEAST_MS:
        return f"{1e6 * seconds:.0f} us"
    if seconds < 1:
        return f"{1000 * seconds:.0f} ms"
    if seconds < 60:
        return f"{digits_text(seconds)} s"
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes:02d} min" if hours else f"{minutes} min {rest:02d} s"


def part_text(seconds: float, whole: str) -> str:
    """Returns a length of time before "of" a longer one, without its unit where that is the same: ``14.8``."""
    text, _, unit = duration_text(seconds).rpartition(" ")
    is_same = " " not in text and whole.split(" ")[1:] == [unit]
    return text if is_same else f"{text} {unit}"


def _joules(energy: float) -> str:
    """Returns an energy: ``41.2 mJ``, ``512 J``, ``48.2 kJ``."""
    unit, one = ("mJ", 1e-3) if energy < 1 else ("J", 1.0) if energy < 1e4 else ("kJ", 1e3)
    return f"{digits_text(energy / one)} {unit}"


BY_UNIT: Final[Mapping[str, Callable[[float], str]]] = {
    "By": size, "s": duration_text, "J": _joules,
    "{sample}/s": lambda rate: f"{digits_text(rate)}/s", "1": share_text,
}  # fmt: skip
"""What formats a figure, by its UCUM unit."""


def clock_text(seconds: float) -> str:
    """Returns a time since the beginning, as the axis of a chart has it: ``1:02:03``, ``2:03``."""
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02d}:{rest:02d}" if hours else f"{minutes}:{rest:02d}"


def moment_of(seconds: float) -> str:
    """Returns the same in a sentence: ``850 ms``, ``12.3 s``, ``2:03``."""
    return clock_text(seconds) if seconds >= 60 else duration_text(seconds)


def moment_text(seconds: float, to: str = "seconds") -> str:
    """Returns a moment in UTC, as ISO 8601 has it without the zone: ``2026-11-22 06:59``."""
    return datetime.fromtimestamp(seconds, UTC).replace(tzinfo=None).isoformat(" ", to)


def counted(number: int, thing: str) -> str:
    """Returns a number of things in words: ``1 step``, ``1,204 steps``."""
    return f"{number:,} {thing}{'' if number == 1 else 's'}"


def cut(text: str, longest: int) -> str:
    """Returns a text on one line; of a longer one its beginning and how much is left out."""
    line = " ".join(text.split())
    left_out = len(line) - longest
    return line if left_out <= 0 else f"{line[:longest]}… ({left_out:,} more characters)"
