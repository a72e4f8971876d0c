"""The version of otel-quant, which every signal's scope carries."""

from __future__ import annotations

from typing import Final

VERSION: Final = "0.1.0"
