"""The git repository that the current folder is in: its commit, its branch, and whether it is dirty.

Read from git's own files. To start ``git`` would give the program a child process that it does not
know, which its own handlers and our figures would count. Formats: gitformat-index(5),
gitformat-pack(5), gitrepository-layout(5). What is not understood is None.
"""

from __future__ import annotations

import hashlib
import os
import re
import stat
import struct
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO, Final, NamedTuple

from otel_quant.base.descriptors import open_apart
from otel_quant.base.fault_boundary import FAULTS

_COMMIT: Final = re.compile(r"[0-9a-f]{40}")
_TREE_OF_COMMIT: Final = re.compile(rb"tree ([0-9a-f]{40})\n")
_MOST_FILES: Final = 20_000
"""Files of a repository that are looked at; a larger one would take the program's time."""

_LARGEST: Final = 16 << 20
"""Bytes of a file whose contents are compared if its time has changed."""

_ENTRY: Final = struct.Struct(">10I20sH")
_EXTENDED: Final = 0x4000
_STAGE: Final = 0x3000
_REGULAR, _LINK, _SUBMODULE = 0o10, 0o12, 0o16
_IN_PACK: Final = 1
"""Type of a commit in a pack."""


class _File(NamedTuple):
    path: bytes
    mode: int
    modified: tuple[int, int]
    size: int
    hash: bytes


class GitTree:
    """A repository, as far as it is known."""

    def __init__(self, folder: Path) -> None:
        self.revision: str | None = None
        self.ref: str | None = None
        self.is_dirty: bool | None = None
        self._work_tree = next(
            (each for each in (folder, *folder.parents) if (each / ".git").exists()), None
        )
        if self._work_tree is None:
            return
        self._git = _git_folder(self._work_tree / ".git")
        # The folder of a further work tree names the one that it shares with the others.
        shared = _text(self._git / "commondir")
        self._shared = self._git / shared if shared else self._git
        head = _text(self._git / "HEAD")
        name = head.removeprefix("ref: ") if head.startswith("ref: ") else None
        commit = self._commit_of(name) if name is not None else head
        self.ref = name.removeprefix("refs/heads/") if name is not None else None
        self.revision = commit if _COMMIT.fullmatch(commit) else None
        # Here and not in `look`: to list a folder opens it, under a number that the program may close.
        self._packs = tuple((self._shared / "objects" / "pack").glob("*.idx"))

    def look(self) -> None:
        """Finds out whether the tree is dirty. It may take a second: for a thread of its own."""
        if self._work_tree is None or self.revision is None:
            return
        with FAULTS.kept_in("git repository"):
            self.is_dirty = self._is_dirty(self.revision)

    def _is_dirty(self, revision: str) -> bool | None:
        try:
            index = _content(self._git / "index")
            files, tree = _read_index(index)
            if any(self._differs(file) for file in files):
                return True
            committed = self._tree_of(revision)
        except (OSError, ValueError, IndexError, struct.error, zlib.error):
            return None  # of a form that is not known here
        return None if tree is None or committed is None else tree != committed

    def _commit_of(self, name: str) -> str:
        for folder in (self._git, self._shared):
            commit = _text(folder / name)
            if commit:
                return commit
        for line in _text(self._shared / "packed-refs").splitlines():
            commit, _, packed = line.partition(" ")
            if packed == name:
                return commit
        return ""

    def _differs(self, file: _File) -> bool:
        assert self._work_tree is not None
        path = self._work_tree / os.fsdecode(file.path)
        try:
            found = path.lstat()
        except OSError:
            return True
        kind = file.mode >> 12
        if kind == _SUBMODULE:
            return False
        if (
            stat.S_ISLNK(found.st_mode) != (kind == _LINK)
            or found.st_size & 0xFFFFFFFF != file.size
        ):
            return True
        if kind == _REGULAR and bool(found.st_mode & 0o100) != bool(file.mode & 0o100):
            return True
        if divmod(found.st_mtime_ns, 1_000_000_000) == file.modified:
            return False
        if found.st_size > _LARGEST:
            raise ValueError("too large to be compared")
        content = os.fsencode(path.readlink()) if kind == _LINK else _content(path)
        found_hash = hashlib.sha1(b"blob %d\0" % len(content) + content, usedforsecurity=False)
        return found_hash.digest() != file.hash

    def _tree_of(self, commit: str) -> str | None:
        """Returns the tree of a commit, whether that is in a file of its own or in a pack."""
        objects = self._shared / "objects"
        loose = objects / commit[:2] / commit[2:]
        if loose.exists():
            return _tree_in(zlib.decompress(_content(loose)).partition(b"\0")[2])
        for index in self._packs:
            offset = _offset_in_pack(_content(index), bytes.fromhex(commit))
            if offset is not None:
                with _opened(index.with_suffix(".pack")) as pack:
                    pack.seek(offset)
                    data = pack.read(4096)
                if (data[0] >> 4) & 7 != _IN_PACK:
                    return None
                start = next(at for at, byte in enumerate(data) if byte < 0x80) + 1
                return _tree_in(zlib.decompressobj().decompress(data[start:]))
        return None


def _git_folder(path: Path) -> Path:
    """Returns git's folder: a work tree beside the first has a file that names it."""
    if path.is_dir():
        return path
    return path.parent / _text(path).removeprefix("gitdir: ")


def _opened(path: Path) -> BinaryIO:
    return os.fdopen(open_apart(path, os.O_RDONLY), "rb")


def _content(path: Path) -> bytes:
    with _opened(path) as file:
        return file.read()


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8", errors="replace").strip()
    except OSError:
        return ""


def _tree_in(commit: bytes) -> str | None:
    found = _TREE_OF_COMMIT.match(commit)
    return found[1].decode() if found else None


def _offset_in_pack(index: bytes, wanted: bytes) -> int | None:
    """Finds an object in the index of a pack (version 2); None if it is not there."""
    if index[:8] != b"\xfftOc\0\0\0\2":
        return None
    fan_out = struct.unpack_from(">256I", index, 8)
    low, high, total = fan_out[wanted[0] - 1] if wanted[0] else 0, fan_out[wanted[0]], fan_out[255]
    names = 8 + 256 * 4
    while low < high:
        middle = (low + high) // 2
        name = index[names + 20 * middle : names + 20 * middle + 20]
        if name == wanted:
            (offset,) = struct.unpack_from(">I", index, names + 24 * total + 4 * middle)
            return None if offset & 0x80000000 else int(offset)  # packs of 2 GiB and more
        low, high = (middle + 1, high) if name < wanted else (low, middle)
    return None


def _read_index(data: bytes) -> tuple[list[_File], str | None]:
    """Reads git's index; returns its files, and the tree that they make if git has noted it."""
    magic, version, count = struct.unpack_from(">4sII", data)
    if magic != b"DIRC" or version not in (2, 3) or count > _MOST_FILES:
        raise ValueError("an index of another form")
    files: list[_File] = []
    at = 12
    for _ in range(count):
        fields = _ENTRY.unpack_from(data, at)
        if fields[11] & _STAGE:
            raise ValueError("a merge that is not finished")
        name = at + _ENTRY.size + (2 if fields[11] & _EXTENDED else 0)
        end = data.index(b"\0", name)
        files.append(
            _File(data[name:end], fields[6], (fields[2], fields[3]), fields[9], fields[10])
        )
        at += (end - at + 8) // 8 * 8
    return files, next(_root_of(data, at), None)


def _root_of(data: bytes, at: int) -> Iterator[str]:
    """Yields the tree in the extension TREE, unless files were added since it was noted."""
    while at < len(data) - 20:
        kind, size = struct.unpack_from(">4sI", data, at)
        if kind == b"TREE":
            line = data.index(b"\n", at + 9)
            if not data[at + 9 : line].startswith(b"-1"):
                yield data[line + 1 : line + 21].hex()
        at += 8 + size
