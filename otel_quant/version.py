"""The version of otel-quant, which every signal's scope carries."""

from __future__ import annotations

TYPE_CHECKING = False  # not typing's, which takes a third of Python's own start to load
if TYPE_CHECKING:
    from typing import Final

VERSION: Final = "0.1.0"
