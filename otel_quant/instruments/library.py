"""What there is to know of a library before it is imported: names, and nothing else."""

from __future__ import annotations

from dataclasses import dataclass, field

Reads = tuple[tuple[str, str], ...]
"""Places in the arguments of a call, and the attributes that they make."""


@dataclass(frozen=True, slots=True)
class Hook:
    """One function of a library that is to be wrapped.

    Attributes:
        module: Module that *defines* it; importing that module sets the hook.
        target: Its name there: ``function`` or ``Class.method``.
        wrap: Factory of the wrapper, as ``module:function`` so that nothing of it is
            loaded before the library is. It is called with the original function, this
            hook and the library.
        step: ``ProfileStep`` that a call is, for wrappers that open one.
        parameter: Name of the argument that the wrapper is about, where it is about one.
        filled_in: Whether the step is one that the library's own profiler does not report.
        reads: What is worth knowing beside the arguments that `arguments.py` lists: a
            place as ``parameter.attribute.attribute`` (or a key of a mapping), and the attribute that the value
            there makes. Of several for one attribute the first that is there counts.
    """

    module: str
    target: str
    wrap: str
    step: str = ""
    parameter: str = ""
    filled_in: bool = False
    reads: Reads = ()


@dataclass(frozen=True, slots=True)
class Library:
    """A quantization library.

    Attributes:
        name: What users call it in ``OTEL_QUANT_LIBRARIES``.
        distribution: Its name on the package index, for ``quant.library.name``.
        hooks: What is wrapped.
        covers: Names of libraries that it is built upon. Within its steps theirs are not
            reported: they are how it does its work.
        configuration: What tells the attributes that only its configuration objects know,
            as ``module:function``; called with the arguments of an operation by name.
        nests: Whether its steps have steps of its own within. Else what a step calls is
            how the step does its work.
        is_common: Whether many programs import it that never quantize. Nothing of ours is
            loaded for it until a hooked function is called.
    """

    name: str
    distribution: str
    hooks: tuple[Hook, ...]
    covers: frozenset[str] = field(default_factory=frozenset)
    configuration: str = ""
    nests: bool = False
    is_common: bool = False
