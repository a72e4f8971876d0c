"""How sessions are made and how long they run, as the user asks for it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

FUSES_QUANTIZED: Final = ("extended", "all")
"""Levels at which onnxruntime puts kernels on integers in place of QDQ groups."""


@dataclass(frozen=True, slots=True)
class Options:
    """What the user asks for."""

    # Execution providers in order of preference, each with its options
    providers: tuple[tuple[str, Mapping[str, str]], ...] = ()
    threads: int | None = None  # Threads within a kernel; None for onnxruntime's own choice
    # Level of graph optimization: ``disable``, ``basic``, ``extended`` or ``all``
    level: str = "all"
    runs: int | None = None  # Timed runs of each model; None for as many as fit into ``seconds``
    seconds: float = 3.0  # Time for the timed runs of each model
    warmup: int = 3  # Runs of each model that are not timed
    custom_ops: tuple[str, ...] = ()  # Libraries of custom operators
    layers: bool = False  # Whether to compare each tensor with the first model's


@dataclass(frozen=True, slots=True)
class Subject:
    """A model with what it is fed."""

    path: str  # As the user gave it
    shapes: Mapping[str, tuple[int, ...]]  # Shape of each input
    # Elements of the inputs whose values were given, flat
    values: Mapping[str, tuple[int | float, ...]] = field(default_factory=dict)
    # Of inputs of integers that are looked up in a table: its length. Other integers are 0 or 1.
    limits: Mapping[str, int] = field(default_factory=dict)
    # Lengths that neither the model nor the user gives, which are 1, with the options that set
    # them
    assumed: tuple[str, ...] = ()
    data: str | None = None  # File that the inputs are read from; None for random ones
    # Whether the graph that onnxruntime makes of the model may be written to disk; its weights go
    # with it
    saves_graph: bool = True
    profiled_runs: int = 10  # Runs of the profiled session, at most
