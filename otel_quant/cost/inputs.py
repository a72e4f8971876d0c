"""Shapes of inputs and lengths of dimensions as a user writes them.

Two notations of shapes: onnx_tool's ``name:f32:1x3x224x224`` with values behind a further
colon (``scale:f32:1x2:0.25x0.25``), and ``name=1x3x224x224``. A length is ``name=8``, and a shape may
have such a name instead of a number: ``name=1x3xhxw``.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from math import prod
from typing import Final, NamedTuple, TypeAlias

from otel_quant.cost import dtypes
from otel_quant.cost.errors import CostError, printable

MAX_LENGTH: Final = 1 << 40
"""Largest length that a dimension may be given."""

MAX_GIVEN_RANK: Final = 64
"""Dimensions that an input may be given, as many as a model may declare."""


class InputSpec(NamedTuple):
    """One input as the caller gives it.

    Attributes:
        shape: Lengths, or names of dimensions whose lengths are given; empty for a scalar.
        dtype: Element type code, or UNKNOWN to take the model's.
        data: Elements, row-major, for inputs that carry shapes; None if they do not matter.
        origin: The option and text that it was given with, for errors; may be empty.
        if_fits: Left out, instead of an error, where the model has no such input, or one of
            another type, rank or fixed length.
    """

    shape: tuple[int | str, ...]
    dtype: int = dtypes.UNKNOWN
    data: tuple[int | float, ...] | None = None
    origin: str = ""
    if_fits: bool = False


_BEYOND: Final = 1 << 64
"""Size of a number that no integer type holds."""

_LONGEST: Final = 4000
"""Digits of a number that Python reads; it is beyond ``MAX_LENGTH`` long before."""

InputShape: TypeAlias = Sequence[int | str] | InputSpec
"""Lengths, or names of dimensions whose lengths the caller gives beside them."""


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
        found[name] = spec._replace(origin=f"{option} {printable(text)!r}".lstrip())
    return found


def names_in_shapes(inputs: Mapping[str, InputShape] | None) -> set[str]:
    """Returns the names of dimensions that given shapes have."""
    shapes = (
        spec.shape if isinstance(spec, InputSpec) else spec for spec in (inputs or {}).values()
    )
    return {length for shape in shapes for length in shape if isinstance(length, str)}


def option_text(option: str, value: str) -> str:
    """Returns an option as it is typed into a shell: ``--dim batch=8``."""
    from shlex import quote  # only for models with open lengths

    return f"{option} {quote(value)}"


def parse_dims(texts: Iterable[str]) -> dict[str, int]:
    """Reads lengths of dimensions as a user writes them, each ``name=8``.

    Raises:
        CostError: A text is not one, or names a dimension twice.
    """
    found: dict[str, int] = {}
    for text in texts:
        name, _, length = text.rpartition("=")
        if not name or not (length.isascii() and length.isdecimal()):
            raise CostError(
                "dimension", f"{printable(text)!r} is not understood", expected="name=8"
            )
        if name in found:
            raise CostError("dimension", f"{printable(name)!r} is given twice")
        found[name] = int(length[:_LONGEST])
        if found[name] > MAX_LENGTH:
            raise _too_long(text)
    return found


def _parse(text: str) -> tuple[str, InputSpec]:
    name, equals, shape = text.rpartition("=")
    if equals and name and (lengths := _shape(shape, text)) is not None:
        return name, InputSpec(lengths)
    parts = text.split(":")
    for at in range(len(parts) - 1, 0, -1):  # the name may contain colons: look from the right
        dtype = dtypes.code_of(parts[at])
        if dtype == dtypes.UNKNOWN or len(parts) - at not in (2, 3):
            continue
        lengths = _shape(parts[at + 1], text)
        name = ":".join(parts[:at])
        if not name or lengths is None:
            continue
        data = _numbers(parts[at + 2], dtype, text) if len(parts) - at == 3 else None
        numbers = [length for length in lengths if isinstance(length, int)]
        if data is not None and len(numbers) == len(lengths):
            refuse_other_values(len(data), numbers, repr(printable(text)))
        return name, InputSpec(lengths, dtype, data)
    if len(parts) > 1 and parts[0] and parts[-1]:
        lengths = _shape(parts[-1], text)
        if lengths is not None:
            return ":".join(parts[:-1]), InputSpec(lengths)
    raise CostError(
        "input shape",
        f"{printable(text)!r} is not understood",
        expected="name=1x3x224x224 or name:f32:1x3x224x224[:values]",
    )


def _shape(text: str, whole: str) -> tuple[int | str, ...] | None:
    """The lengths in a text, and names of lengths; None if it is no shape.

    Names may contain an x only where commas separate them.
    """
    named = re.search("[^\\W\\dx]", text)
    parts = re.split("," if named and "," in text else "[x,]", text) if text else ()
    shape: list[int | str] = []
    for part in parts:
        if part.isdecimal():
            shape.append(int(part[:_LONGEST]))
        elif part.isidentifier() and dtypes.code_of(part) == dtypes.UNKNOWN:
            shape.append(part)
        else:
            return None
    if any(isinstance(length, int) and length > MAX_LENGTH for length in shape):
        raise _too_long(whole)
    return tuple(shape)


def _too_long(text: str) -> CostError:
    return CostError(
        "input shape",
        f"{printable(text)!r} has a length above {MAX_LENGTH:,}",
        expected=f"lengths from 0 to {MAX_LENGTH:,}",
    )


def refuse_other_values(count: int, shape: Sequence[int], title: str) -> None:
    """Raises CostError if an input of a shape is given another number of values."""
    if count != prod(shape):
        raise CostError(
            "input shape",
            f"{title} has {count} values",
            expected=f"{prod(shape)} for shape {list(shape)}",
        )


def _numbers(text: str, dtype: int, whole: str) -> tuple[int | float, ...]:
    try:
        if dtype in dtypes.FLOATS:
            return tuple(float(part) for part in re.split("[x,]", text))
        numbers = tuple(int(part) for part in re.split("[x,]", text))
        if all(abs(number) < _BEYOND for number in numbers):
            return numbers
        raise ValueError(text)
    except ValueError:
        raise CostError(
            "input shape",
            f"{printable(whole)!r} has values {printable(text)!r}",
            expected=f"{dtypes.name_of(dtype)} numbers joined by x",
        ) from None
