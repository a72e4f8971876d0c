"""Sentences on the memory of GPUs: its peak, and whether torch's allocator was at its limit."""

from __future__ import annotations

from collections.abc import Iterator

from otel_quant.diagnosis.headline import names_text, peak_sentence
from otel_quant.recordings import summary
from otel_quant.recordings.gpus import bracket, gpu_limit, shows_all_programs
from otel_quant.recordings.model import Recording, known, number
from otel_quant.schema import semconv
from otel_quant.schema.units import counted, size
from otel_quant.views.steps import ShownProcess
from otel_quant.views.text import phrase


def gpu_sentences(recording: Recording, subject: ShownProcess) -> Iterator[str]:
    """Yields the sentence on the peak of GPU memory, and one for each step that has found no more of it."""
    yield from _peak(recording)
    retried = {
        each.path: sum(known(number(of, semconv.GPU_DEVICE_RETRIES) for of in each.step.devices))
        for each in subject.steps
        if each.step.devices
    }
    for path, retries in retried.items():
        within = [more for other, more in retried.items() if other[:-1] == path]
        if retries > sum(within):  # not by the steps within alone
            yield (
                f"{names_text([name for name, _ in path])}: torch's allocator was at its limit: "
                f"{counted(int(retries), 'time')} it could reserve no more, freed what it had cached and tried again."
            )


def _peak(recording: Recording) -> Iterator[str]:
    peak = summary.peak(recording, summary.GPU_TREE_PEAK)
    of_all = summary.peak(recording, summary.GPU_PEAK) if shows_all_programs(recording) else None
    between = bracket(recording)

    def sentence(what: str, peak: summary.KnownValue, more: str = "") -> str:
        where = phrase(" in {}", [name for name, _ in peak.path], names_text)
        near, is_least = gpu_limit(recording), peak.is_least
        return peak_sentence(peak.value, where, near, what=what, is_least=is_least, more=more)

    others = phrase("; all programs had {} of it at most", of_all and of_all.value, size)
    if peak is not None and peak.value:
        yield sentence("GPU memory", peak, others)
    elif between is not None and between.most:
        least, most = phrase("{}", between.least, size), size(between.most)
        among = f"between {least} and {most}" if least else f"at {most} at most"
        yield f"GPU memory peaked {f'at {most}' if least == most else among}: the driver does not tell what this program has{others}."
    elif of_all is not None and of_all.value:
        yield sentence("GPU memory of all programs", of_all)
