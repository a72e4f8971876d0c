"""Reads what a safetensors checkpoint has by its headers: names, types, shapes and places, no weights; never a pickle.

Files may be hostile: how long headers, names and shapes are and how many there are is bounded, and no file outside the
folder is opened.
"""

from __future__ import annotations

import json
import re
import stat
from collections.abc import Iterator, Mapping
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
_FILES: Final = "*.safetensors"
_INDEX: Final = f"{_FILES}.index.json"
_SHARD: Final = re.compile(r"-(\d+)-of-(\d+)\.safetensors$")
_NO_SENSE: Final = "has a header that makes no sense"
_PICKLES: Final = (".bin", ".pt", ".pth", ".ckpt", ".pkl")
_ENTRY: Final = {"dtype", "shape", "data_offsets"}

BITS: Final[Mapping[str, int]] = {
    **dict.fromkeys(
        ("BOOL", "U8", "I8", "F8_E4M3", "F8_E5M2", "F8_E8M0", "F8_E4M3FNUZ", "F8_E5M2FNUZ"), 8
    ),
    **dict.fromkeys(("U16", "I16", "F16", "BF16"), 16),
    **dict.fromkeys(("U32", "I32", "F32"), 32),
    **dict.fromkeys(("U64", "I64", "F64", "C64"), 64),
    "F4": 4,
    "F6_E2M3": 6,
    "F6_E3M2": 6,
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
    files = [folder / name for name in dict.fromkeys(placed.values())]
    if index is None:
        files = _files_without_index(path, problems)
    tensors: dict[str, StoredTensor] = {}
    whole = 0
    for file in files:
        found = {each.name: each for each in _header(file, problems)}
        whole += file.stat().st_size if file.is_file() else 0
        if index is not None:
            _compare(file.name, found.keys(), placed, problems)
        for name in tensors.keys() & found.keys():
            problems.add("doubled", name, "is in two files of the checkpoint")
        tensors.update(found)
    if index is not None:
        _check_total(index, sum(each.size for each in tensors.values()), problems)
        for file in folder.glob(_FILES):
            if file.name not in placed.values() and _SHARD.search(file.name):
                problems.add("note", file.name, "is a shard that the index does not name")
    config = _json(folder / "config.json")
    return Checkpoint(tensors, whole, config, _quantization(folder, config))


def _files_without_index(path: Path, problems: Problems) -> list[Path]:
    files = [path] if not path.is_dir() else sorted(path.glob(_FILES))
    single = path / "model.safetensors"
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


def _json(path: Path) -> Mapping[str, Any]:
    """Returns what a JSON file has; nothing where there is none, or no object in it."""
    try:
        if path.stat().st_size > _MOST_OTHER:
            return {}
        found = json.loads(path.read_bytes())
    except (OSError, ValueError, RecursionError):
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
    own = {
        name: file
        for name, file in found.items()
        if isinstance(file, str) and Path(file).name == file and "\0" not in file
    }
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


def _check_total(index: Path, stored: int, problems: Problems) -> None:
    metadata = _json(index).get("metadata")
    total = metadata.get("total_size") if isinstance(metadata, dict) else None
    if isinstance(total, int) and abs(total - stored) > 0.05 * max(stored, 1):
        problems.add(
            "size",
            index.name,
            f"has a total_size of {size(total)}; the tensors take {size(stored)}",
        )


def _header(path: Path, problems: Problems) -> Iterator[StoredTensor]:
    """Yields the tensors of a file that are whole, and adds what is wrong with it."""

    def bad(what: str) -> None:
        problems.add("file", path.name, what)

    try:
        status = path.stat()
        if not stat.S_ISREG(status.st_mode):
            return bad("is no regular file")
        with path.open("rb") as file:
            length = int.from_bytes(file.read(8), "little")
            room = status.st_size - 8
            if length > min(_MOST_HEADER, room) or room < 2:
                what = "ends within its header: it is truncated, or no safetensors file"
                return bad(
                    what
                    if length <= _MOST_HEADER
                    else f"is no safetensors file: its header would be of {length:,} bytes"
                )
            raw = file.read(length)
    except OSError as error:
        return bad(f"cannot be read: {error.strerror}")
    if raw.count(b"{") > _MOST_TENSORS or raw.count(b",") > 8 * _MOST_TENSORS:
        return bad(f"has more than {_MOST_TENSORS:,} tensors")
    try:
        entries = json.loads(raw, object_pairs_hook=_pairs)
    except (ValueError, RecursionError):
        return bad(_NO_SENSE)
    if not isinstance(entries, list) or not all(isinstance(each, tuple) for each in entries):
        return bad(_NO_SENSE)
    yield from _tensors(entries, path, length, room, problems)


def _pairs(pairs: list[tuple[str, Any]]) -> Any:
    """Returns an entry's values, which take a third of the memory of a mapping; of all else the pairs, equal names too."""
    found = dict(pairs)
    if found.keys() == _ENTRY:
        return found["dtype"], found["shape"], found["data_offsets"]
    return pairs


def _tensors(
    entries: list[tuple[str, Any]], path: Path, length: int, room: int, problems: Problems
) -> Iterator[StoredTensor]:
    found: dict[str, StoredTensor] = {}
    for name, entry in entries:
        if name == "__metadata__":
            continue
        each = _tensor(name, entry, str(path), 8 + length)
        if each is None or name in found:
            what = (
                "is twice in the header"
                if name in found
                else "has an entry in the header that makes no sense"
            )
            problems.add("file", name[:_LONGEST_NAME], what)
        else:
            found[name] = each
    at, cut = 8 + length, 0
    for each in sorted(found.values(), key=lambda it: (it.begin, it.size)):
        needed = (each.elements * BITS.get(each.dtype, 8 * each.size) + 7) // 8
        if each.dtype not in BITS:
            problems.add("note", each.name, f"is of the type {each.dtype}, which is not known")
        elif needed != each.size:
            problems.add(
                "file", each.name, f"has {each.size:,} bytes, and its shape takes {needed:,}"
            )
        if each.begin != at:
            problems.add(
                "file",
                each.name,
                f"begins {abs(each.begin - at):,} bytes {'within another tensor' if each.begin < at else 'behind the one before'}",
            )
        at = max(at, each.begin + each.size)
        cut += at > room + 8
    if at > room + 8:
        problems.add(
            "file",
            path.name,
            f"is truncated: {size(at - room - 8)} are missing at its end, with {counted(cut, 'tensor')} in them",
        )
    elif at < room + 8 and found:
        problems.add(
            "file", path.name, f"has {size(room + 8 - at)} at its end that belong to no tensor"
        )
    yield from found.values()


def _tensor(name: str, entry: Any, file: str, start: int) -> StoredTensor | None:
    """Returns the tensor of an entry of a header; None if it makes no sense."""
    if not isinstance(entry, tuple) or len(name) > _LONGEST_NAME:
        return None
    dtype, shape, offsets = entry
    if not isinstance(dtype, str) or not isinstance(shape, list) or not isinstance(offsets, list):
        return None
    numbers = [*shape, *offsets]
    if (
        len(offsets) != 2
        or len(shape) > _MOST_LENGTHS
        or not all(type(it) is int for it in numbers)
    ):
        return None
    begin, end = offsets
    if min(numbers) < 0 or begin > end or max(end, prod(shape)) > _LONGEST:
        return None
    return StoredTensor(name, dtype, tuple(shape), file, start + begin, end - begin)
