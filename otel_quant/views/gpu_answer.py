"""Sentences on the memory of GPUs: its peak, and whether torch's allocator was at its limit."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from otel_quant.diagnosis.headline import of_limit
from otel_quant.recordings import summary
from otel_quant.recordings.gpus import bracket, gpu_limit, shows_all_programs
from otel_quant.recordings.model import Attributes, Recording, known, number
from otel_quant.schema import semconv
from otel_quant.schema.units import WITHIN, counted, cut, size
from otel_quant.views.steps import ShownProcess
from otel_quant.views.text import phrase

_LONGEST_NAME = 120


def gpu_sentences(recording: Recording, subject: ShownProcess) -> Iterator[str]:
    """Yields the sentence on the peak of GPU memory, and one for each step that has found no more of it."""
    yield from _peak(recording)
    steps = [each for each in subject.steps if each.step.devices]
    retried = {each.path: _retries(each.step.devices) for each in steps}
    for path, retries in retried.items():
        within = [more for other, more in retried.items() if other[:-1] == path]
        if retries > sum(within):  # not by the steps within alone
            yield (
                f"{_names([name for name, _ in path])}: torch's allocator was at its limit: "
                f"{counted(retries, 'time')} it could reserve no more, freed what it had cached and tried again."
            )


def _retries(devices: Iterable[Attributes]) -> int:
    retries = known(number(each, semconv.GPU_DEVICE_RETRIES) for each in devices)
    return int(sum(retries))


def _peak(recording: Recording) -> Iterator[str]:
    peak = summary.peak(recording, summary.GPU_TREE_PEAK)
    of_all = summary.peak(recording, summary.GPU_PEAK) if shows_all_programs(recording) else None
    limit, between = gpu_limit(recording), bracket(recording)

    def near(peak: summary.KnownValue) -> str:
        return phrase(": {}", of_limit(peak.value, limit))

    others = phrase("; all programs had {} of it at most", of_all and of_all.value, size)
    if peak is not None and peak.value:
        yield f"GPU memory {_reached(peak)}{near(peak)}{others}."
    elif between is not None and between.most:
        least, most = phrase("{}", between.least, size), size(between.most)
        among = f"between {least} and {most}" if least else f"at {most} at most"
        yield f"GPU memory peaked {f'at {most}' if least == most else among}: the driver does not tell what this program has{others}."
    elif of_all is not None and of_all.value:
        yield f"GPU memory of all programs {_reached(of_all)}{near(of_all)}."


def _reached(peak: summary.KnownValue) -> str:
    where = phrase(" in {}", [name for name, _ in peak.path], _names)
    return f"{'reached at least' if peak.is_least else 'peaked at'} {size(peak.value)}{where}"


def _names(names: list[str]) -> str:
    """Returns the name of a step behind the name of the step around it."""
    return WITHIN.join(cut(name, _LONGEST_NAME) for name in names[-2:])
