"""What a session is fed: the arrays of a file, given values, or random ones, the same each time."""

from __future__ import annotations

import zlib
from collections.abc import Mapping, Sequence
from typing import Any, Final

_TYPES: Final = {
    "tensor(float)": "float32",
    "tensor(double)": "float64",
    "tensor(float16)": "float16",
    "tensor(bool)": "bool",
    **{
        f"tensor({sign}int{bits})": f"{sign}int{bits}"
        for sign in ("", "u")
        for bits in (8, 16, 32, 64)
    },
}
"""Types as onnxruntime and as numpy name them."""


class FeedError(Exception):
    """Inputs that the model does not take, or of a type for which there are none."""


def feeds(inputs: Sequence[Any], subject: Mapping[str, Any], np: Any) -> dict[str, Any]:
    """Returns an array for each input."""
    given = {} if subject["data"] is None else _loaded(subject["data"], np)
    names = [each.name for each in inputs]
    unknown = [name for name in given if name not in names]
    if unknown:
        raise FeedError(
            f"{subject['data']} has {unknown[0]!r}, which is no input; expected {', '.join(names)}"
        )
    found = {}
    for each in inputs:
        dtype = _TYPES.get(each.type)
        if dtype is None:
            raise FeedError(f"input {each.name!r} is {each.type}; expected tensors of numbers")
        if each.name in given:
            found[each.name] = _fitting(given[each.name], each, dtype, subject["data"])
        elif given:
            raise FeedError(f"{subject['data']} has no {each.name!r}, which the model takes")
        else:
            found[each.name] = _made(each.name, dtype, subject, np)
    return found


def tensor_text(dtype: object, shape: Sequence[int]) -> str:
    """Returns the type and shape of a tensor: ``float32 1x3x224x224``."""
    return f"{dtype} {'x'.join(map(str, shape)) or 'scalar'}"


def _loaded(path: str, np: Any) -> dict[str, Any]:
    try:
        with np.load(path, allow_pickle=False) as file:
            return {name: file[name] for name in file.files}
    except (OSError, ValueError, AttributeError) as error:
        reason = getattr(error, "strerror", None) or "is not a file of numpy.savez"
        raise FeedError(f"{path}: {reason}") from error


def _fitting(array: Any, wanted: Any, dtype: str, path: str) -> Any:
    lengths = [length if isinstance(length, int) else None for length in wanted.shape]
    fits = len(lengths) == array.ndim and all(
        length is None or length == own for length, own in zip(lengths, array.shape, strict=True)
    )
    if str(array.dtype) != dtype or not fits:
        raise FeedError(
            f"{path}: {wanted.name!r} is {array.dtype} {list(array.shape)}; expected {dtype} "
            f"{wanted.shape}"
        )
    return array


def _made(name: str, dtype: str, subject: Mapping[str, Any], np: Any) -> Any:
    shape = tuple(subject["shapes"][name])
    if name in subject["values"]:
        return np.asarray(subject["values"][name], dtype).reshape(shape)
    # Of the name, so that an input of several models is the same in each of them.
    random = np.random.default_rng(zlib.crc32(name.encode()))
    if dtype.startswith("float"):
        return random.standard_normal(shape, np.float32).astype(dtype)
    high = subject["limits"].get(name, 256 if dtype.endswith("int8") else 2)
    if dtype == "int8":
        return random.integers(-128, 128, shape).astype(dtype)
    return random.integers(0, 2 if dtype == "bool" else high, shape).astype(dtype)
