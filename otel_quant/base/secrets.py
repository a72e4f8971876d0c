"""Hides secrets in what is recorded: values of arguments, and in texts what looks like one."""

from __future__ import annotations

import re
from typing import Final

HIDDEN: Final = "***"

_WORDS: Final = frozenset(
    {"apikey", "auth", "credential", "credentials", "key", "passphrase", "passwd", "password",
     "pw", "secret", "token"}
)  # fmt: skip
"""Words of a name; ``--tokenizer`` and ``--max-tokens`` have none of them."""

OPTIONS: Final[set[str]] = set()
"""Further names of options of the program whose values are secrets, as ``-p``: its parser has told them."""

_VALUES: Final[set[str]] = set()  # Those of arguments, which a message may have too
_SHORTEST: Final = 8  # Characters of one; shorter ones are words as well

_FORMS: Final = re.compile(
    r"(?i:(?<=authorization:)|(?<=authorization=)|(?<=bearer ))[^'\"]+"
    r"|\b(?:(?:hf|gh[oprsu])_[A-Za-z0-9]{30,}|github_pat_\w{40,}|A[KS]IA[A-Z0-9]{16}"
    r"|glpat-[\w-]{20,}|sk-(?:[a-z0-9]+-)*(?=\w*[0-9])\w{16,}[\w-]*|xox[abeprs]-[\w-]{20,}"
    r"|eyJ[\w-]+\.[\w-]+\.[\w-]+)"
)
"""An HTTP header's, and the forms in which services give out keys and tokens: with their lengths, as names
of models begin alike (``hf_llama_int8.onnx``, ``sk-learn-v2``)."""
_NAMED: Final = re.compile(
    r"(?i)((?:key|passwd|password|secret|token)[\"']?\s*[:=]\s*[\"']?)[^\s\"'&,}]+"
)
"""A secret with its name within an argument: of an HTTP header, an address, JSON."""
_NAMED_IN_PROSE: Final = re.compile(
    r"(?i)((?:key|token)=[\"']?|(?:\w[_-](?:key|token)|apikey|api key|passwd|password|secret)[\"']?\s*[:=]\s*[\"']?"
    rf"|--?(?:[a-z]+-)*(?:{'|'.join(sorted(_WORDS))})[\"']?[,=\s]+[\"']?)[^\s\"'&,}}\]]+"
)
"""The same within a sentence, where ``unknown key: conv1`` is none, and within a command."""
_CREDENTIALS: Final = re.compile(r"(?<=://)[^/@\s]+@")  # `user:password@` in an address


def names_secret(name: str) -> bool:
    """Whether an option, a variable or a key has a name whose value is a secret."""
    return name in OPTIONS or not _WORDS.isdisjoint(re.split("[-_.]", name.lower()))


def hide(value: str) -> str:
    """Returns what stands for the value of an argument, in messages too from now on."""
    if len(value) >= _SHORTEST:
        _VALUES.add(value)
    return HIDDEN


def without_credentials(text: str, instead: str = "") -> str:
    """Returns a text without ``user:password@`` in addresses."""
    return _CREDENTIALS.sub(instead, text)


def masked(text: str, *, is_prose: bool = False) -> str:
    """Returns an argument, or a sentence such as an exception's message, with its secrets hidden."""
    named = _NAMED_IN_PROSE if is_prose else _NAMED
    for value in _VALUES if is_prose else ():
        text = text.replace(value, HIDDEN)
    known = named.sub(rf"\1{HIDDEN}", text)
    return _FORMS.sub(HIDDEN, without_credentials(known, f"{HIDDEN}@"))
