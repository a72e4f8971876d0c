"""Profiles and recordings as a table, Markdown, JSON or CSV."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from otel_quant.recordings.model import Recording
from otel_quant.recordings.quark_yaml import Profile
from otel_quant.views.former_document import Lines, Part, as_markdown, as_text
from otel_quant.views.profile_data import as_csv, as_json
from otel_quant.views.profile_document import parts_of
from otel_quant.views.recorded_profile import profiles_of
from otel_quant.views.recording_summary import summary_data, summary_parts


def report(
    shown: Mapping[str, Profile | Recording],
    form: str,
    most_steps: int | None = None,
    width: int | None = None,
) -> str:
    """Renders profiles and recordings."""
    if form == "table":
        return as_text(_parts(shown, most_steps), width)
    if form == "markdown":
        return as_markdown(_parts(shown, most_steps))
    profiles: dict[str, Profile] = {}
    recordings: dict[str, Mapping[str, object]] = {}
    for name, each in shown.items():
        runs = profiles_of(each) if isinstance(each, Recording) else {name: each}
        profiles |= runs
        if isinstance(each, Recording):
            recordings |= dict.fromkeys(runs or (name,), summary_data(each))
    return as_csv(profiles) if form == "csv" else as_json(profiles, recordings)


def _parts(shown: Mapping[str, Profile | Recording], most_steps: int | None) -> Iterable[Part]:
    for name, each in shown.items():
        if isinstance(each, Recording):
            yield from summary_parts(each)
        profiles = profiles_of(each) if isinstance(each, Recording) else {name: each}
        for title, profile in profiles.items():
            if len(shown) > 1 or len(profiles) > 1:
                yield Lines((title,))
            yield from parts_of(profile, most_steps)
