"""What the configuration of a checkpoint asks for: the type of each module, or that it is left out."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from fnmatch import translate
from typing import Any, Final, NamedTuple, TypeAlias

_LONGEST_PATTERN: Final = 1000
_MOST_PATTERNS: Final = 100_000
_MOST_REPEATS: Final = 5
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
        self._lengths = {each.count(".") + 1 for each in self._parts}
        sources = (
            re.sub("^(re|[+-]):", "", each) if each.startswith(_REGEX) else translate(each)
            for each in texts
            if each not in self._parts
        )
        safe = [f"(?:{each})" for each in sources if _is_safe(each)]
        self._pattern = re.compile("|".join(safe)) if safe else None

    def has(self, name: str) -> bool:
        """Whether a module is among them: by its name, or a part of it."""
        words = name.split(".")
        runs = (words[at : at + n] for n in self._lengths for at in range(len(words) - n + 1))
        is_part = any(".".join(run) in self._parts for run in runs)
        return is_part or (self._pattern is not None and self._pattern.match(name) is not None)


def _is_safe(source: str) -> bool:
    """Whether an expression makes sense, and cannot take for ever."""
    try:
        re.compile(source)
    except (re.error, OverflowError, RecursionError):
        return False
    return not _NESTED.search(source) and sum(map(source.count, "*+{")) <= _MOST_REPEATS


class AskedModel(NamedTuple):
    """What is asked of a model."""

    method: str = ""  # The layout, as transformers calls it; empty: no configuration
    known: bool = True  # Whether that is one that is known here
    default: AskedType | None = None  # Of modules that are not named
    named: Sequence[_NamedModules] = ()  # The first that has a module counts
    is_fake: bool = False  # Whether floats were written, rounded to what was asked for
    is_second: bool = False  # Whether it is the second format of GPTQ

    def of(self, name: str) -> tuple[AskedType | None, bool]:
        """Returns what a module is asked to be, None for left out, and whether the configuration names it."""
        for each in self.named:
            if each.has(name):
                return each.asked, True
        return self.default, False


_LEFT_OUT: Final = "ignore exclude exclude_modules modules_to_not_convert llm_int8_skip_modules"
"""Where configurations have what is left out."""

_PACKINGS: Final = ("gptq", "awq", "fp8", "llm_compressor")  # Of AutoRound
_FORMATS: Final = ("", "gptq", "gptq_v2", "gemm")
"""Of GPTQ, whose second one has zero points as they are, and AWQ; others are of one kernel each."""

_SPARSE: Final = ("marlin", "sparse")  # Formats of compressed-tensors that are laid out otherwise


def asked_of(found: Mapping[str, Any], left_out: Iterable[str] = ()) -> AskedModel:
    """Returns what a quantization config asks for; ``left_out`` names more that is left out on purpose."""
    method = str(found.get("quant_method", "")).lower()
    if method == "auto-round":
        packing = str(found.get("packing_format", "auto_gptq"))
        method = next((each for each in _PACKINGS if each in packing), method)
    names = [*left_out, *(name for key in _LEFT_OUT.split() for name in _listed(found.get(key)))]
    form = str(found.get("checkpoint_format") or found.get("version") or "").lower()
    read = _READERS.get(method)
    if read is _of_integers and form not in _FORMATS:
        read, method = None, f"{method} {form}"
    elif method == "compressed-tensors" and str(found.get("format")).startswith(_SPARSE):
        read, method = None, f"{method} {found['format']}"
    default, named = read(found) if read is not None else (None, [])
    rules = [_NamedModules(names, None), *(_NamedModules([it], own) for it, own in named)]
    is_fake = _at(found, "export", "weight_format") == "fake_quantized" or (
        str(_at(found, "global_quant_config", "weight", "dtype")).endswith("float16")
    )
    return AskedModel(
        method, read is not None or not method, default, rules, is_fake, form == "gptq_v2"
    )


def integer(value: Any) -> int:
    """Returns a number of weights or bits; 0 for what is none."""
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
    kind = "float" if "fp" in str(found.get("data_type")) else "int"  # of AutoRound alone

    def asked(own: Any, other: AskedType) -> AskedType:
        group = _at(own, "group_size") or _at(own, "q_group_size") or other.group
        bits = integer(_at(own, "bits")) or integer(_at(own, "w_bit"))
        return AskedType(bits or other.bits, integer(group), kind)

    default = asked(found, AskedType())
    named: list[_Named] = []
    for name, own in (*_items(found.get("dynamic")), *_items(found.get("extra_config"))):
        each = asked(own, default)
        named.append((name, None if name.startswith("-:") or each.bits >= 16 else each))
    if inside := _listed(found.get("modules_in_block_to_quantize")):
        texts = [it for each in inside for it in (each if isinstance(each, list) else [each])]
        return None, [*named, *((str(each), default) for each in texts)]
    return default, [*named, ("lm_head", default if found.get("lm_head") is True else None)]


def _compressed_tensors(found: Mapping[str, Any]) -> _Asked:
    default: AskedType | None = None
    named: list[_Named] = []
    for _, each in _items(found.get("config_groups")):
        bits, group = (integer(_at(each, "weights", it)) for it in ("num_bits", "group_size"))
        asked = AskedType(bits, group, str(_at(each, "weights", "type"))) if bits else None
        targets = [str(it) for it in _listed(_at(each, "targets"))]
        named += [(it, asked) for it in targets]
        default = asked if "Linear" in targets else default
    return default, named


_GROUPS: Final = {"NVFP4": 16, "MXFP4": 32, "AWQ": 128}  # Where ModelOpt names no size


def _modelopt(found: Mapping[str, Any]) -> _Asked:
    def asked(own: Any) -> AskedType | None:
        # FP8_PB_WO, NVFP4, W4A16_AWQ, W8A8_SQ_PER_CHANNEL
        name, group = str(_at(own, "quant_algo")).upper(), integer(_at(own, "group_size"))
        group = group or next((each for key, each in _GROUPS.items() if key in name), 0)
        words = re.match(r"(?:NV|MX)?(FP|W)(\d)", name)
        kind = "int" if words and words[1] == "W" else "float"
        return AskedType(int(words[2]), group, kind) if words else AskedType()

    return asked(found), [(name, asked(own)) for name, own in _items(found.get("quantized_layers"))]


def _quark(found: Mapping[str, Any]) -> _Asked:
    def asked(own: Any) -> AskedType | None:
        spec = _at(own, "weight")
        spec = spec[0] if isinstance(spec, list) and spec else spec
        words = re.search(r"(int|fp|mx)(\d)", str(_at(spec, "dtype")))
        kind = "int" if words and words[1] == "int" else "float"
        return AskedType(int(words[2]), integer(_at(spec, "group_size")), kind) if words else None

    layers = [(name, asked(own)) for name, own in _items(found.get("layer_quant_config"))]
    return asked(found.get("global_quant_config")), layers


def _torchao(found: Mapping[str, Any]) -> _Asked:
    def asked(own: Any) -> AskedType | None:
        data = _at(own, "_data")
        kind = f"{_at(data, 'weight_dtype', '_data')} {_at(own, '_type')}"
        words = re.search(r"(float|int)(\d)(?=Weight|_| )", kind, re.IGNORECASE)
        grains = (_at(data, it, "_data") for it in ("granularity", "weight_granularity"))
        group = next((size for it in (data, *grains) if (size := _at(it, "group_size"))), 0)
        return AskedType(int(words[2]), integer(group), words[1].lower()) if words else None

    own = _at(found, "quant_type", "default")
    names = _at(own, "_data", "fqn_to_config") or _at(own, "_data", "module_fqn_to_config")
    named = [(name, asked(each)) for name, each in _items(names)]
    return asked(_at(names, "_default") if named else own), named


def _bitsandbytes(found: Mapping[str, Any]) -> _Asked:
    is_four = found.get("load_in_4bit") is True
    return AskedType(4, 64, "float") if is_four else AskedType(8, 0, "int"), []


_READERS: Final[Mapping[str, Callable[[Mapping[str, Any]], _Asked]]] = {
    **dict.fromkeys(("gptq", "awq", "llm_compressor"), _of_integers),
    "compressed-tensors": _compressed_tensors,
    "modelopt": _modelopt,
    "quark": _quark,
    "torchao": _torchao,
    "bitsandbytes": _bitsandbytes,
    "fp8": lambda _: (AskedType(8, 0, "float"), []),
}
