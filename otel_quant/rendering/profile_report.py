"""Profiles as a table, Markdown, JSON or CSV."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Final

from otel_quant.profile.reader import Profile
from otel_quant.rendering.document import Lines, Part, as_markdown, as_text
from otel_quant.rendering.profile_data import as_csv, as_json
from otel_quant.rendering.profile_document import parts_of


def report(profiles: Mapping[str, Profile], form: str) -> str:
    """Renders profiles.

    Args:
        profiles: At least one, by the name of its file.
        form: ``table``, ``markdown``, ``json`` or ``csv``.

    Returns:
        Text that ends with a line break.
    """
    return _FORMATS[form](profiles)


def _for_people(
    render: Callable[[Iterable[Part]], str],
) -> Callable[[Mapping[str, Profile]], str]:
    def text(profiles: Mapping[str, Profile]) -> str:
        parts: list[Part] = []
        for name, profile in profiles.items():
            if len(profiles) > 1:
                parts.append(Lines((name,)))
            parts += parts_of(profile)
        return render(parts)

    return text


_FORMATS: Final[Mapping[str, Callable[[Mapping[str, Profile]], str]]] = {
    "table": _for_people(as_text),
    "markdown": _for_people(as_markdown),
    "json": as_json,
    "csv": as_csv,
}
