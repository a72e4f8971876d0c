"""Uploads a recording while it is made: each minute what is new, as an object of its own.

The launcher does it, which outlives the program; a store that fails touches neither. What was sent is known from what
is in the store: `otel-quant upload` goes on where a launcher that was killed has stopped, and two uploads of one
recording send each byte once.
"""

from __future__ import annotations

import itertools
import os
import shlex
import threading
import time
from pathlib import Path
from typing import Final, NamedTuple

from otel_quant.base.fault_boundary import FAULTS, start_thread
from otel_quant.base.files import open_regular
from otel_quant.base.log import LOG
from otel_quant.base.secrets import masked
from otel_quant.format.event_file import MANIFEST
from otel_quant.format.store import RecordingStore, StoreError, TakenError

_FIRST: Final = 5.0
_EVERY: Final = (
    60.0  # Seconds between two uploads; the first come sooner, for a program that is killed soon
)
_LAST: Final = 30.0  # Seconds that the end of a program waits for the last one at most
_TRIES: Final = 5  # How often another upload of the recording may be first
_LARGEST: Final = 8_000_000  # Bytes of files in one object
_APPENDED: Final = (".jsonl", ".log")  # Ends of names of files that grow; others are replaced whole
_SMALL: Final = 64_000  # Bytes of a file that is sent whole each time
_RARELY: Final = 600.0  # Seconds between two of a larger one, before the end


class _Sent(NamedTuple):
    """What the store has of a file."""

    size: int  # The first so many bytes
    inode: int
    changed_ns: int  # When it was written to
    at: float = -_RARELY  # When it was sent, by the monotonic clock in seconds


_NOTHING: Final = _Sent(0, -1, 0)
_GONE: Final = _Sent(-1, -1, 0)  # As the file


class Upload:
    """The upload of one recording. Any number of threads may use it."""

    def __init__(self, folder: Path, url: str) -> None:
        self._folder, self._asked = folder.absolute(), url.rstrip("/")
        self._lock, self._ended = threading.Lock(), threading.Event()
        self._sent: dict[str, _Sent] = {}
        self._store: RecordingStore | None = None
        self._name, self._objects = "", 0
        self._problem = "it took too long"

    @property
    def url(self) -> str:
        """The URL of the recording in the store."""
        return f"{self._asked}/{self._name or self._folder.name}"

    def send(self, *, is_last: bool = True) -> int:
        """Sends what the store does not have; returns how many bytes. Raises :class:`StoreError`."""
        sent = 0
        with self._lock:
            store = self._store = self._store or RecordingStore(self._asked, makes_folder=True)
            for _ in range(_TRIES):
                try:
                    if not self._name:
                        self._take_place(store)
                    while new := self._new(is_last=is_last):
                        pieces = {name: piece for name, (piece, _) in new.items()}
                        store.add(self._name, self._objects + 1, pieces)
                        self._objects += 1
                        self._sent |= {name: known for name, (_, known) in new.items()}
                        sent += sum(len(data) for _, data in pieces.values())
                    return sent
                except TakenError:  # another upload was first, or an answer was lost
                    self._name = ""
        raise StoreError(f"{self.url}: other uploads of it were under way")

    def send_until_the_end(self) -> None:
        """Sends again and again until :meth:`end`."""
        pause = _FIRST
        while not self._ended.wait(pause):
            self._try(is_last=False)
            pause = min(2 * pause, _EVERY)

    def end(self) -> str:
        """Sends the rest, for a bounded time; returns a line with the place, none where it has failed."""
        self._ended.set()
        thread = start_thread(lambda: self._try(is_last=True), "otel-quant last upload")
        if thread is not None:
            thread.join(_LAST)
        if not self._problem:
            return f"\nuploaded:  {self.url}"
        later = shlex.join(("otel-quant", "upload", str(self._folder), masked(self._asked)))
        LOG.warning("--upload: %s. To upload what is missing: %s", self._problem, later)
        return ""

    def _try(self, *, is_last: bool) -> None:
        with FAULTS.kept_in("--upload"):
            try:
                self.send(is_last=is_last)
                self._problem = "" if is_last else self._problem
            except StoreError as error:
                self._problem = str(error)

    def _take_place(self, store: RecordingStore) -> None:
        """Finds the place of this recording, where no other one is, and what the store has of it."""
        path = self._folder / MANIFEST
        own = _identity(path.read_bytes()) if path.is_file() else b""
        for number in itertools.count():
            name = f"{self._folder.name}-{number}" if number else self._folder.name
            objects = store.recordings(name).get(name, [])
            files = {name: data for name, (data, _) in store.read(objects).items()}
            if not objects or (own and own == _identity(files.get(MANIFEST, b""))):
                break
        self._name, self._objects = name, len(objects)
        self._sent = {name: self._known(name, data) for name, data in files.items()}

    def _known(self, name: str, data: bytearray) -> _Sent:
        """Returns what the store has of a file: nothing that counts, if it is gone or begins with something else."""
        try:
            with open_regular(self._folder / name) as file:
                status = os.fstat(file.fileno())
                if file.read(len(data)) == data:
                    return _Sent(len(data), status.st_ino, status.st_mtime_ns)
        except OSError:
            pass
        return _NOTHING

    def _new(self, *, is_last: bool) -> dict[str, tuple[tuple[int, bytes], _Sent]]:
        """Returns a piece of each file that has changed, as many as fit into an object, and what the store has then."""
        room, found = _LARGEST, {}
        paths = {path.name: path for path in sorted(self._folder.iterdir()) if path.is_file()}
        for name, path in paths.items():
            if room <= 0 or name.startswith(".") or path.is_symlink():
                continue
            with open_regular(path) as file:
                status = os.fstat(file.fileno())
                begin = _begin_of(name, self._sent.get(name, _NOTHING), status, is_last=is_last)
                if begin is None:
                    continue
                file.seek(begin)
                data = file.read(room)
            room -= len(data)
            size, now = begin + len(data), time.monotonic()
            found[name] = (begin, data), _Sent(size, status.st_ino, status.st_mtime_ns, now)
        gone = [name for name in self._sent.keys() - paths.keys() if self._sent[name] != _GONE]
        return found | dict.fromkeys(gone, ((0, b""), _GONE))


def _begin_of(name: str, sent: _Sent, status: os.stat_result, *, is_last: bool) -> int | None:
    """Returns from which byte on a file is sent; None if nothing of it is, or not yet."""
    size, is_same = status.st_size, status.st_ino == sent.inode
    goes_on = is_same and (name.endswith(_APPENDED) or status.st_mtime_ns == sent.changed_ns)
    if goes_on and size >= sent.size:
        return sent.size if size > sent.size else None
    is_small = size <= _SMALL or name.endswith(_APPENDED)
    is_due = is_last or is_small or time.monotonic() - sent.at >= _RARELY
    return 0 if size and is_due else None


def _identity(manifest: bytes | bytearray) -> bytes:
    """Returns the part of a manifest that stays as it was made: when and by which process."""
    return bytes(manifest.partition(b'"origin"')[0])
