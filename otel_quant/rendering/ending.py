"""How a program ended, in a few lines: printed by the launcher, `show` and the report."""

from __future__ import annotations

from collections.abc import Iterator

from otel_quant.recordings.model import Ending
from otel_quant.rendering.table import printable
from otel_quant.rendering.units import size


def ending_lines(ending: Ending) -> list[str]:
    """Returns what is to be said of an ending; nothing of a program that ended well.

    Args:
        ending: How the program ended.

    Returns:
        Lines without line breaks: the first says what happened, the others are indented.
    """
    if not _is_worth_telling(ending):
        return []
    return [printable(_headline(ending)), *(f"  {printable(line)}" for line in _details(ending))]


def _is_worth_telling(ending: Ending) -> bool:
    return bool(ending.signal or ending.process or ending.open_steps or ending.error)


def _headline(ending: Ending) -> str:
    if ending.process is not None:
        by = f" was killed by {ending.process_signal}" if ending.process_signal else " died"
        what = f"{ending.process}{by}; the program {_exit(ending)}"
    elif ending.signal is not None:
        what = f"the program was killed by {ending.signal}"
    elif ending.error is not None:
        what = f"the program failed with {ending.error}"
    else:
        what = f"the program {_exit(ending)}"
    if ending.out_of_memory == "known":
        what += ": out of memory"
    elif ending.out_of_memory == "guessed":
        what += ": out of memory, probably"
    return what if ending.where is None else f"{what}, in {ending.where}"


def _exit(ending: Ending) -> str:
    if ending.signal is not None:
        return f"was killed by {ending.signal}"
    return f"ended with exit code {ending.exit_code}"


def _details(ending: Ending) -> Iterator[str]:
    if ending.evidence is not None:
        known = {"known": "known from", "guessed": "guessed from"}
        yield f"{known.get(ending.out_of_memory or '', 'because')}: {ending.evidence}"
    if len(ending.open_steps) > 1:
        yield f"open steps: {' > '.join(ending.open_steps)}"
    if ending.memory is not None or ending.memory_limit is not None:
        yield f"memory: {_memory(ending)}"
    if ending.processes:
        yield f"largest: {', '.join(f'{name} {size(rss)}' for name, rss in ending.processes)}"
    if ending.disk:
        yield f"disk: {', '.join(f'{name} {size(taken)}' for name, taken in ending.disk)}"
    for advice in ending.advice:
        yield f"would help: {advice.text} [{advice.source}]"


def _memory(ending: Ending) -> str:
    parts = [size(ending.memory)] if ending.memory is not None else ["unknown"]
    if ending.memory_limit is not None:
        source = f" ({ending.memory_limit_source})" if ending.memory_limit_source else ""
        parts.append(f"of {size(ending.memory_limit)}{source}")
    text = " ".join(parts)
    if ending.memory_per_sample:
        text += f", {size(ending.memory_per_sample)} more with each sample"
    return text
