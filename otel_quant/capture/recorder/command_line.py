"""The command line of a program, as it may be shown: without secrets, and without paths if asked."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

_LONGEST: Final = 1000
"""Characters that are kept."""

_HIDDEN: Final = "***"
_PATH: Final = "<path>"

_OPTION: Final = re.compile(r"--?[A-Za-z][\w-]*")
_SECRET_WORDS: Final = frozenset(
    {"apikey", "auth", "credential", "credentials", "key", "passphrase", "passwd", "password",
     "secret", "token"}
)  # fmt: skip
"""Words of an option's name; ``--tokenizer`` and ``--max-tokens`` have none of them."""
# user:password@ in an address.
_CREDENTIALS: Final = re.compile(r"(?<=://)[^/@\s]+@")
# A single word or a number cannot be a path with folders, nor a file's name with its suffix.
_WORD_OR_NUMBER: Final = re.compile(r"[\w-]*|[-+]?\d*\.\d+(?:[eE][-+]?\d+)?")


def shown_command(arguments: Sequence[str], *, paths: bool) -> str:
    """Writes a command line as it would be typed."""
    if not arguments:
        return ""
    shown = [shlex.quote(Path(arguments[0]).name), *_shown(arguments[1:], paths)]
    line = " ".join(" ".join(shown).split())
    return line if len(line) <= _LONGEST else line[: _LONGEST - 1] + "…"


def _shown(arguments: Sequence[str], paths: bool) -> Iterator[str]:
    is_secret = False
    for argument in arguments:
        if is_secret and not argument.startswith("-"):
            yield _HIDDEN
            is_secret = False
            continue
        name, equals, value = argument.partition("=")
        is_option = _OPTION.fullmatch(name) is not None
        names_secret = is_option and not _SECRET_WORDS.isdisjoint(re.split("[-_]", name.lower()))
        is_secret = names_secret and not equals
        if not is_option:
            yield _value(argument, paths)
        elif equals:
            yield f"{name}={_HIDDEN if names_secret else _value(value, paths)}"
        else:
            yield argument


def _value(text: str, paths: bool) -> str:
    if paths:
        return _CREDENTIALS.sub(f"{_HIDDEN}@", shlex.quote(text))
    is_plain = _WORD_OR_NUMBER.fullmatch(text) and len(text) < 64 and not Path(text).exists()
    return shlex.quote(text) if is_plain else _PATH
