"""Shapes of inputs and lengths of dimensions: as a user writes them, and as a model declares them.

Users have two notations of shapes: onnx_tool's ``name:f32:1x3x224x224`` with values behind a further
colon (``scale:f32:1x2:0.25x0.25``), and ``name=1x3x224x224``. A length is ``name=8``, and a shape may
have such a name instead of a number: ``name=1x3xhxw``.

Models declare lengths as numbers, names, texts that name nothing (``?``), and sums, differences, products
and quotients of names, ``past + seq``. Nothing is guessed: a name that is not known makes the
expression unknown.
"""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from math import prod
from typing import TYPE_CHECKING, Final, NamedTuple, TypeAlias, TypeGuard

from otel_quant.cost import dtypes
from otel_quant.cost.operation import MAX_DATA, Shape, Value
from otel_quant.cost.results import Assumption, option_text
from otel_quant.cost.structure import CostError, Dim, Graph, Type, printable

if TYPE_CHECKING:
    import ast

MAX_LENGTH: Final = 1 << 40  # Largest length that a dimension may be given
MAX_GIVEN_RANK: Final = 64  # Dimensions that an input may be given, as many as a model may declare


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


_BEYOND: Final = 1 << 64  # Size of a number that no integer type holds
_LONGEST: Final = 30  # Digits of a length that are read: with fewer it is refused as too large

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
            raise _wrong(f"{printable(name)!r} is given twice")
        found[name] = spec._replace(origin=f"{option} {printable(text)!r}".lstrip())
    return found


def parse_dims(texts: Iterable[str]) -> dict[str, int]:
    """Reads lengths of dimensions as a user writes them, each ``name=8``.

    Raises:
        CostError: A text is not one, or names a dimension twice.
    """
    found: dict[str, int] = {}
    for text in texts:
        name, _, length = text.rpartition("=")
        if not name or not (length.isascii() and length.isdecimal()):
            problem = f"{printable(text)!r} is not understood"
            raise CostError("dimension", problem, expected="name=8")
        if name in found:
            raise CostError("dimension", f"{printable(name)!r} is given twice")
        found[name] = int(length[:_LONGEST])
    return found


def _parse(text: str) -> tuple[str, InputSpec]:
    name, _, shape = text.rpartition("=")
    if name and (lengths := _shape(shape)) is not None:
        return name, InputSpec(lengths)
    for colons in (2, 3):  # type and shape, perhaps values; the name may contain colons
        parts = ["", "", "", *text.rsplit(":", colons)]
        name, dtype, shape, *values = parts[-colons - 1 :]
        code = dtypes.code_of(dtype)
        if name and code != dtypes.UNKNOWN and (lengths := _shape(shape)) is not None:
            data = _numbers(values[0], code, text) if values else None
            return name, InputSpec(lengths, code, data)
    name, _, shape = text.rpartition(":")
    if name and not text.startswith(":") and shape and (lengths := _shape(shape)) is not None:
        return name, InputSpec(lengths)
    expected = "name=1x3x224x224 or name:f32:1x3x224x224[:values]"
    raise _wrong(f"{printable(text)!r} is not understood", expected)


def _shape(text: str) -> tuple[int | str, ...] | None:
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
    return tuple(shape)


def _wrong(problem: str, expected: str = "") -> CostError:
    return CostError("input shape", problem, expected=expected)


def _numbers(text: str, dtype: int, whole: str) -> tuple[int | float, ...]:
    read = float if dtype in dtypes.FLOATS else int
    try:
        numbers = tuple(read(part) for part in re.split("[x,]", text))
    except ValueError:
        numbers = ()
    if not numbers or (read is int and any(abs(number) >= _BEYOND for number in numbers)):
        problem = f"{printable(whole)!r} has values {printable(text)!r}"
        raise _wrong(problem, f"{dtypes.name_of(dtype)} numbers joined by x")
    return numbers


_NO_NAMES: Final = frozenset({"none", "null", "unknown"})
"""What exporters write, in any case, for every length that they do not know."""

_GENERATED: Final = r"unk__\d+\Z"
"""Names that tf2onnx and onnx's shape inference number; merged models have one for several lengths."""

_HYPHENATED: Final = r"[^\W\d][\w.]*(?:-[\w.]+)+\Z"
"""A name such as ``batch-size``, or a difference; exporters write blanks around a minus."""


def is_anonymous(text: str) -> bool:
    """Whether a text names nothing, so that each occurrence is a length for itself."""
    if text.lower() in _NO_NAMES or re.match(_GENERATED, text):
        return True
    if any(letter.isalpha() or letter == "_" for letter in text):
        return False
    return Symbols({}).length(text) is None  # a number is its own length


def is_name(dim: Dim) -> TypeGuard[str]:
    """Whether a length is a text that stands for the same length everywhere."""
    return isinstance(dim, str) and not is_anonymous(dim)


def parts_of(text: str, names: Collection[str]) -> frozenset[str] | None:
    """Returns the names that a length is computed from, or None if the text is a name itself."""
    if text.isidentifier():
        return None
    found: set[str] = set()
    try:
        _evaluated(text, found.add)
    except _NotAnExpressionError:
        return frozenset() if re.search(r"[+*/()%]", text) else None
    if found == {text} or (re.match(_HYPHENATED, text) and found.isdisjoint(names)):
        return None
    return frozenset(found)


def _names_of(graph: Graph) -> frozenset[str]:
    """Returns every name of a length in a graph and its bodies, those in expressions too."""
    found: set[str] = set()
    for each in graph.within():
        for info in (*each.inputs, *each.outputs, *each.value_info):
            found.update(dim for dim in info.type.shape or () if isinstance(dim, str))
    return frozenset(found).union(*(parts_of(text, found) or () for text in found))


class Symbols:
    """The lengths that texts stand for."""

    def __init__(self, known: Mapping[str, int]) -> None:
        self._known = known
        self._lengths: dict[Dim, int | None] = dict(known.items())

    def length(self, dim: Dim) -> int | None:
        """Returns a declared length; None if it is not known."""
        if isinstance(dim, int):
            return dim if dim >= 0 else None
        if dim not in self._lengths:
            self._lengths[dim] = None if not dim or dim.isidentifier() else self.computed(dim)
        return self._lengths[dim]

    def shape(self, dims: tuple[Dim, ...] | None) -> Shape | None:
        """Returns a declared shape; None if not even its rank is declared."""
        return None if dims is None else tuple(map(self.length, dims))

    def computed(self, text: str) -> int | None:
        """Returns what an expression gives, whatever is known of it as a whole."""
        try:
            return _evaluated(text, self._known.get)
        except _NotAnExpressionError:
            return None


_MAX_TEXT: Final = 1024
_MAX_NUMBER: Final = 1 << 63

_NAME: Final = r"(?<![\w.])[^\W\d][\w.]*"


class _NotAnExpressionError(ValueError):
    """A text is no expression of names, numbers and operators."""


_OPERATORS: Final[dict[str, Callable[[int, int], int | None]]] = {
    "Add": operator.add, "Sub": operator.sub, "Mult": operator.mul, "FloorDiv": operator.floordiv,
    "Mod": operator.mod, "Div": lambda a, b: None if a % b else a // b,
}  # fmt: skip
"""By the names that Python's syntax tree has for them."""


def _evaluated(text: str, lookup: Callable[[str], int | None]) -> int | None:
    """Returns the length that an expression gives; ``lookup`` knows the lengths of names."""
    import ast  # only for a model that has an expression

    names: list[str] = []

    def placeholder(match: re.Match[str]) -> str:  # a name may have dots, or be a keyword
        names.append(match.group())
        return f"_{len(names) - 1}"

    try:
        if len(text) > _MAX_TEXT:
            raise ValueError
        tree = ast.parse(re.sub(_NAME, placeholder, text.strip()), mode="eval")
        value = _value_of(tree.body, lambda name: lookup(names[int(name[1:])]))
    except ZeroDivisionError:
        return None
    except (SyntaxError, ValueError, TypeError, LookupError, MemoryError, RecursionError):
        raise _NotAnExpressionError(text) from None
    return value if value is not None and 0 <= value < _MAX_NUMBER else None


def _value_of(node: ast.expr, lookup: Callable[[str], int | None]) -> int | None:
    import ast

    match node:
        case ast.Constant(value=int(number)):
            return number
        case ast.Name(id=name):
            return lookup(name)
        case ast.UnaryOp(op=ast.USub(), operand=operand):
            return _value_of(ast.BinOp(ast.Constant(0), ast.Sub(), operand), lookup)
        case ast.BinOp(left=left, op=kind, right=right):
            function = _OPERATORS[type(kind).__name__]
            a, b = _value_of(left, lookup), _value_of(right, lookup)
            return None if a is None or b is None else function(a, b)
    raise _NotAnExpressionError(type(node).__name__)


_ASSUMED: Final = 1  # Length of a dimension that neither the caller nor the model gives


class BoundInputs(NamedTuple):
    """The main graph's inputs with every length set that can be."""

    values: Mapping[str, Value]  # By name
    symbols: Symbols  # What the model's texts for lengths stand for
    assumed: tuple[Assumption, ...]  # The lengths that neither the model nor the caller gives
    # The model's length and the caller's wherever the caller changes one that the model fixes; by
    # input and axis, ``input[0]``
    overridden: Mapping[str, tuple[int, int]]
    dims: Mapping[str, int]  # Lengths that the caller gives by name
    unused: tuple[str, ...]  # Names in `dims` that the model and the given shapes do not have


def bind_inputs(
    graph: Graph, given: Mapping[str, InputShape] | None, source: str, *,
    dims: Mapping[str, int] | None = None,
) -> BoundInputs:  # fmt: skip
    """Sets the lengths of a graph's inputs: the caller's, else the model's, else 1.

    A length that the model computes from others (``past + seq``) is computed; where it cannot
    be, it is not known. A text that names nothing (``?``) is a length for itself each time.
    """
    static = {tensor.name for tensor in graph.initializers}
    inputs = {info.name: info.type for info in graph.inputs if info.name not in static}
    dims = _checked_dims(dims or {})
    learned = _Learned(inputs, dims, source)
    for name, shape in (given or {}).items():
        learned.learn(name, shape)
    learned.refuse_contradictions()
    assumed = dict.fromkeys(learned.names_left_open(), _ASSUMED)
    symbols = Symbols({**assumed, **learned.lengths})
    assumptions = [Assumption(name, length) for name, length in assumed.items()]
    values: dict[str, Value] = {}
    for name, declared in inputs.items():
        if name in learned.given:
            spec, lengths = learned.given[name]
            data = spec.data if len(spec.data or ()) <= MAX_DATA else None
            values[name] = Value(spec.dtype or declared.dtype, lengths, data, name=name)
        elif declared.may_be_tensor:
            values[name], unnamed = _assumed_value(name, declared, symbols)
            assumptions += unnamed
    by_name = {each.name: each for each in assumptions}
    shapes = [spec.shape for spec, _ in learned.given.values()]
    known: Collection[int | str] = _names_of(graph).union(*shapes) if dims else ()
    unused = tuple(name for name in dims if name not in known)
    return BoundInputs(values, symbols, tuple(by_name.values()), learned.overridden, dims, unused)


class _Learned:
    """The shapes that the caller gives, and the lengths that they decide."""

    def __init__(self, inputs: Mapping[str, Type], dims: Mapping[str, int], source: str) -> None:
        self.lengths = dict(dims)
        self.overridden: dict[str, tuple[int, int]] = {}
        self.given: dict[str, tuple[InputSpec, tuple[int, ...]]] = {}
        self._inputs, self._dims, self._source = inputs, dims, source

    def learn(self, name: str, given: InputShape) -> None:
        """Takes one given shape, if it fits or has to."""
        spec = given if isinstance(given, InputSpec) else InputSpec(tuple(given))
        shape = _given_lengths(name, spec, self._dims)
        try:
            lengths, overridden = self._decided(name, spec, shape)
        except CostError:
            if spec.if_fits:
                return
            raise
        if not (spec.if_fits and overridden):
            self.lengths = lengths
            self.overridden |= overridden
            self.given[name] = spec, shape

    def _decided(
        self, name: str, spec: InputSpec, shape: tuple[int, ...]
    ) -> tuple[dict[str, int], dict[str, tuple[int, int]]]:
        """Returns the lengths by name with a shape's lengths, and the lengths that it overrides."""
        self._refuse_misfit(name, spec, shape)
        lengths = dict(self.lengths)
        overridden = {}
        for axis, (dim, length) in enumerate(self._pairs(name, shape)):
            if isinstance(dim, int) and 0 <= dim != length:
                overridden[f"{name}[{axis}]"] = (dim, length)
            elif is_name(dim) and (before := lengths.setdefault(dim, length)) != length:
                raise self._contradiction(name, dim, length, before, spec)
        return lengths, overridden

    def _refuse_misfit(self, name: str, spec: InputSpec, shape: tuple[int, ...]) -> None:
        """Raises CostError if there is no such input, or it has another kind, type or rank."""
        declared = self._inputs.get(name)
        given = expected = ""
        if declared is None:
            names = printable(", ".join(map(repr, self._inputs)))
            expected = f"one of {names}" if names else "none"
            problem = f"has no input {printable(name)!r}{_by(spec)}"
            raise CostError(self._source, problem, expected=expected)
        if not declared.may_be_tensor:
            given, expected = "a shape", f"none, as it is of type {declared.kind}"
        elif dtypes.UNKNOWN not in (spec.dtype, declared.dtype) and spec.dtype != declared.dtype:
            given = f"type {dtypes.name_of(spec.dtype)}"
            expected = f"{dtypes.name_of(declared.dtype)} as the model declares it"
        elif declared.shape is not None and len(declared.shape) != len(shape):
            given = f"shape {list(shape)}"
            expected = f"{len(declared.shape)} dimensions as in {list(declared.shape)}"
        if given:
            problem = f"input {printable(name)!r} is given {given}{_by(spec)}"
            raise CostError(self._source, problem, expected=expected)

    def refuse_contradictions(self) -> None:
        """Raises CostError if a given length is not what its expression gives."""
        symbols = Symbols(self.lengths)
        exact = {name: each for name, each in self.given.items() if not each[0].if_fits}
        for name, (spec, shape) in exact.items():
            for dim, length in self._pairs(name, shape):
                if is_name(dim) and not dim.isidentifier():
                    computed = symbols.computed(dim)
                    if computed not in (None, length):
                        raise self._contradiction(name, dim, length, computed, spec)

    def _pairs(self, name: str, shape: tuple[int, ...]) -> Iterator[tuple[Dim, int]]:
        """The lengths of an input as the model declares them, and as they are given."""
        return zip(self._inputs[name].shape or (), shape, strict=False)

    def names_left_open(self) -> Iterator[str]:
        """Yields the names whose lengths nothing decides."""
        shapes = [each.shape or () for name, each in self._inputs.items() if name not in self.given]
        texts = [dim for shape in shapes for dim in shape if isinstance(dim, str)]
        names = {*texts, *self.lengths}
        for dim in texts:
            if dim not in self.lengths and is_name(dim) and parts_of(dim, names) is None:
                yield dim

    def _contradiction(
        self, name: str, dim: str, length: int, other: int | None, spec: InputSpec
    ) -> CostError:
        elsewhere = "as given for it" if dim in self._dims else "as elsewhere among the inputs"
        problem = f"input {printable(name)!r} sets {printable(dim)!r} to {length}{_by(spec)}"
        return CostError(self._source, problem, expected=f"{other} {elsewhere}")


def _assumed_value(
    name: str, declared: Type, symbols: Symbols
) -> tuple[Value, Sequence[Assumption]]:
    """An input for which the caller gives no shape, and what is assumed of lengths without a name."""
    value = Value(declared.dtype, name=name)
    title, option = f"input '{printable(name)}'", option_text("--input", f"{name}=SHAPE")
    if declared.shape is None:
        value.unknown = f"{title} has no declared shape; {option} gives it one"
        return value, ()
    lengths = [*map(symbols.length, declared.shape)]
    shape = tuple(_ASSUMED if length is None else length for length in lengths)
    unnamed = []
    for axis, dim in enumerate(declared.shape):
        if lengths[axis] is not None:
            continue
        if is_name(dim):
            problem = f"the length '{printable(dim)}' of axis {axis} cannot be computed"
            value.unknown = f"{title}: {problem}; {option} gives it"
        else:
            lengths[axis] = _ASSUMED
            unnamed.append(Assumption(f"{name}[{axis}]", _ASSUMED, name, shape))
    value.shape = tuple(lengths)
    return value, unnamed


def _checked_dims(dims: Mapping[str, int]) -> Mapping[str, int]:
    for name, length in dims.items():
        _check_length("dimension", name, length)
        if is_anonymous(name):
            expected = "a name; a length without one is given with its input's shape"
            what = f"{printable(name)!r} names no dimension"
            raise CostError("dimension", what, expected=expected)
    return dims


def _check_length(what: str, name: str, length: int) -> None:
    if isinstance(length, bool) or not isinstance(length, int) or not 0 <= length <= MAX_LENGTH:
        expected = f"integers from 0 to {MAX_LENGTH:,}"
        raise CostError(what, f"{printable(name)!r} has a length {length!r}", expected=expected)


def _given_lengths(name: str, spec: InputSpec, dims: Mapping[str, int]) -> tuple[int, ...]:
    lengths: list[int] = []
    if len(spec.shape) > MAX_GIVEN_RANK:
        problem = f"{printable(name)!r} has {len(spec.shape):,} dimensions{_by(spec)}"
        raise _wrong(problem, f"at most {MAX_GIVEN_RANK}")
    for length in spec.shape:
        found = dims.get(length) if isinstance(length, str) else length
        if found is None:
            what = f"has a length {printable(str(length))!r}, which is not given{_by(spec)}"
            expected = f"{option_text('--dim', f'{length}=LENGTH')} as well"
            raise _wrong(f"{printable(name)!r} {what}", expected)
        _check_length("input shape", name, found)
        lengths.append(found)
    if spec.data is not None and len(spec.data) != prod(lengths):
        problem = f"{printable(name)!r}{_by(spec)} has {len(spec.data)} values"
        raise _wrong(problem, f"{prod(lengths)} for shape {lengths}")
    return tuple(lengths)


def _by(spec: InputSpec) -> str:
    return f" ({spec.origin})" if spec.origin else ""
