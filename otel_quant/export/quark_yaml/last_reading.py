"""Finds the last reading of a run that was killed: see :mod:`otel_quant.export.quark_yaml.last_reading_sink`.

The files of a folder are told apart by what is in them, because a profile may have been renamed or
copied since: by the time of the run's first checkpoint.
"""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Final

from otel_quant.recordings.quark_yaml import Profile, Record

SUFFIX: Final = ".last_reading.json"
"""How the names of these files end."""


def last_reading_of(path: Path, profile: Profile) -> Record | None:
    """Returns what a run was doing and using shortly before it was killed."""
    if profile.complete or not profile.records:
        return None
    began = profile.records[0].get("timestamp")
    latest = profile.records[-1].get("timestamp")
    for candidate in sorted(path.parent.glob(f"*{SUFFIX}")):
        try:
            record = json.loads(candidate.read_bytes())
        except (OSError, ValueError, RecursionError):
            continue
        if not isinstance(record, dict) or record.get("run_started") != began:
            continue
        taken = record.get("timestamp")
        if not isinstance(taken, float) or not isinstance(latest, float) or taken < latest:
            return None
        return {**record, "age_secs": round(max(0.0, time.time() - taken), 1)}
    return None
