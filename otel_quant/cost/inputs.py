"""Shapes that the caller gives for a model's inputs, where the model leaves them open.

Two notations: onnx_tool's ``name:f32:1x3x224x224`` with values behind a further colon
(``scale:f32:1x2:0.25x0.25``), and ``name=1x3x224x224``.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import prod
from typing import Final, TypeAlias

from otel_quant.cost import dtypes
from otel_quant.cost.errors import CostError, printable
from otel_quant.cost.structure import Graph, Type
from otel_quant.cost.values import MAX_DATA, Value

MAX_LENGTH: Final = 1 << 40
"""Largest length that a dimension may be given."""


@dataclass(frozen=True, slots=True)
class InputSpec:
    """One input as the caller gives it.

    Attributes:
        shape: Lengths; empty for a scalar.
        dtype: Element type code, or UNKNOWN to take the model's.
        data: Elements, row-major, for inputs that carry shapes; None if they do not matter.
        origin: The option and text that it was given with, for errors; may be empty.
    """

    shape: tuple[int, ...]
    dtype: int = dtypes.UNKNOWN
    data: tuple[int | float, ...] | None = None
    origin: str = field(default="", compare=False)


InputShape: TypeAlias = Sequence[int] | InputSpec

_SHAPE: Final = r"\d+(?:[x,]\d+)*\Z"
"""A shape in text. Compiled when it is first needed: most models are costed without."""


def parse_inputs(texts: Iterable[str], *, option: str = "") -> dict[str, InputSpec]:
    """Reads input shapes as a user writes them.

    Args:
        texts: Each ``name=1x128``, ``name:1x128``, ``name:i64:1x128`` or
            ``name:i64:2:3x4``; a shape left empty (``name=``) is a scalar's. A name may
            contain colons and equals signs.
        option: What the texts were given with, for errors: ``--input``, for example.

    Returns:
        The inputs by name.

    Raises:
        CostError: A text is none of these, or names an input twice.
    """
    found: dict[str, InputSpec] = {}
    for text in texts:
        name, spec = _parse(text)
        if name in found:
            raise CostError("input shape", f"{printable(name)!r} is given twice")
        found[name] = replace(spec, origin=f"{option} {printable(text)!r}".lstrip())
    return found


def _parse(text: str) -> tuple[str, InputSpec]:
    name, equals, shape = text.rpartition("=")
    if equals and name and (not shape or re.match(_SHAPE, shape)):
        return name, InputSpec(_lengths(shape, text))
    parts = text.split(":")
    for at in range(len(parts) - 1, 0, -1):  # the name may contain colons: look from the right
        dtype = dtypes.code_of(parts[at])
        if dtype == dtypes.UNKNOWN or len(parts) - at not in (2, 3):
            continue
        shape = parts[at + 1]
        name = ":".join(parts[:at])
        if not name or not (not shape or re.match(_SHAPE, shape)):
            continue
        data = _numbers(parts[at + 2], dtype, text) if len(parts) - at == 3 else None
        lengths = _lengths(shape, text)
        if data is not None and len(data) != prod(lengths):
            raise CostError(
                "input shape",
                f"{printable(text)!r} has {len(data)} values",
                expected=f"{prod(lengths)} for shape {list(lengths)}",
            )
        return name, InputSpec(lengths, dtype, data)
    if len(parts) > 1 and re.match(_SHAPE, parts[-1]) and parts[0]:
        return ":".join(parts[:-1]), InputSpec(_lengths(parts[-1], text))
    raise CostError(
        "input shape",
        f"{printable(text)!r} is not understood",
        expected="name=1x3x224x224 or name:f32:1x3x224x224[:values]",
    )


def _lengths(text: str, whole: str) -> tuple[int, ...]:
    lengths = tuple(int(part) for part in re.split("[x,]", text)) if text else ()
    if any(length > MAX_LENGTH for length in lengths):
        raise CostError(
            "input shape",
            f"{printable(whole)!r} has a length above {MAX_LENGTH:,}",
            expected=f"lengths from 0 to {MAX_LENGTH:,}",
        )
    return lengths


def _numbers(text: str, dtype: int, whole: str) -> tuple[int | float, ...]:
    try:
        if dtype in dtypes.FLOATS:
            return tuple(float(part) for part in re.split("[x,]", text))
        return tuple(int(part) for part in re.split("[x,]", text))
    except ValueError:
        raise CostError(
            "input shape",
            f"{printable(whole)!r} has values {printable(text)!r}",
            expected=f"{dtypes.name_of(dtype)} numbers joined by x",
        ) from None


@dataclass(frozen=True, slots=True, eq=False)
class BoundInputs:
    """The main graph's inputs with every length set.

    Attributes:
        values: By name.
        symbols: Length of each symbol that a caller's shape decides.
        assumed: Length of each symbol that neither decides; an unnamed one is called after
            its input and axis, ``input[0]``.
        overridden: The model's length and the caller's wherever the caller changes one that
            the model fixes; by input and axis, as above.
    """

    values: Mapping[str, Value]
    symbols: Mapping[str, int]
    assumed: Mapping[str, int]
    overridden: Mapping[str, tuple[int, int]]


def bind_inputs(
    graph: Graph, given: Mapping[str, InputShape] | None, source: str, default: int = 1
) -> BoundInputs:
    """Sets the lengths of a graph's inputs: the caller's, else the model's, else the default.

    Args:
        graph: The main graph.
        given: Shapes by input name.
        source: The model's name, for errors.
        default: Length of a dimension that neither decides.

    Raises:
        CostError: The model has no such input, or one of another rank or type, or two
            inputs would give one symbol two lengths.
    """
    static = {tensor.name for tensor in graph.initializers}
    inputs = {info.name: info.type for info in graph.inputs if info.name not in static}
    specs = {name: _spec(name, shape) for name, shape in (given or {}).items()}
    symbols: dict[str, int] = {}
    overridden: dict[str, tuple[int, int]] = {}
    for name, spec in specs.items():
        if name not in inputs:
            raise CostError(
                source,
                f"has no input {printable(name)!r}{_by(spec)}",
                expected=_names(list(inputs)),
            )
        _refuse_misfit(name, inputs[name], spec, source)
        overridden |= _bind(name, inputs[name], spec, symbols, source)
    assumed: dict[str, int] = {}
    values: dict[str, Value] = {}
    for name, declared in inputs.items():
        chosen = specs.get(name)
        if chosen is not None:
            data = chosen.data
            if data is not None and len(data) > MAX_DATA:
                data = None
            values[name] = Value(chosen.dtype or declared.dtype, chosen.shape, data, name=name)
        elif declared.kind == "tensor" and declared.shape is not None:
            lengths: list[int] = []
            for axis, dim in enumerate(declared.shape):
                if isinstance(dim, int) and dim >= 0:
                    lengths.append(dim)
                elif isinstance(dim, str) and dim in symbols:
                    lengths.append(symbols[dim])
                else:
                    assumed[dim if isinstance(dim, str) else f"{name}[{axis}]"] = default
                    lengths.append(default)
            values[name] = Value(declared.dtype, tuple(lengths), name=name)
    return BoundInputs(values, {**assumed, **symbols}, assumed, overridden)


def _spec(name: str, shape: InputShape) -> InputSpec:
    spec = shape if isinstance(shape, InputSpec) else InputSpec(tuple(shape))
    for length in spec.shape:
        if isinstance(length, bool) or not isinstance(length, int) or not 0 <= length <= MAX_LENGTH:
            raise CostError(
                "input shape",
                f"{printable(name)!r} has a length {length!r}",
                expected=f"integers from 0 to {MAX_LENGTH:,}",
            )
    return spec


def _by(spec: InputSpec) -> str:
    return f" ({spec.origin})" if spec.origin else ""


_SHOWN_NAMES: Final = 10
"""Names of inputs that an error lists."""


def _names(names: list[str]) -> str:
    if not names:
        return "none, as the model has no inputs"
    shown = ", ".join(repr(printable(name)) for name in names[:_SHOWN_NAMES])
    left = len(names) - _SHOWN_NAMES
    return f"one of {shown}" + (f" and {left} more" if left > 0 else "")


def _refuse_misfit(name: str, declared: Type, spec: InputSpec, source: str) -> None:
    """Raises CostError if an input has another kind, type or rank than the caller gives."""
    title = f"input {printable(name)!r}"
    if declared.kind not in ("tensor", "sparse", "unknown"):
        raise CostError(
            source,
            f"{title} is given a shape{_by(spec)}",
            expected=f"none, as it is of type {declared.kind}",
        )
    if dtypes.UNKNOWN not in (spec.dtype, declared.dtype) and spec.dtype != declared.dtype:
        raise CostError(
            source,
            f"{title} is given type {dtypes.name_of(spec.dtype)}{_by(spec)}",
            expected=f"{dtypes.name_of(declared.dtype)} as the model declares it",
        )
    if declared.shape is not None and len(declared.shape) != len(spec.shape):
        raise CostError(
            source,
            f"{title} is given shape {list(spec.shape)}{_by(spec)}",
            expected=f"{len(declared.shape)} dimensions as in {list(declared.shape)}",
        )


def _bind(
    name: str, declared: Type, spec: InputSpec, symbols: dict[str, int], source: str
) -> dict[str, tuple[int, int]]:
    """Learns symbols from one given shape; returns the lengths in which it overrides the model."""
    overridden: dict[str, tuple[int, int]] = {}
    for axis, (dim, length) in enumerate(zip(declared.shape or (), spec.shape, strict=False)):
        if isinstance(dim, str):
            if symbols.setdefault(dim, length) != length:
                raise CostError(
                    source,
                    f"input {printable(name)!r} sets {printable(dim)!r} to {length}{_by(spec)}",
                    expected=f"{symbols[dim]} as elsewhere among the inputs",
                )
        elif isinstance(dim, int) and dim >= 0 and dim != length:
            overridden[f"{name}[{axis}]"] = (dim, length)
    return overridden
