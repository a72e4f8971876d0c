"""Sentences of the live view, the same in a terminal and in a log."""

from __future__ import annotations

from otel_quant.recordings.model import RecordedStep, Recording
from otel_quant.recordings.steps import PlacedStep
from otel_quant.schema.units import BY_UNIT, count_text, duration_text, share_text, size
from otel_quant.views.text import printable
from otel_quant.views.watch.figures import Usage, place


def program(recording: Recording) -> str:
    """Returns what is run: its command, or the recording's name."""
    command = recording.origin.get("process.command_line")
    return printable(str(command or recording.path.name))


def outcome(recording: Recording) -> str:
    """Returns how the whole stands."""
    ending = recording.ending
    if recording.state == "killed" and ending is not None and ending.signal:
        return f"killed by {ending.signal}"
    if recording.state == "failed" and ending is not None and ending.exit_code:
        return f"failed with exit code {ending.exit_code}"
    if recording.state == "lost":
        return "gone without having said why"
    return recording.state


def name(recording: Recording, line: PlacedStep) -> str:
    """Returns the name of a step, and of its run if there are several."""
    run = place(recording, line)
    return printable(f"{line.step.name} ({run})" if run else line.step.name)


def samples(step: RecordedStep) -> str:
    """Returns how far a step has come: ``sample 37 of 512``; empty if none were counted."""
    if step.samples is None and step.expected_samples is None:
        return ""
    of = f" of {step.expected_samples:,}" if step.expected_samples is not None else ""
    return f"sample {step.samples or 0:,}{of}"


def usage(use: Usage) -> str:
    """Returns figures in words: ``7.52 GB, peak 8.10 GB, limit 16.0 GB (50.6 % of it)``."""
    text = BY_UNIT.get(use.unit, count_text)
    texts = [text(use.now)] if use.now is not None else []
    if use.peak is not None:
        texts.append(f"peak {text(use.peak)}")
    if use.limit is not None:
        share = f" ({share_text(use.peak / use.limit)} of it)" if use.peak and use.limit else ""
        texts.append(f"limit {text(use.limit)}{share}")
    return ", ".join(texts)


def ended(line: PlacedStep, peak: float | None) -> str:
    """Returns how a step ended: ``took 2 min 05 s, peak 7.52 GB``."""
    step = line.step
    texts = [f"took {duration_text((step.end or step.start) - step.start)}"]
    if peak is not None:
        texts.append(f"peak {size(peak)}")
    if step.error is not None:
        texts.append(printable(": ".join(filter(None, (step.error, step.error_message)))))
    return ", ".join(texts)
