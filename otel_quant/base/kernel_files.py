"""Reads files below ``/proc`` and counts the bytes.

The kernel counts these bytes as read by the program; the disk probe subtracts them.

A file about a process stays open between readings: to open it anew takes five times as long as to
read it, which is what most of a sample would cost. The descriptors have numbers that a program's
own files do not reach (:mod:`otel_quant.base.files`). If the program closes them, they are opened
again; a forked child closes its copies.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

from otel_quant.base.files import open_apart

SELF: Final = 0  # Process id that means this process
_CHUNK: Final = 16384

_MOST_OPEN: Final = 200
"""Files that stay open, at most. Files of further child processes are opened for each reading."""

_OPEN: Final[dict[str, int]] = {}  # Descriptors by path

_bytes_read = 0  # By all threads; the probes, which read nearly all of it, take turns


def read_process(pid: int, name: str) -> bytes:
    """Reads a file about a process, and keeps it open for the next reading."""
    return read_kept(f"/proc/{pid}/{name}" if pid else f"/proc/self/{name}")


def _pread(descriptor: int, size: int, offset: int) -> bytes:
    return os.pread(descriptor, size, offset)  # Windows has none


def read_kept(
    path: str,
    flags: int = os.O_RDONLY,
    *,
    may_be_empty: bool = False,
    pread: Callable[[int, int, int], bytes] = _pread,
) -> bytes:
    """Reads a kernel file of at most 16 kB, and keeps it open for the next reading.

    `pread` is what is done with the descriptor: another way to read, or to write.
    """
    descriptor = _OPEN.get(path)
    if descriptor is not None:
        try:
            content = pread(descriptor, _CHUNK, 0)
        except ProcessLookupError:
            forget(path)
            raise
        except OSError:
            # The program has closed it, and the others maybe: the next file of ours may get the number of one.
            _forget_all()
            content, may_be_empty = b"", False
        if content or may_be_empty:
            return _counted(content)
        forget(path)
    if len(_OPEN) >= _MOST_OPEN:
        return read_proc(path)
    descriptor = open_apart(path, flags)
    if descriptor in _OPEN.values():
        _OPEN.clear()  # the program has closed them: this number would be read for another file
    try:
        content = pread(descriptor, _CHUNK, 0)
    except BaseException:
        os.close(descriptor)
        raise
    if _OPEN.setdefault(path, descriptor) != descriptor:
        os.close(descriptor)  # another thread has just opened it
    return _counted(content)


def write_process(pid: int, name: str, content: bytes) -> None:
    """Writes to a file about a process, and keeps it open for the next time."""

    def write(descriptor: int, *_: int) -> bytes:
        os.write(descriptor, content)
        return b""

    path = f"/proc/{pid or 'self'}/{name}"
    read_kept(path, os.O_WRONLY, may_be_empty=True, pread=write)


def forget_processes_but(pids: Collection[int]) -> None:
    """Closes the files about processes other than some and this one: they have ended."""
    alive = frozenset(map(str, pids))
    for path in list(_OPEN):
        process = path.split("/", 3)[2]
        if process.isdigit() and process not in alive:
            forget(path)


def _forget_all() -> None:
    """Closes them: the program has closed one, or, in a forked child, they are its parent's files."""
    for path in list(_OPEN):
        forget(path)


def forget(path: str) -> None:
    """Closes the file, if it is open: nobody reads it any more."""
    descriptor = _OPEN.pop(path, None)
    if descriptor is not None:
        # The program may have closed it, and a file of its own have the number.
        with suppress(OSError):
            if str(Path(f"/proc/self/fd/{descriptor}").readlink()).startswith("/proc/"):
                os.close(descriptor)


def threads_of(pid: int) -> list[str]:
    """Returns the ids of the threads of a process; none of one that has ended."""
    try:
        return os.listdir(f"/proc/{pid}/task")  # noqa: PTH208  # iterdir takes twice as long
    except OSError:
        return []


def open_files(folder: str) -> Iterator[tuple[str, str]]:
    """Yields number and path of each open file in ``/proc/PID/fd``; raises OSError of a process that is gone."""
    for number in os.listdir(folder):  # noqa: PTH208  # pathlib takes ten times as long
        try:
            yield number, os.readlink(f"{folder}/{number}")  # noqa: PTH115  # likewise
        except FileNotFoundError:
            continue  # closed meanwhile


def read_proc(path: str) -> bytes:
    """Reads a whole kernel file."""
    handle = open_apart(path, os.O_RDONLY)
    try:
        content = os.read(handle, _CHUNK)
        while chunk := os.read(handle, _CHUNK) if len(content) % 4096 == 0 and content else b"":
            content += chunk
        return _counted(content)
    finally:
        os.close(handle)


def text_of(path: Path, most: int = -1) -> str:
    """Returns the first characters of a file, or all; nothing of one that cannot be read."""
    try:
        with path.open(encoding="utf-8", errors="replace") as file:
            return file.read(most).strip()
    except OSError:
        return ""


KILLS: Final = "oom_kill"
GROUP_KILLS: Final = "oom_group_kill"
"""What the kernel counts: processes that it has ended for want of memory, and groups of which it
has ended every process at once (``memory.oom.group``)."""


def oom_counts(counter: Path) -> dict[str, int]:
    """Returns what a counter has of kills; nothing if it cannot be read or the kernel is too old."""
    found = (line.partition(" ") for line in text_of(counter).splitlines())
    return {key: int(value) for key, _, value in found if key in (KILLS, GROUP_KILLS)}


def number_in(status: bytes, key: bytes) -> int | None:
    """Returns the number (of sizes in KiB) after a key, which begins with a line feed, in a file ``status``."""
    at = status.find(key)  # takes a tenth of a regular expression's time
    if at < 0:
        return None
    at += len(key)
    return int(status[at : status.index(b"\n", at)].removesuffix(b" kB"))


def ask_psutil(pid: int, figure: str, **options: bool) -> Any:
    """Returns a figure of a process on a system without ``/proc``; raises what reading a file there would."""
    import psutil  # takes as long to load as all probes together

    try:
        return getattr(psutil.Process(pid or None), figure)(**options)
    except psutil.NoSuchProcess as error:
        raise ProcessLookupError(pid) from error
    except psutil.Error as error:
        raise PermissionError(pid) from error


def bytes_read() -> int:
    """Returns the bytes that all threads have read through this module so far."""
    return _bytes_read


def _counted(content: bytes) -> bytes:
    global _bytes_read
    _bytes_read += len(content)
    return content


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget_all)
