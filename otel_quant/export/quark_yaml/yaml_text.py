"""Writes values of any kind as one line of YAML that every YAML reader reads in the same way.

Quark's file quotes every string and prints every other value as Python does. We do the same where
that is valid YAML: strings are escaped, numbers have the form that YAML 1.1 and 1.2 share, and a
value of any other type becomes a string.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Mapping, Set
from json.encoder import encode_basestring
from typing import Final

_PLAIN_KEY: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_.-]*")
# Without quotes, these are null or booleans in YAML 1.1.
_RESERVED_WORDS: Final = frozenset({"null", "true", "false", "yes", "no", "on", "off", "y", "n"})
# Characters that are not printable in YAML, are a line break for some reader, or change the direction of text.
_UNPRINTABLE: Final = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028\u2029\u200e\u200f\u202a-\u202e\u2066-\u2069\ufeff\ufffe\uffff]"
)
_COMMENT_BREAK: Final = re.compile("\r\n|[\n\r\x85\u2028\u2029]")


@functools.lru_cache(maxsize=256)
def quoted(text: str) -> str:
    """Writes a string as a YAML double-quoted scalar, which has all escapes of JSON."""
    return _printable(encode_basestring(_without_surrogates(text)))


def _without_surrogates(text: str) -> str:
    # An Enum's own __str__ returns the member's name.
    return str.__str__(text).encode("utf-8", "backslashreplace").decode()


def _printable(text: str) -> str:
    return _UNPRINTABLE.sub(lambda match: f"\\u{ord(match.group()):04x}", text)


@functools.lru_cache(maxsize=256)
def key(name: str) -> str:
    """Writes a mapping's key, in quotes only if YAML needs them."""
    if _PLAIN_KEY.fullmatch(name) and name.lower() not in _RESERVED_WORDS:
        return name
    return quoted(name)


def inline(value: object) -> str:
    """Writes a value on one line. One that contains itself raises RecursionError."""
    match value:
        case float():
            return number(value)
        case str():
            return quoted(value)
        case bool() | None:
            return "null" if value is None else repr(value)
        case int():
            return int.__repr__(value)
        case Mapping():
            items = (f"{key(str(name))}: {inline(item)}" for name, item in value.items())
            return f"{{{', '.join(items)}}}"
        case list() | tuple() | Set():
            return f"[{', '.join(map(inline, value))}]"
    to_list = getattr(value, "tolist", None)  # numpy and torch: gives Python numbers
    return inline(to_list()) if callable(to_list) else quoted(str(value))


def comment(text: str) -> list[str]:
    """Splits a text into lines for a comment; no line can end the comment early."""
    return [_printable(line) for line in _COMMENT_BREAK.split(_without_surrogates(text))]


def number(value: float) -> str:
    """Writes a number with a fraction."""
    text = float.__repr__(value)  # the repr of numpy's subclass contains its type
    if "n" in text:
        return {"nan": ".nan", "inf": ".inf", "-inf": "-.inf"}[text]
    # YAML 1.1 reads 1e-05 as a string: a number needs a decimal point.
    return text.replace("e", ".0e") if "e" in text and "." not in text else text
