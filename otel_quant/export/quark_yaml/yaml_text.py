"""Writes values of any kind as one line of YAML that every YAML reader reads in the same way.

Quark's file quotes every string and prints every other value as Python does. We do the same where
that is valid YAML: strings are escaped, numbers have the form that YAML 1.1 and 1.2 share, and a
value of any other type becomes a string.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Mapping, Set
from typing import Final

_MAX_DEPTH: Final = 16
_PLAIN_KEY: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_.-]*")
# Without quotes, these are null or booleans in YAML 1.1.
_RESERVED_WORDS: Final = frozenset({"null", "true", "false", "yes", "no", "on", "off", "y", "n"})
# Characters that are not printable in YAML, are a line break for some reader, or are syntax.
_TO_ESCAPE: Final = re.compile(
    '[\x00-\x1f"\\\\\x7f-\xa0\u2028\u2029\u200e\u200f\u202a-\u202e\u2066-\u2069'
    "\ud800-\udfff\ufeff\ufffe\uffff]"
)
_SHORT: Final[Mapping[str, str]] = {
    "\0": r"\0", "\a": r"\a", "\b": r"\b", "\t": r"\t", "\n": r"\n", "\v": r"\v", "\f": r"\f",
    "\r": r"\r", "\x1b": r"\e", '"': r"\"", "\\": r"\\", "\x85": r"\N", "\xa0": r"\_",
    "\u2028": r"\L", "\u2029": r"\P",
}  # fmt: skip
_COMMENT_BREAK: Final = re.compile("\r\n|[\n\r\x85\u2028\u2029]")


def quoted(text: str) -> str:
    """Writes a string as a YAML double-quoted scalar."""
    if str is not type(text):
        text = str.__str__(text)  # an Enum's own __str__ returns the member's name
    if _TO_ESCAPE.search(text):
        text = _TO_ESCAPE.sub(_escape, text)
    return f'"{text}"'


def _escape(match: re.Match[str]) -> str:
    character = match.group()
    code = ord(character)
    short = _SHORT.get(character)
    if short is not None:
        return short
    if code <= 0xFF:
        return f"\\x{code:02X}"
    if 0xD800 <= code <= 0xDFFF:
        return f"\\\\u{code:04x}"
    return f"\\u{code:04X}"


@functools.lru_cache(maxsize=256)
def key(name: str) -> str:
    """Writes a mapping's key, in quotes only if YAML needs them."""
    if _PLAIN_KEY.fullmatch(name) and name.lower() not in _RESERVED_WORDS:
        return name
    return quoted(name)


def inline(value: object, depth: int = 0) -> str:
    """Writes a value on one line."""
    match value:
        case float():
            return number(value)
        case str():
            return quoted(value)
        case bool() | None:
            return "null" if value is None else repr(value)
        case int():
            return _int(value)
        case Mapping() | list() | tuple() | Set() if depth >= _MAX_DEPTH:
            return '"..."'
        case Mapping():
            items = (f"{key(str(k))}: {inline(v, depth + 1)}" for k, v in value.items())
            return f"{{{', '.join(items)}}}"
        case list() | tuple() | Set():
            return f"[{', '.join(inline(item, depth + 1) for item in value)}]"
    to_list = getattr(value, "tolist", None)  # numpy and torch: gives Python numbers
    if callable(to_list):
        return inline(to_list(), depth + 1) if depth < _MAX_DEPTH else '"..."'
    return quoted(str(value))


def comment(text: str) -> list[str]:
    """Splits a text into lines for a comment; no line can end the comment early."""
    return [
        _TO_ESCAPE.sub(lambda match: match.group() if match.group() in '"\\\t\xa0' else _escape(match), line)
        for line in _COMMENT_BREAK.split(text)
    ]  # fmt: skip


def number(value: float) -> str:
    """Writes a number with a fraction."""
    text = float.__repr__(value)  # the repr of numpy's subclass contains its type
    if "n" in text:
        return {"nan": ".nan", "inf": ".inf", "-inf": "-.inf"}[text]
    # YAML 1.1 reads 1e-05 as a string: a number needs a decimal point.
    return text.replace("e", ".0e") if "e" in text and "." not in text else text


def _int(value: int) -> str:
    try:
        return int.__repr__(value)
    except ValueError:  # Python limits the decimal digits; hexadecimal has no limit
        return hex(value)
