"""What made a run: command, machine, versions, source, and what else its span says of it."""

from __future__ import annotations

from typing import Final

from otel_quant.recordings.model import Recording
from otel_quant.schema import semconv
from otel_quant.schema.units import cut, size
from otel_quant.views.document import Facts, Section
from otel_quant.views.report.attributes import value_text
from otel_quant.views.report.subject import Subject

_LONGEST: Final = 1_000
_MOST_OTHERS: Final = 60

_GROUPS: Final[tuple[tuple[str, tuple[str, ...]], ...]] = (
    ("Program", ("process.command", "process.executable", "service.")),
    (
        "Machine",
        ("host.", "os.", "hw.", "quant.host.", "quant.memory.", "quant.gpu.", "container.", "k8s."),
    ),
    (
        "Versions",
        (
            "process.runtime.",
            "quant.otel_quant.",
            "quant.libraries",
            "quant.library.",
            "telemetry.",
        ),
    ),
    ("Source and pipeline", ("vcs.", "quant.vcs.", "cicd.")),
    (
        "Quantization",
        ("quant.input.", "quant.output.", "quant.calibration.", "quant.config.", "quant.run."),
    ),
)
"""Title of a group and how the names of its attributes begin."""

_GROUPED: Final = tuple(beginning for _, beginnings in _GROUPS for beginning in beginnings)

_NAMES: Final = {
    "process.command_line": "command",
    "process.runtime.version": "Python",
    "host.name": "host",
    "os.description": "system",
    "host.cpu.model.name": "CPU",
    "quant.host.cpu_count": "cores",
    "quant.host.cpu_limit": "limit of cores",
    "quant.memory.limit": "limit of memory",
    "quant.memory.limit_source": "limit by",
    "quant.gpu.count": "GPUs",
    "quant.gpu.names": "GPU models",
    "quant.gpu.drivers": "GPU drivers",
    "quant.gpu.memory.limit": "memory of all GPUs",
    "quant.otel_quant.version": "otel-quant",
    "quant.libraries": "libraries",
    "quant.library.name": "library",
    "vcs.ref.head.revision": "commit",
    "vcs.ref.head.name": "branch",
    "vcs.repository.url.full": "repository",
    "quant.vcs.dirty": "uncommitted changes",
    "quant.calibration.method": "calibration",
    "quant.config.name": "configuration",
    "quant.run.world_size": "ranks",
    "quant.input.path": "model read",
    "quant.input.size": "size of it",
}
"""Names for people; any other attribute is shown by its own."""

_SIZES: Final = frozenset(
    {
        semconv.MEMORY_LIMIT,
        semconv.GPU_MEMORY_LIMIT,
        "host.memory.size",
        "quant.input.size",
        "quant.output.size",
    }
)

_MEASURED: Final = (
    "quant.memory.",
    "quant.gpu.memory.",
    "quant.calibration.",
    "quant.run.",
)
"""Beginnings of names that are figures of the run, except for those below."""

_NOT_MEASURED: Final = frozenset(
    {
        semconv.MEMORY_LIMIT,
        semconv.MEMORY_LIMIT_SOURCE,
        semconv.GPU_MEMORY_LIMIT,
        semconv.CALIBRATION_METHOD,
        semconv.RUN_WORLD_SIZE,
    }
)


def origin_of(recording: Recording, subject: Subject | None) -> Section:
    """Returns what made a recording, in groups; empty ones are left out."""
    facts = dict(recording.origin)
    for run in subject.runs if subject is not None else ():
        for name, value in run.attributes.items():
            if name in _NOT_MEASURED or (
                name.startswith(_GROUPED) and not name.startswith(_MEASURED)
            ):
                facts.setdefault(name, value)
    lists = []
    for title, beginnings in _GROUPS:
        names = [name for name in facts if name.startswith(beginnings)]
        rows = tuple((_NAMES.get(name, name), _shown(name, facts.pop(name))) for name in names)
        lists.append(Facts(rows, title))
    others = [(_NAMES.get(name, name), _shown(name, value)) for name, value in facts.items()]
    left_out = len(others) - _MOST_OTHERS
    more = [("", f"{left_out:,} more are left out")] if left_out > 0 else []
    lists.append(Facts((*others[:_MOST_OTHERS], *more), "Other"))
    lists.append(Facts((("folder or file", str(recording.path)),), "Recording"))
    shown = [each for each in lists if each.rows]
    return Section("What made this run", (Section("", shown, layout="facts"),))


def _shown(name: str, value: object) -> str:
    if name in _SIZES and isinstance(value, int | float):
        return size(value)
    if isinstance(value, bool):
        return "yes" if value else "no"
    return cut(value_text(value), _LONGEST)
