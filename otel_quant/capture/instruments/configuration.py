"""What configurations of all libraries have in common: a hash, and the few attributes that each spells differently.

A configuration is read as plain data first: names of classes, their public values, and what partial functions
fill in. Nothing of that is an address or the name of a file, so its hash is the same in every process and on
every machine.
"""

from __future__ import annotations

import enum
import functools
import hashlib
import json
import os
import re
from collections.abc import Callable, Iterator, Mapping, Sequence, Set
from typing import Any, Final

from otel_quant.base.fault_boundary import FAULTS
from otel_quant.capture.instruments import PACKAGES
from otel_quant.capture.instruments.hooks import ALL, Arguments, value_at
from otel_quant.schema import semconv
from otel_quant.schema.readings import AttributeValue

_CLASS: Final = "class"

_HASH_VERSION: Final = 2
"""Raised with every change of what is hashed: hashes of two versions are not compared."""

_NOT_CONFIGURATION: Final = re.compile(
    r"(.*_)?(path|dir|directory|folder|file|filename|script|log_level|verbose)"
    r"|(.*_)?(model|data|dataset|dataloader|data_reader|loader|inputs|tokenizer|fn)"
    r"|self|args|forward_loop|model_input|model_output|step"
)
"""Names of what a configuration is applied to, and of where files are."""

_DATA: Final = re.compile(r"(.*_)?(data|dataset|dataloader|data_reader|loader|run_fn)")

_CONFIGURATIONS: Final = re.compile(r".*(Config|Scope|Param|Option|Scheme|Dtype|qtype).*")
"""Names of classes whose objects are configurations, where other objects may be data or models."""


def plain(value: Any, within: tuple[int, ...] = ()) -> Any:
    """Returns a configuration as data that JSON can hold; what is data, a model or a file is left out."""
    if isinstance(value, enum.Enum):
        return str(value.value) if isinstance(value, str) else value.name
    if isinstance(value, bool | int | float | str | None):
        return value
    kind = type(value).__name__
    if kind in ("dtype", "qscheme", "device"):  # of torch or numpy
        return str(value).removeprefix("torch.")
    if hasattr(value, "__qualname__"):
        return value.__qualname__
    if hasattr(value, "shape") and hasattr(value, "dtype"):
        return [list(value.shape), str(value.dtype)] if value.shape else value.item()
    if id(value) in within or isinstance(value, os.PathLike) or hasattr(value, "named_modules"):
        return None
    within = (*within, id(value))
    if isinstance(value, Mapping):
        return {
            str(plain(key)): plain(each, within)
            for key, each in value.items()
            if not _NOT_CONFIGURATION.fullmatch(str(key))
        }
    if isinstance(value, Set):
        return sorted((plain(each, within) for each in value), key=_text)
    if isinstance(value, Sequence) and not hasattr(value, "_asdict"):
        return [plain(each, within) for each in value]
    if isinstance(value, functools.partial):
        kind = value.func.__qualname__
        values = _filled_in(value)
    else:
        values = dict(_public(value))
    return {_CLASS: kind, **plain(values, within)}


def _filled_in(value: functools.partial[Any]) -> dict[str, Any]:
    """Returns the arguments with defaults: the type of an observer's values is often its class's, or its observer's."""
    values = Arguments(value.func).bound(value.args, value.keywords, is_whole=False)
    observer = values.get("observer")
    its = Arguments(observer) if isinstance(observer, type) else None
    of_observer = its.bound((), {}, is_whole=False) if its is not None else {}
    return {**of_observer, **values, **values.get("observer_kwargs", {})}


def _public(value: object) -> Iterator[tuple[str, Any]]:
    """Yields the public values of an object, and the private ones that properties show."""
    slots = (name for each in type(value).__mro__ for name in getattr(each, "__slots__", ()))
    for name in (*getattr(value, "__dict__", ()), *slots, *getattr(value, "_fields", ())):
        public = name.lstrip("_")
        if name == public or isinstance(getattr(type(value), public, None), property):
            yield public, getattr(value, name, None)


def _text(data: Any) -> str:
    return json.dumps(data, sort_keys=True, separators=(",", ":"))


def described(
    configuration: Any, kinds: Mapping[str, AttributeValue] | None = None
) -> dict[str, AttributeValue]:
    """Returns the hash of a configuration, and the attributes that it has under any of the usual names.

    `kinds` are the kinds of number of types that have only their bits.
    """
    with FAULTS.kept_in("description of a configuration"):
        data = plain(configuration)
        if data:
            digest = hashlib.sha256(_text(data).encode()).hexdigest()
            parts = [completed({**(kinds or {}), **part}) for part in _parts("", data)]
            hashed = f"{_HASH_VERSION}-{digest[:16]}"
            return {**agreed(parts), **_named(data), semconv.CONFIG_HASH: hashed}
    return {}


def of_arguments(arguments: Mapping[str, Any], paths: Sequence[str]) -> dict[str, AttributeValue]:
    """Returns the same of the configuration that the arguments of a call are, or are at some paths."""
    if paths == ALL:
        simple = (type(None), bool, int, float, str, enum.Enum, type, Mapping, Sequence, Set)
        found = described(
            {
                name: value
                for name, value in arguments.items()
                if isinstance(value, simple) or _CONFIGURATIONS.fullmatch(type(value).__name__)
            }
        )
        data = [value for name, value in arguments.items() if _DATA.fullmatch(name)]
        if data and all(value is None for value in data):
            found.pop(semconv.CONFIG_SAMPLES, None)  # a default, without data
        return found
    values = {path.rpartition(".")[2]: value_at(arguments, path) for path in paths}
    names = {name: value for name, value in values.items() if value is not None}
    [only, *others] = names.values() or [None]
    return described(names if others or isinstance(only, str | int | None) else only)


# --- the usual names -----------------------------------------------------------------------

_USUAL: Final = {
    name: attribute
    for attribute, names in {
        semconv.BITS: "bits nbits n_bits num_bits w_bits weight_bits weight_n_bits Bits",
        semconv.ACTIVATION_BITS: "act_bits activation_bits",
        semconv.BLOCK_SIZE: "group_size block_size block_sizes blocksize GroupSize",
        semconv.SYMMETRIC: "sym symmetric is_symmetric use_sym weight_mapping_type WeightSymmetric quantization_scheme mode",
        semconv.ACTIVATION_SYMMETRIC: "ActivationSymmetric",
        semconv.GRANULARITY: "granularity weight_granularity w_granularity strategy qscheme",
        semconv.PER_CHANNEL: "per_channel",
        semconv.WEIGHT_TYPE: "weight_type weight_dtype weights_dtype w_dtype weights quant_type data_type",
        semconv.ACTIVATION_TYPE: "activation_type activation_dtype activations_dtype act_dtype act_data_type activations",
        semconv.CALIBRATION_METHOD: "calibrate_method calibration_method act_algo",
        semconv.CONFIG_SAMPLES: "subset_size nsamples num_samples num_calibration_samples n_samples",
        semconv.ALGORITHMS: "algorithm quant_method method",
        semconv.FORMAT: "quant_format",
    }.items()
    for name in names.split()
}
_TYPE_OF: Final = {
    semconv.BITS: semconv.WEIGHT_TYPE,
    semconv.ACTIVATION_BITS: semconv.ACTIVATION_TYPE,
}
_OF_ACTIVATIONS: Final = {
    semconv.BITS: semconv.ACTIVATION_BITS,
    semconv.WEIGHT_TYPE: semconv.ACTIVATION_TYPE,
}
_ROLES: Final = re.compile(
    r"\*?(?:(?P<weight>weight)|(?P<activation>act|input)|(?P<other>output|bias|kv|scale|zero|TensorQuant)"
    # Of the model: their keys are names of layers, which may be like those before
    r"|(?P<options>extra_options)|(?P<layers>.*(fqn_to_config|layer\w*_config|local_config|dynamic)$))"
)
_TYPES_IN_NAME: Final = re.compile(
    r"(?:((?:U?Int|Float|MXFP|NVFP)\d+)(?:Dynamic|Static)Activation)?(?:((?:U?Int|Float|MXFP|NVFP)\d+)|Intx)?Weight"
)
_LIBRARIES: Final = frozenset({*PACKAGES, "quanto", "compressed-tensors"})
_GRANULARITIES: Final = re.compile(
    r"(grouped_channel|tensor(?!_group)|channel|group|block|row|token|axis)(?:wise_(\d+))?"
)
_KINDS: Final = {"INT": "int", "FLOAT": "float"}  # As AI Edge Quantizer writes kinds of numbers
_WIDTH: Final = re.compile(
    r"q?(?:u?int|b?float|nf|(?:mx_?|nv_?)?(?:fp|int))_?(\d+)[^,]*", re.IGNORECASE
)
_WITHOUT_WIDTH: Final = re.compile(r"(int|float|(?:mx_|nv_)?fp|mx_int)(?![a-z\d])([^,]*)")

_Found = Iterator[tuple[str, AttributeValue]]


def usual(arguments: Mapping[str, Any]) -> _Found:
    """Yields the attributes of the arguments of a call that have usual names."""
    for name in arguments.keys() & _USUAL.keys():
        if _USUAL[name] != semconv.CONFIG_SAMPLES:  # a default, where the data is a loader
            yield from _attributes(_USUAL[name], plain(arguments[name]))


def _named(data: Any) -> dict[str, AttributeValue]:
    """Returns the name of a configuration: its class, with that of torchao's within another."""
    if not isinstance(data, dict) or _CLASS not in data:
        return {}
    inner = data.get("base_config") or data.get("quant_type")
    kind = inner.get(_CLASS) if isinstance(inner, dict) else None
    return {semconv.CONFIG_NAME: f"{data[_CLASS]}({kind})" if kind else data[_CLASS]}


Part = dict[str, AttributeValue]
"""The attributes of a part of a model whose weights are all quantized in one way."""

_TYPED: Final = frozenset({semconv.BITS, semconv.WEIGHT_TYPE})
OF_WEIGHTS: Final = _TYPED | {
    semconv.BLOCK_SIZE, semconv.GRANULARITY, semconv.SYMMETRIC, semconv.PER_CHANNEL,
}  # fmt: skip
_SIZES: Final = (semconv.BLOCK_SIZE, semconv.GRANULARITY)
OF_PARTS: Final = {semconv.BITS: semconv.PARTS_BITS, semconv.BLOCK_SIZE: semconv.PARTS_BLOCK_SIZE}
OF_MODEL: Final = frozenset(
    {*_USUAL.values(), *OF_PARTS.values(), semconv.ACTIVATION_TYPE, semconv.WEIGHT_TYPE,
     semconv.WEIGHT_COUNT, semconv.BACKEND, semconv.CONFIG_NAME, semconv.CONFIG_HASH}
)  # fmt: skip
"""What stays with a model that was configured, whatever is done with it afterwards."""


SHOWN: Final = OF_WEIGHTS.union(OF_PARTS.values())
"""What the nodes and tensors of a written model show."""


def with_outer(outer: Mapping[str, AttributeValue], own: Mapping[str, AttributeValue]) -> Part:
    """Returns own attributes with those of what is around, which alone has the complete configuration."""
    if any(outer.get(name, own[name]) != own[name] for name in own.keys() & _TYPED) or (
        semconv.PARTS_BITS in own
    ):
        # A part of a mixture may have its activations in float.
        is_mixed = ", " in str(outer.get(semconv.WEIGHT_TYPE, ""))
        gone = SHOWN.union(_OF_ACTIVATIONS.values()) if is_mixed else SHOWN
        outer = {name: value for name, value in outer.items() if name not in gone}
    found = {**outer, **own}
    if semconv.CONFIG_HASH in outer:
        found[semconv.CONFIG_HASH] = outer[semconv.CONFIG_HASH]
    return found


def agreed(parts: Sequence[Part]) -> dict[str, AttributeValue]:
    """Returns what is true of a model: where parts differ all names, sorted; numbers of weights as a list."""
    found: dict[str, AttributeValue] = {}
    for name in dict.fromkeys(name for part in parts for name in part):
        values = list(dict.fromkeys(part[name] for part in parts if name in part))
        everywhere = name not in OF_WEIGHTS or all(name in part for part in parts)
        if len(values) == 1 and everywhere:
            found[name] = values[0]
        elif name in OF_PARTS:
            found[OF_PARTS[name]] = tuple(sorted(each for each in values if type(each) is int))
        elif name == semconv.ALGORITHMS:
            names = (each for some in values if isinstance(some, tuple) for each in some)
            found[name] = tuple(dict.fromkeys(map(str, names)))
        elif len(values) > 1 and all(isinstance(each, str) for each in values):
            found[name] = ", ".join(sorted(map(str, values), key=_in_order))
    return found


def _in_order(name: str) -> tuple[int, str]:
    """Returns what names are sorted by: int4 is before int16."""
    width = _WIDTH.fullmatch(name)
    return int(width[1]) if width else 0, name


def _parts(role: str, data: Any) -> list[Part]:
    """Returns the parts of the model that a configuration tells apart; outer values count for those within."""
    own = dict(reversed(list(_of_values(role, data))))
    nested = [(inner, part) for inner, each in _nested(role, data) for part in _parts(inner, each)]
    within = [part for inner, part in nested if inner != "options"]
    options = agreed([part for inner, part in nested if inner == "options"])
    if role == "weight" and own.keys() & _TYPED:
        return [{**agreed(within), **own}]  # an observer within has defaults of its own
    typed = [part for part in within if part.keys() & _TYPED]
    # Sizes beside no type of weights are an algorithm's own.
    rest = agreed([part for part in within if not part.keys() & _TYPED])
    shared = {name: each for name, each in rest.items() if name not in _SIZES} | own
    # What has 16 bits or more was left as it was.
    parts = [_overridden(shared, part) for part in typed if not _is_float(part)]
    if own.keys() & _TYPED or (shared and not parts):
        parts.append(shared)
    return [part | options for part in parts] or [options] * bool(options)


def _is_float(part: Part) -> bool:
    bits = part.get(semconv.BITS)
    return isinstance(bits, int) and bits >= 16


def _overridden(shared: Part, part: Part) -> Part:
    """Returns a part with what is said around it: but a width, in a number or a name, is its own."""
    width = semconv.WEIGHT_TYPE if semconv.BITS in part else semconv.BITS
    is_own = width == semconv.BITS or any(map(str.isdigit, str(shared.get(width, ""))))
    return {**{key: each for key, each in shared.items() if not (is_own and key == width)}, **part}


def _nested(role: str, data: Any) -> Iterator[tuple[str, Any]]:
    if isinstance(data, dict):
        for name, value in data.items():
            # ModelOpt has the name of the tensors beside their configuration.
            named = _ROLES.match(str(data.get("quantizer_name", name)))
            inner = named.lastgroup if named is not None and named.lastgroup else role
            yield ("" if role == "layers" else inner), value
    elif isinstance(data, list):
        yield from ((role, value) for value in data)


def _of_values(role: str, data: Any) -> _Found:
    """Yields the attributes among the values of one object, later ones below earlier ones."""
    if not isinstance(data, dict) or role in ("other", "layers"):
        return
    for name, value in data.items():
        # LLM Compressor's type is the kind of number, beside which its bits stand.
        is_type = role and (name == "dtype" or (name == "type" and value in ("int", "float")))
        attribute = semconv.WEIGHT_TYPE if is_type else _USUAL.get(name, "")
        if role == "activation":
            attribute = _OF_ACTIVATIONS.get(attribute, "")
        yield from _attributes(attribute, _KINDS.get(value, value) if is_type else value)
    if data.get("load_in_8bit") is True:  # of transformers, for bitsandbytes
        yield semconv.WEIGHT_TYPE, "int8"
    elif data.get("load_in_4bit") is True:
        yield semconv.WEIGHT_TYPE, str(data.get("bnb_4bit_quant_type"))
    kind = str(data.get(_CLASS, ""))
    if role == "weight" and "num_bits" in data and "axis" in data and not data.get("block_sizes"):
        yield semconv.PER_CHANNEL, data["axis"] is not None  # of ModelOpt
    if role == "activation":
        yield from _calibration(data, kind)
    elif not role and (types := _TYPES_IN_NAME.search(kind)):
        names = zip((semconv.ACTIVATION_TYPE, semconv.WEIGHT_TYPE), types.groups(), strict=True)
        yield from ((attribute, name.lower()) for attribute, name in names if name)


def _calibration(data: Mapping[str, Any], kind: str) -> _Found:
    """Yields the method by which the range of activations is found: the class, or the name, of an observer."""
    observer = data.get("observer", data.get("observer_cls"))  # of LLM Compressor, Quark
    if kind.endswith("Observer") and not kind.startswith("Placeholder"):
        yield semconv.CALIBRATION_METHOD, kind
    elif isinstance(observer, str) and not (data.get("dynamic") or data.get("is_dynamic")):
        yield semconv.CALIBRATION_METHOD, observer


def _attributes(attribute: str, value: Any) -> _Found:
    """Yields what a value under a usual name makes; nothing where the value does not fit the name."""
    return _READERS.get(attribute, _name)(attribute, value)


def _granularity(attribute: str, value: Any) -> _Found:
    last = value[-1] if isinstance(value, list) and value else value  # of activations, of weights
    if isinstance(last, dict):
        yield from _number(semconv.BLOCK_SIZE, last.get("group_size"))
    text = last.get(_CLASS, "") if isinstance(last, dict) else str(last)
    if granularity := _GRANULARITIES.search(text.lower()):
        yield attribute, granularity[1]
        if granularity[2]:  # BLOCKWISE_32
            yield semconv.BLOCK_SIZE, int(granularity[2])
    if text.endswith(("_affine", "_symmetric")):  # of PyTorch
        yield semconv.SYMMETRIC, text.endswith("_symmetric")


def _flag(attribute: str, value: Any) -> _Found:
    if isinstance(value, bool | str) and value in _SYMMETRIES:
        yield attribute, _SYMMETRIES[value]


def _number(attribute: str, value: Any) -> _Found:
    known = value.get("-1") if isinstance(value, dict) else value  # ModelOpt's, by axis
    known = known[0] if isinstance(known, list) and len(known) == 1 else known
    if type(known) is int and known > 0:
        yield attribute, known


def _block_size(attribute: str, value: Any) -> _Found:
    is_of_rows = "-2" in value if isinstance(value, dict) else isinstance(value, list) and value[1:]
    kind = "channel" if value == -1 else "block" if is_of_rows else ""
    yield from [(semconv.GRANULARITY, kind)] if kind else _number(attribute, value)


def _bits(attribute: str, value: Any) -> _Found:
    if isinstance(value, list):  # bits of exponent and fraction
        yield _TYPE_OF[attribute], f"float{sum(value) + 1}"
    elif (semconv.ACTIVATION_BITS, 16) not in (found := [*_number(attribute, value)]):
        yield from found  # else they are float, as they were


def _name(attribute: str, value: Any) -> Iterator[tuple[str, str]]:
    text = value.get("name") if isinstance(value, dict) else value  # of Quanto's types
    if attribute and isinstance(text, str):
        yield attribute, text


def _algorithms(attribute: str, value: Any) -> _Found:
    # What transformers calls a method may be a library.
    yield from ((name, (text,)) for name, text in _name(attribute, value) if text not in _LIBRARIES)


_SYMMETRIES: Final = {
    True: True, False: False, "SYMMETRIC": True, "ASYMMETRIC": False,
    "symmetric": True, "affine": False, "LINEAR_SYMMETRIC": True, "LINEAR": False,
}  # fmt: skip
_READERS: Final[Mapping[str, Callable[[str, Any], _Found]]] = {
    semconv.GRANULARITY: _granularity, semconv.SYMMETRIC: _flag,
    semconv.ACTIVATION_SYMMETRIC: _flag, semconv.PER_CHANNEL: _flag, semconv.BITS: _bits,
    semconv.ACTIVATION_BITS: _bits, semconv.BLOCK_SIZE: _block_size,
    semconv.CONFIG_SAMPLES: _number, semconv.ALGORITHMS: _algorithms,
}  # fmt: skip
"""What reads the values of an attribute; all others are names."""


def completed(attributes: dict[str, AttributeValue]) -> dict[str, AttributeValue]:
    """Adds what others imply: the bits of a type and the type's name with them, the granularity of a group."""
    for bits, kind in _TYPE_OF.items():
        name = str(attributes.get(kind, ""))
        if "," in name:
            continue
        if width := _WIDTH.fullmatch(name):
            if (known := attributes.setdefault(bits, int(width[1]))) != int(width[1]):
                # It is stored in a wider type
                attributes[kind] = name.replace(width[1], str(known))
        elif (parts := _WITHOUT_WIDTH.fullmatch(name)) and bits in attributes:
            attributes[kind] = f"{parts[1]}{attributes[bits]}{parts[2]}"
        elif parts:  # no type without its bits
            del attributes[kind]
    per_channel = attributes.get(semconv.PER_CHANNEL)
    if attributes.get(semconv.GRANULARITY, "group") not in ("group", "block"):
        attributes.pop(semconv.BLOCK_SIZE, None)  # a default
    if semconv.BLOCK_SIZE in attributes:
        attributes.setdefault(semconv.GRANULARITY, "group")
    elif per_channel is not None:
        attributes.setdefault(semconv.GRANULARITY, "channel" if per_channel else "tensor")
    return attributes
