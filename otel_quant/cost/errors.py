"""The error of this package: a model that cannot be costed, and why."""

from __future__ import annotations

from typing import Final

LONGER: Final = "a longer one: --time-limit, in a quantization OTEL_QUANT_COST_TIMEOUT"
"""What is expected where the time limit has passed."""


class CostError(ValueError):
    """A model cannot be read or costed, or an argument makes no sense.

    Attributes:
        source: The file's path as the caller gave it, or ``<bytes>`` or ``<ModelProto>``.
        problem: What is wrong, naming the value.
        expected: What would have been right; empty if the problem leaves no doubt.
        offset: Position in the file in bytes, or None if the problem has none.
        reason: All of this but the source, for those who may not name files.
    """

    def __init__(
        self, source: str, problem: str, *, expected: str = "", offset: int | None = None
    ) -> None:
        self.source = source
        self.problem = problem
        self.expected = expected
        self.offset = offset
        self.reason = problem
        if offset is not None:
            self.reason += f" at byte {offset}"
        if expected:
            self.reason += f"; expected {expected}"
        super().__init__(f"{printable(source)}: {self.reason}")


def printable(text: str, limit: int = 200) -> str:
    """Returns text from a file as it may be shown on a terminal.

    Names come from files that may be hostile: newlines and escape sequences are
    written as escapes, and a name longer than ``limit`` characters is cut.
    """
    if len(text) > limit:
        text = text[:limit] + "..."
    return text if text.isprintable() else text.encode("unicode_escape").decode("ascii")
