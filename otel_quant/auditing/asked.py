"""What the configuration of a checkpoint asks for: the type of each module, or that it is left out."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from fnmatch import translate
from typing import Any, Final, NamedTuple, TypeAlias

_LONGEST_PATTERN: Final = 1000
_MOST_PATTERNS: Final = 100_000
_MOST_REPEATS: Final = 8
_NESTED: Final = re.compile(r"\([^()]*[*+{][^()]*\)[*+{]")  # an expression that may take for ever
_REGEX: Final = ("re:", "+:", "-:")


class AskedType(NamedTuple):
    """What a module is asked to be quantized to."""

    bits: int = 0  # Bits of a weight; 0: not known
    group: int = 0  # Inputs with one scale; 0: all
    kind: str = ""  # ``int`` or ``float``; empty: not known


_Named: TypeAlias = tuple[str, AskedType | None]
"""Modules by a part of their names, a pattern or a regular expression, and what they are to be; None: left out."""


class _NamedModules:
    """Modules that a configuration names, which are to be alike."""

    def __init__(self, patterns: Iterable[Any], asked: AskedType | None) -> None:
        self.asked = asked
        texts = [str(each)[:_LONGEST_PATTERN] for each in list(patterns)[:_MOST_PATTERNS]]
        self._parts = {each for each in texts if "*" not in each and not each.startswith(_REGEX)}
        sources = (
            re.sub("^(re|[+-]):", "", each) if each.startswith(_REGEX) else translate(each)
            for each in texts
            if each not in self._parts
        )
        self._patterns = [found for each in sources if (found := _compiled(each)) is not None]

    def has(self, name: str, parts: Iterable[str]) -> bool:
        """Whether a module is among them, of which all runs of parts are given too."""
        return not self._parts.isdisjoint(parts) or any(it.match(name) for it in self._patterns)


def _compiled(source: str) -> re.Pattern[str] | None:
    if _NESTED.search(source) or sum(map(source.count, "*+{")) > _MOST_REPEATS:
        return None
    try:
        return re.compile(source)
    except (re.error, OverflowError, RecursionError):
        return None


class AskedModel(NamedTuple):
    """What is asked of a model."""

    method: str = ""  # The layout, as transformers calls it; empty: no configuration
    known: bool = True  # Whether that is one that is known here
    default: AskedType | None = None  # Of modules that are not named
    named: Sequence[_NamedModules] = ()  # The first that has a module counts

    def of(self, name: str) -> tuple[AskedType | None, bool]:
        """Returns what a module is asked to be, None for left out, and whether the configuration names it."""
        words = name.split(".")
        parts = [
            ".".join(words[at:end])
            for at in range(len(words))
            for end in range(at + 1, len(words) + 1)
        ]
        for each in self.named:
            if each.has(name, parts):
                return each.asked, True
        return self.default, False


_LEFT_OUT: Final = (
    "ignore",
    "exclude",
    "exclude_modules",
    "modules_to_not_convert",
    "llm_int8_skip_modules",
)
_FORMATS: Final = ("", "gptq", "gptq_v2", "gemm")  # Of GPTQ and AWQ; others are of one kernel each


def asked_of(found: Mapping[str, Any], left_out: Iterable[str] = ()) -> AskedModel:
    """Returns what a quantization config asks for; ``left_out`` names more that is left out on purpose."""
    method = str(found.get("quant_method", "")).lower()
    if method == "auto-round":
        packing = str(found.get("packing_format", "auto_gptq"))
        method = next((each for each in ("gptq", "awq") if each in packing), method)
    names = [*left_out, *(name for key in _LEFT_OUT for name in _listed(found.get(key)))]
    left = _NamedModules(names, None)
    read = _READERS.get(method)
    form = str(found.get("checkpoint_format") or found.get("version") or "").lower()
    if read is None or (read is _of_integers and form not in _FORMATS):
        return AskedModel(f"{method} {form}".strip(), not method, named=[left])
    default, named = read(found)
    return AskedModel(
        method, True, default, [left, *(_NamedModules([it], own) for it, own in named)]
    )


def _integer(value: Any) -> int:
    return value if type(value) is int and 0 < value < 1 << 31 else 0


def _listed(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []


def _at(value: Any, *keys: str) -> Any:
    """Returns what lies within mappings; an empty mapping where it is none."""
    for key in keys:
        value = value.get(key) if isinstance(value, dict) else None
    return {} if value is None else value


def _items(value: Any) -> Iterable[tuple[str, Any]]:
    return value.items() if isinstance(value, dict) else ()


_Asked: TypeAlias = tuple[AskedType | None, list[_Named]]


def _of_integers(found: Mapping[str, Any]) -> _Asked:
    """GPTQ, AWQ, AutoRound: exceptions have ``dynamic`` or ``extra_config``."""

    def asked(own: Any, other: AskedType) -> AskedType:
        group = _at(own, "group_size") or _at(own, "q_group_size") or other.group
        bits = _integer(_at(own, "bits")) or _integer(_at(own, "w_bit"))
        return AskedType(bits or other.bits, _integer(group), "int")

    default = asked(found, AskedType())
    named: list[_Named] = []
    for name, own in (*_items(found.get("dynamic")), *_items(found.get("extra_config"))):
        each = asked(own, default)
        named.append((name, None if name.startswith("-:") or each.bits >= 16 else each))
    return default, [*named, ("lm_head", default if found.get("lm_head") is True else None)]


def _compressed_tensors(found: Mapping[str, Any]) -> _Asked:
    default: AskedType | None = None
    named: list[_Named] = []
    for _, each in _items(found.get("config_groups")):
        weights = _at(each, "weights")
        kind = AskedType(
            _integer(_at(weights, "num_bits")),
            _integer(_at(weights, "group_size")),
            str(_at(weights, "type")),
        )
        asked = kind if kind.bits else None
        for target in _listed(_at(each, "targets")):
            if target == "Linear":
                default = asked
            named.append((str(target), asked))
    return default, named


_ALGORITHMS: Final = {
    "FP8": (8, 0, "float"),
    "FP8_PB_WO": (8, 0, "float"),
    "FP8_PER_CHANNEL_PER_TOKEN": (8, 0, "float"),
    "NVFP4": (4, 16, "float"),
    "MXFP4": (4, 32, "float"),
    "W4A16_AWQ": (4, 128, "int"),
    "W4A8_AWQ": (4, 128, "int"),
    "W8A8_SQ_PER_CHANNEL": (8, 0, "int"),
}
"""ModelOpt's names for what weights are quantized to."""


def _modelopt(found: Mapping[str, Any]) -> _Asked:
    def asked(own: Any) -> AskedType | None:
        bits, group, kind = _ALGORITHMS.get(str(_at(own, "quant_algo")).upper(), (0, 0, ""))
        return AskedType(bits, _integer(_at(own, "group_size")) or group, kind)

    return asked(found), [(name, asked(own)) for name, own in _items(found.get("quantized_layers"))]


def _quark(found: Mapping[str, Any]) -> _Asked:
    def asked(own: Any) -> AskedType | None:
        spec = _at(own, "weight")
        spec = spec[0] if isinstance(spec, list) and spec else spec
        kind = re.search(r"(int|fp|mx)(\d\d?)", str(_at(spec, "dtype")))
        if kind is None:
            return None
        return AskedType(
            int(kind[2]), _integer(_at(spec, "group_size")), "int" if kind[1] == "int" else "float"
        )

    layers = [(name, asked(own)) for name, own in _items(found.get("layer_quant_config"))]
    return asked(found.get("global_quant_config")), layers


def _torchao(found: Mapping[str, Any]) -> _Asked:
    def asked(own: Any) -> AskedType | None:
        kind = f"{_at(own, '_type')} {_at(own, '_data', 'weight_dtype', '_data')}"
        words = re.search(r"(Float|Int|float|int)(\d)", kind.replace("Intx", ""))
        data = _at(own, "_data")
        group = _at(data, "group_size") or _at(data, "granularity", "_data", "group_size")
        return AskedType(int(words[2]), _integer(group), words[1].lower()) if words else None

    own = _at(found, "quant_type", "default")
    names = _at(own, "_data", "fqn_to_config") or _at(own, "_data", "module_fqn_to_config")
    named = [(name, asked(each)) for name, each in _items(names)]
    return asked(_at(names, "_default") if named else own), named


def _bitsandbytes(found: Mapping[str, Any]) -> _Asked:
    in_four = found.get("load_in_4bit") is True
    return AskedType(4, 64, "float") if in_four else AskedType(8, 0, "int"), []


_READERS: Final[Mapping[str, Callable[[Mapping[str, Any]], _Asked]]] = {
    "gptq": _of_integers,
    "awq": _of_integers,
    "compressed-tensors": _compressed_tensors,
    "modelopt": _modelopt,
    "quark": _quark,
    "torchao": _torchao,
    "bitsandbytes": _bitsandbytes,
    "fp8": lambda found: (AskedType(8, 0, "float"), []),
}
