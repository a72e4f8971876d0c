"""Reads what a safetensors checkpoint has by its headers: names, types, shapes and places, no weights; never a pickle.

Files may be hostile: how long headers, names and shapes are and how many there are is bounded, and no file outside the
folder is opened.
"""

from __future__ import annotations

import json
import re
import stat
from collections.abc import Iterable, Iterator, Mapping
from math import prod
from pathlib import Path
from typing import Any, Final, NamedTuple

from otel_quant.auditing.results import Problems
from otel_quant.schema.units import counted, size

_MOST_HEADER: Final = 100_000_000  # Bytes, as the safetensors library has it
_MOST_OTHER: Final = 1 << 26  # Bytes of an index or a configuration
_MOST_TENSORS: Final = 1_000_000
_LONGEST_NAME: Final = 512
_MOST_LENGTHS: Final = 8  # Dimensions of a tensor
_LONGEST: Final = 1 << 50  # Elements, and bytes
_LATER: Final = 60.0  # Seconds after the index from which on a shard counts as later
_FILES: Final = "*.safetensors"
_SINGLE: Final = "model.safetensors"
_INDEX: Final = f"{_FILES}.index.json"
_SHARD: Final = re.compile(r"-(\d+)-of-(\d+)\.safetensors$")
_PICKLES: Final = (".bin", ".pt", ".pth", ".ckpt", ".pkl")
_ENTRY: Final = {"dtype", "shape", "data_offsets"}

_TYPES: Final = "4 F4, 6 F6_E2M3 F6_E3M2, 8 BOOL U8 I8 F8_E4M3 F8_E5M2 F8_E8M0 F8_E4M3FNUZ F8_E5M2FNUZ, 16 U16 I16 F16 BF16, 32 U32 I32 F32, 64 U64 I64 F64 C64"
BITS: Final = {
    name: int(bits) for bits, *names in map(str.split, _TYPES.split(", ")) for name in names
}
"""Bits of an element, by what safetensors calls its type."""


class AuditError(ValueError):
    """What was named is no model that can be audited."""


class StoredTensor(NamedTuple):
    """A tensor, and where it lies."""

    name: str
    dtype: str  # As safetensors calls it
    shape: tuple[int, ...]
    file: str  # Path
    begin: int  # Bytes from the start of the file
    size: int  # Bytes

    @property
    def elements(self) -> int:
        """Number of elements."""
        return prod(self.shape)


class Checkpoint(NamedTuple):
    """A model as it was written."""

    tensors: Mapping[str, StoredTensor]
    bytes: int  # Of all its files
    config: Mapping[str, Any]  # What config.json has
    quantization: Mapping[str, Any]  # How it was quantized, wherever that stands; empty if nowhere


def read_checkpoint(path: Path, problems: Problems) -> Checkpoint:
    """Reads the headers of a folder, an index or a file."""
    folder = path if path.is_dir() else path.parent
    indexes = sorted(folder.glob(_INDEX)) if path.is_dir() or _SHARD.search(path.name) else []
    index = path if path.name.endswith(".index.json") else next(iter(indexes), None)
    placed = {} if index is None else _placed(index, problems)
    files = [folder / name for name in dict.fromkeys(placed.values())] or [*folder.glob(_FILES)]
    if index is None:
        files = _files_without_index(path, problems)
    tensors: dict[str, StoredTensor] = {}
    whole = 0
    for file in files:
        found = {each.name: each for each in _header(file, problems)}
        whole += file.stat().st_size if file.is_file() else 0
        if placed:
            _compare(file.name, found.keys(), placed, problems)
        for name in tensors.keys() & found.keys():
            problems.add("doubled", name, "is in two files of the checkpoint")
        tensors.update(found)
    if index is not None and placed:
        _check_total(index, sum(each.size for each in tensors.values()), whole, problems)
        _check_others(folder, files, problems)
        _check_times(index, files, problems)
    config = _json(folder / "config.json", problems)
    return Checkpoint(tensors, whole, config, _quantization(folder, config))


def _files_without_index(path: Path, problems: Problems) -> list[Path]:
    files = [path] if not path.is_dir() else sorted(path.glob(_FILES))
    single = path / _SINGLE
    files = [single] if single in files else files
    if not files:
        pickles = [each.name for each in path.iterdir() if each.suffix in _PICKLES]
        but = f"; {pickles[0]} may be a pickle, which is never loaded" if pickles else ""
        raise AuditError(f"{path}: no model; expected *.safetensors or *.onnx in it{but}")
    shards = [found for each in files if (found := _SHARD.search(each.name))]
    if path.is_dir() and shards:
        lacking = min(int(shards[0][2]), _MOST_TENSORS) - len({int(each[1]) for each in shards})
        what = f", and {counted(lacking, 'shard')} of {int(shards[0][2])}" * (lacking > 0)
        problems.add("missing", "the checkpoint", f"lacks its index{what}")
    return files


def _json(path: Path, problems: Problems | None = None) -> Mapping[str, Any]:
    """Returns what a JSON file has; nothing where there is none, or no object in it, and adds that it cannot be read."""
    try:
        if path.stat().st_size > _MOST_OTHER:
            return {}
        found = json.loads(path.read_bytes())
    except (OSError, ValueError, RecursionError):
        if problems is not None and path.exists():
            problems.add("file", path.name, "cannot be read: it is truncated, or no JSON")
        return {}
    return found if isinstance(found, dict) else {}


def _quantization(folder: Path, config: Mapping[str, Any]) -> Mapping[str, Any]:
    """Returns how a model was quantized; ModelOpt has a file of its own beside."""
    text = config.get("text_config")
    inner = text.get("quantization_config") if isinstance(text, dict) else None
    found = config.get("quantization_config") or inner
    found = dict(found) if isinstance(found, dict) else {}
    own = _json(folder / "hf_quant_config.json").get("quantization")
    return {"quant_method": "modelopt", **own, **found} if isinstance(own, dict) else found


def _placed(index: Path, problems: Problems) -> dict[str, str]:
    """Returns the file of each tensor, as an index has it."""
    found = _json(index).get("weight_map")
    if not isinstance(found, dict) or len(found) > _MOST_TENSORS:
        problems.add("file", index.name, "has no weight_map that can be read")
        return {}
    files = {each for each in found.values() if isinstance(each, str)}
    inside = {each for each in files if Path(each).name == each and "\0" not in each}
    own = {name: file for name, file in found.items() if isinstance(file, str) and file in inside}
    for name in found.keys() - own.keys():
        problems.add("file", name, "is in the index, in a file outside of the folder")
    return own


def _compare(file: str, names: Any, placed: Mapping[str, str], problems: Problems) -> None:
    """Compares the tensors of a shard with those that the index has in it."""
    wanted = {name for name, each in placed.items() if each == file}
    missing, strange = wanted - names, names - placed.keys()
    if missing and strange and names:
        lacking = f"{len(missing):,} that the index has in it are missing"
        what = f"is not the shard that the index was made with: {len(strange):,} of its {len(names):,} tensors are not in the index, and {lacking}"
        problems.add("shard", file, what)
        return
    for name in missing if names else ():
        problems.add("missing", name, f"is in the index, and not in {file}")
    for name in strange:
        problems.add("orphaned", name, f"is in {file}, and not in the index")


def _check_others(folder: Path, files: Iterable[Path], problems: Problems) -> None:
    """Finds files of tensors beside those that an index names."""
    for name in sorted(each.name for each in {*folder.glob(_FILES)}.difference(files)):
        if name == _SINGLE:
            what = "is beside the shards, and transformers loads it instead"
            problems.add("doubled", name, what)
        elif _SHARD.search(name):
            problems.add("note", name, "is a shard that the index does not name")


def _check_times(index: Path, files: Iterable[Path], problems: Problems) -> None:
    """Notes a shard that was written after the index if all others were written before it: a copy has all or none later."""
    written = index.stat().st_mtime
    times = sorted((it.stat().st_mtime - written, it.name) for it in files if it.is_file())
    if len(times) > 2 and times[-2][0] <= 0 and times[-1][0] > _LATER:
        what = "was written after the index, the other shards before it: it may be of another run, or was copied again"
        problems.add("note", times[-1][1], what)


def _check_total(index: Path, stored: int, whole: int, problems: Problems) -> None:
    """Compares the size in an index with that of the tensors, or of the files, which some libraries write."""
    metadata = _json(index).get("metadata")
    total = metadata.get("total_size") if isinstance(metadata, dict) else None
    # AutoRound writes 0.
    if type(total) is int and total and min(abs(total - stored), abs(total - whole)) > 0.05 * whole:
        what = f"has a total_size of {size(total)}; the tensors take {size(stored)}"
        problems.add("size", index.name, what)


def _header(path: Path, problems: Problems) -> Iterator[StoredTensor]:
    """Yields the tensors of a file, and adds what is wrong with it."""
    try:
        status = path.stat()
        if not stat.S_ISREG(status.st_mode):
            return problems.add("file", path.name, "is no regular file")
        with path.open("rb") as file:
            length, end = int.from_bytes(file.read(8), "little"), status.st_size
            raw = file.read(length) if length <= min(_MOST_HEADER, end - 8) else b""
    except OSError as error:
        return problems.add("file", path.name, f"cannot be read: {error.strerror}")
    what, entries = "", None
    if length > _MOST_HEADER:
        what = f"is no safetensors file: its header would be of {length:,} bytes"
    elif len(raw) < max(length, 1):
        what = "ends within its header: it is truncated, or no safetensors file"
    elif raw.count(b"{") > _MOST_TENSORS or raw.count(b",") > 8 * _MOST_TENSORS:
        what = f"has more than {_MOST_TENSORS:,} tensors"
    else:
        try:
            entries = json.loads(raw, object_pairs_hook=_pairs)
        except (ValueError, RecursionError):
            pass
    if not isinstance(entries, list) or not all(isinstance(each, tuple) for each in entries):
        return problems.add("file", path.name, what or "has a header that makes no sense")
    yield from _tensors(entries, path, 8 + length, end, problems)


def _pairs(pairs: list[tuple[str, Any]]) -> Any:
    """Returns an entry's values, which take a third of the memory of a mapping; of all else the pairs, equal names too."""
    found = dict(pairs)
    if found.keys() == _ENTRY:
        return found["dtype"], found["shape"], found["data_offsets"]
    return pairs


def _tensors(
    entries: list[tuple[str, Any]], path: Path, start: int, end: int, problems: Problems
) -> Iterator[StoredTensor]:
    """Yields what a header has, and adds what does not lie as it should between two places of a file."""
    found: dict[str, StoredTensor] = {}
    for name, entry in entries:
        each = _tensor(name, entry, str(path), start)
        if each is not None and name not in found:
            found[name] = each
        elif name != "__metadata__":
            what = "is twice in the header" if each else "has an entry in the header without sense"
            problems.add("file", name[:_LONGEST_NAME], what)
    at, cut = start, 0
    for each in sorted(found.values(), key=lambda it: (it.begin, it.size)):
        needed = (each.elements * BITS.get(each.dtype, 0) + 7) // 8
        what = ""
        if each.dtype not in BITS:
            problems.add("note", each.name, f"is of the type {each.dtype}, which is not known")
        elif needed != each.size:
            what = f"has {each.size:,} bytes, and its shape takes {needed:,}"
        if each.begin != at:
            where = "within another tensor" if each.begin < at else "behind the one before"
            what = what or f"begins {abs(each.begin - at):,} bytes {where}"
        if what:
            problems.add("file", each.name, what)
        at = max(at, each.begin + each.size)
        cut += at > end
    if at > end:
        what = f"is truncated: {size(at - end)} are missing at its end, with {counted(cut, 'tensor')} in them"
        problems.add("file", path.name, what)
    elif at < end and found:
        problems.add("file", path.name, f"has {size(end - at)} at its end that belong to no tensor")
    yield from found.values()


def _tensor(name: str, entry: Any, file: str, start: int) -> StoredTensor | None:
    """Returns the tensor of an entry of a header; None if it makes no sense."""
    if not isinstance(entry, tuple) or len(name) > _LONGEST_NAME:
        return None
    dtype, shape, offsets = entry
    are_lists = isinstance(shape, list) and isinstance(offsets, list) and isinstance(dtype, str)
    if not are_lists or len(offsets) != 2 or len(shape) > _MOST_LENGTHS:
        return None
    if not all(type(it) is int and 0 <= it <= _LONGEST for it in (*shape, *offsets)):
        return None
    begin, end = start + offsets[0], start + offsets[1]
    known = StoredTensor(name, dtype, tuple(shape), file, begin, end - begin)
    return known if begin <= end else None
