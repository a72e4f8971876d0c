"""A file that is valid YAML at every moment, whenever the process is killed.

What is appended is handed to the kernel at once: there is no buffer that a kill would
lose or that a forked child would write again. The kernel cuts a write short only between
two pages, when the process is killed or the disk is full (so it was in 6,000 kills on ext4
and tmpfs). So a piece of text that lies within one page is written completely or not at
all.

A piece that reaches into another page is written twice. First, each of its lines has a
"#" for its first byte: comments are valid YAML wherever they are cut. Then the text
itself is written over them, page after page; after each of these writes the file is valid
YAML too. A kill in between leaves comments, or a record without its last keys. A program
that follows the file (``tail -f``) may see the comments for some microseconds.
"""

from __future__ import annotations

import errno
import os
import re
import secrets
import stat
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from otel_quant.base import file_locks
from otel_quant.base.descriptors import open_apart, write_at
from otel_quant.export.quark_yaml import file_placement

_PAGE: Final = 4096  # bytes; a divisor of the page size, where pages are larger
_FLAGS: Final = os.O_WRONLY | getattr(os, "O_CLOEXEC", 0) | getattr(os, "O_BINARY", 0)
_FIRST_BYTE_OF_LINE: Final = re.compile(rb"^[^\n]", re.MULTILINE)


class ProfileFile:
    """An open file. Made by :func:`create`."""

    def __init__(self, descriptor: int, path: Path) -> None:
        self.path = path
        status = os.fstat(descriptor)
        self._descriptor: int | None = descriptor
        self._identity = (status.st_dev, status.st_ino)
        self._regular = stat.S_ISREG(status.st_mode)
        self._size = status.st_size
        # The offset and bytes of the piece that is being written. A signal handler that
        # appends in the middle of it, or the next append after a handler has raised, first
        # writes it again from its beginning.
        self._unfinished: tuple[int, bytes] | None = None
        # Reentrant: a signal handler may close a step while another is being written.
        self._lock = threading.RLock()

    def append(self, text: str) -> None:
        """Appends a piece; it is in the file when this returns."""
        data = text.encode()
        with self._lock:
            descriptor = self._checked_descriptor()
            try:
                if self._regular:
                    self._write_unfinished(descriptor)
                    # No call within: signal handlers run after calls.
                    self._unfinished = (self._size, data)
                    self._write_unfinished(descriptor)
                else:
                    while data:
                        data = data[os.write(descriptor, data) :]
            except OSError as error:
                error.filename = str(self.path)
                raise

    def _write_unfinished(self, descriptor: int) -> None:
        piece = self._unfinished
        if piece is None:
            return
        start, data = piece
        data = _without_split_characters(data, start)
        end = start + len(data)
        try:
            for offset, part in _writes(data, start):
                rest = part
                # A signal handler that appends finishes this piece: then nothing is left.
                while rest and self._unfinished is piece:
                    written = write_at(descriptor, rest, offset)
                    rest, offset = rest[written:], offset + written
        except OSError:
            if self._unfinished is piece:
                os.ftruncate(descriptor, start)
                self._unfinished = None
            raise
        if self._unfinished is piece:  # no call from here on: signal handlers run after calls
            self._size = end
            self._unfinished = None

    def move(self, path: Path) -> None:
        """Moves the file; what is at the path is dealt with as :func:`create` does."""
        with self._lock:
            self.path = file_placement.move(self.path, path.resolve())

    def close(self) -> None:
        """Closes the file and gives up its lock. In a forked child: the child's copy."""
        descriptor, self._descriptor = self._descriptor, None
        self._unfinished = None
        if descriptor is None:
            return
        try:
            ours = self._is_ours(os.fstat(descriptor))
        except OSError:
            return
        if ours:
            os.close(descriptor)

    def _is_ours(self, status: os.stat_result) -> bool:
        return (status.st_dev, status.st_ino) == self._identity

    def _checked_descriptor(self) -> int:
        """Returns the descriptor if it still is this file's and only this process has written to it."""
        if self._descriptor is None:
            raise self._error(errno.EBADF, "this file is closed, as its run has ended")
        size, unfinished = self._size, self._unfinished
        try:
            status = os.fstat(self._descriptor)
        except OSError as error:
            error.filename = str(self.path)
            raise
        if not self._is_ours(status):
            # The program closed our descriptor and has opened something under its number.
            self._descriptor = None
            raise self._error(
                errno.EBADF,
                "the program has closed this file's descriptor and used its number again; "
                "it must close only what it has opened",
            )
        if not self._regular:
            return self._descriptor
        if status.st_nlink == 0:
            raise self._error(errno.ENOENT, "this file has been removed while its run wrote it")
        # A signal handler may have appended since the size was read.
        undisturbed = unfinished is None and self._unfinished is None and self._size == size
        if undisturbed and status.st_size != size:
            raise self._error(
                errno.EBUSY,
                "another program has written to this file; give each program a path of its own",
            )
        return self._descriptor

    def _error(self, number: int, message: str) -> OSError:
        return OSError(number, message, str(self.path))


def _writes(data: bytes, start: int) -> Iterator[tuple[int, bytes]]:
    """Yields the writes, with their offsets, after each of which the file is valid YAML."""
    first_border = _PAGE - start % _PAGE
    if len(data) <= first_border:
        yield start, data
        return
    yield start, _FIRST_BYTE_OF_LINE.sub(b"#", data)
    begin = 0
    for border in (*range(first_border, len(data), _PAGE), len(data)):
        yield start + begin, data[begin:border]
        begin = border


def _without_split_characters(data: bytes, start: int) -> bytes:
    """Escapes each character that lies across two pages: half of it would not be UTF-8."""
    border = _PAGE - start % _PAGE
    while border < len(data):
        first = last = border
        while _continues_a_character(data[first]):
            first -= 1
        while first < border and last < len(data) and _continues_a_character(data[last]):
            last += 1
        # YAML has the same escapes as Python.
        escaped = data[first:last].decode().encode("ascii", "backslashreplace")
        data = data[:first] + escaped + data[last:]
        border += _PAGE
    return data


def _continues_a_character(byte: int) -> bool:
    return byte & 0b1100_0000 == 0b1000_0000


def create(path: Path, text: str, *, parents: bool = False) -> ProfileFile:
    """Creates a file with its first piece in it."""
    target = path.resolve()
    try:
        if parents and not target.parent.exists():
            target.parent.mkdir(parents=True, exist_ok=True)
        mode = _mode(target)
        if mode is None or stat.S_ISREG(mode):
            return _create_file(target, text)
        return _open_device(target, mode, text)
    except OSError as error:
        # Another error: this one may name the hidden file, and a second.
        raise OSError(error.errno, error.strerror, str(target)) from error


def _mode(path: Path) -> int | None:
    try:
        return path.stat().st_mode
    except FileNotFoundError:
        return None


def _open_device(target: Path, mode: int, text: str) -> ProfileFile:
    if not stat.S_ISCHR(mode):
        raise OSError(errno.EINVAL, "not a regular file; give the path of a file")
    file = ProfileFile(open_apart(target, _FLAGS), target)
    file.append(text)
    return file


def _create_file(target: Path, text: str) -> ProfileFile:
    if not file_locks.EXIST:
        file = ProfileFile(*file_placement.create_unlocked(target, _FLAGS))
        file.append(text)
        return file
    # Under a hidden name until it is locked and has its first piece.
    hidden = target.with_name(f".otel-quant-{secrets.token_hex(8)}")
    descriptor = open_apart(hidden, _FLAGS | os.O_CREAT | os.O_EXCL)
    moved = False
    try:
        file = ProfileFile(descriptor, hidden)
        file_locks.try_lock(descriptor)
        file.append(text)
        file.path = file_placement.move(hidden, target)
        moved = True
    finally:
        if not moved:
            os.close(descriptor)
            hidden.unlink()
    return file
