"""Gives a file a path without replacing any other file.

A file that a run writes is locked while the run lives. What is at a path already is
therefore one of two things: a file that a living run writes, which stays, or an older
one, which is kept as number 1 ("profile.1.yaml"). The files that have been kept before
move up by one number, so that 1 is the newest. A file gets its second name before it
loses the first, so the path always exists, and of two runs that start at once neither
loses a file. A kill in between leaves one file under two names; the next run frees one.
"""

from __future__ import annotations

import errno
import itertools
import os
import stat
from pathlib import Path
from typing import Final

from otel_quant.base.descriptors import open_apart
from otel_quant.base.file_locks import try_lock
from otel_quant.export.quark_yaml.path import beside

_TRIES: Final = 100
_NO_LINKS: Final = frozenset(
    {errno.EPERM, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS, errno.EMLINK, errno.EACCES}
)


def move(source: Path, target: Path) -> Path:
    """Moves a file to a path, or beside it if a living run writes the file there."""
    for _ in range(_TRIES):
        if _move_if_free(source, target):
            return target
        try:
            # With the older file locked, no other run that starts now moves it too.
            descriptor = _open_to_lock(target)
        except FileNotFoundError:
            continue
        try:
            if descriptor is not None and try_lock(descriptor) is False:
                target = beside(target, str(os.getpid()))
                continue
            if descriptor is not None and not _is_at(descriptor, target):
                continue
            if descriptor is None or os.fstat(descriptor).st_size:
                _keep_as_number_1(target)
            source.replace(target)
            return target
        finally:
            if descriptor is not None:
                os.close(descriptor)
    raise _contested(target)


def create_unlocked(target: Path, flags: int) -> tuple[int, Path]:
    """Creates a file where there are no locks, and an open file cannot be renamed."""
    for _ in range(_TRIES):
        try:
            return open_apart(target, flags | os.O_CREAT | os.O_EXCL), target
        except FileExistsError:
            try:
                target.rename(_free_number_1(target))
            except PermissionError:  # open in another process
                target = beside(target, str(os.getpid()))
    raise _contested(target)


def _contested(path: Path) -> OSError:
    return OSError(
        errno.EBUSY,
        f"other runs took this path {_TRIES} times in a row; give each run a path of its own",
        str(path),
    )


def _move_if_free(source: Path, target: Path) -> bool:
    """Moves a file to a path; returns False if there is a file already."""
    try:
        os.link(source, target)
    except FileExistsError:
        return False
    except OSError as error:
        if error.errno not in _NO_LINKS:
            raise
        # A file system without hard links: an empty file reserves the path.
        try:
            os.close(os.open(target, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o666))
        except FileExistsError:
            return False
        source.replace(target)
        return True
    source.unlink()
    return True


def _keep_as_number_1(path: Path) -> None:
    """Gives a file the number 1 as a second name; renames it if it can have but one."""
    for _ in range(_TRIES):
        numbered = _free_number_1(path)
        try:
            os.link(path, numbered)
        except FileExistsError:
            continue
        except OSError as error:
            if error.errno not in _NO_LINKS:
                raise
            path.rename(numbered)
        return
    raise _contested(path)


def _free_number_1(path: Path) -> Path:
    """Moves the files that are kept of a path up by one number; returns the lowest number's path.

    Only files move: a folder, a link, or a file that a living run writes stays at its number,
    and the others move past it.
    """
    for _ in range(_TRIES):
        numbers = _movable_numbers(path)
        upwards = reversed(list(itertools.pairwise(numbers)))
        try:
            if all(_move_if_free(lower, higher) for lower, higher in upwards):
                return numbers[0]
        except FileNotFoundError:
            continue  # where there are no locks, another run may move the same files
    raise _contested(path)


def _movable_numbers(path: Path) -> list[Path]:
    """Returns the paths of the kept files that can move, from number 1 on, and a free one."""
    found: list[Path] = []
    for number in itertools.count(1):
        numbered = beside(path, str(number))
        try:
            status = numbered.lstat()
        except FileNotFoundError:
            break
        if _is_at_both(status, found[-1] if found else path):
            numbered.unlink()  # a run was killed between giving and taking a name
            break
        if stat.S_ISREG(status.st_mode) and not _is_written(numbered):
            found.append(numbered)
    return [*found, numbered]


def _is_written(path: Path) -> bool:
    """Returns whether a living run writes a file."""
    descriptor = _open_to_lock(path)
    if descriptor is None:
        return False
    try:
        return try_lock(descriptor) is False
    finally:
        os.close(descriptor)


def _open_to_lock(path: Path) -> int | None:
    """Opens a file so that it can be locked; returns None if this process may not."""
    flags = getattr(os, "O_CLOEXEC", 0) | getattr(os, "O_NONBLOCK", 0)
    for access in (os.O_RDWR, os.O_RDONLY):
        try:
            return os.open(path, flags | access)
        except PermissionError:
            continue
    return None


def _is_at(descriptor: int, path: Path) -> bool:
    return _is_at_both(os.fstat(descriptor), path)


def _is_at_both(status: os.stat_result, path: Path) -> bool:
    try:
        return os.path.samestat(status, path.stat())
    except FileNotFoundError:
        return False
