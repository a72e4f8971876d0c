"""How sessions are made and how long they run, as the user asks for it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

FUSES_QUANTIZED: Final = ("extended", "all")
"""Levels at which onnxruntime puts kernels on integers in place of QDQ groups."""


@dataclass(frozen=True, slots=True)
class Options:
    """What the user asks for.

    Attributes:
        providers: Execution providers in order of preference, each with its options.
        threads: Threads within a kernel; None for onnxruntime's own choice.
        level: Level of graph optimization: ``disable``, ``basic``, ``extended`` or ``all``.
        runs: Timed runs of each model; None for as many as fit into ``seconds``.
        seconds: Time for the timed runs of each model.
        warmup: Runs of each model that are not timed.
        custom_ops: Libraries of custom operators.
        layers: Whether to compare each tensor with the first model's.
    """

    providers: tuple[tuple[str, Mapping[str, str]], ...] = ()
    threads: int | None = None
    level: str = "all"
    runs: int | None = None
    seconds: float = 3.0
    warmup: int = 3
    custom_ops: tuple[str, ...] = ()
    layers: bool = False


@dataclass(frozen=True, slots=True)
class Subject:
    """A model with what it is fed.

    Attributes:
        path: As the user gave it.
        shapes: Shape of each input.
        values: Elements of the inputs whose values were given, flat.
        limits: Of inputs of integers that are looked up in a table: its length. Other integers
            are 0 or 1.
        assumed: Lengths that neither the model nor the user gives, which are 1, with the options
            that set them.
        data: File that the inputs are read from; None for random ones.
        saves_graph: Whether the graph that onnxruntime makes of the model may be written to disk;
            its weights go with it.
        profiled_runs: Runs of the profiled session, at most.
    """

    path: str
    shapes: Mapping[str, tuple[int, ...]]
    values: Mapping[str, tuple[int | float, ...]] = field(default_factory=dict)
    limits: Mapping[str, int] = field(default_factory=dict)
    assumed: tuple[str, ...] = ()
    data: str | None = None
    saves_graph: bool = True
    profiled_runs: int = 10
