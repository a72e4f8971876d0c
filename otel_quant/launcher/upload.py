"""Uploads a recording while it is made: every minute what was added, as a new object.

The launcher uploads, because it outlives the program; a store that fails affects neither. What was sent is read from
the store: `otel-quant upload` goes on where a launcher that was killed has stopped, and two uploads of one
recording send each byte once.
"""

from __future__ import annotations

import itertools
import os
import shlex
import threading
import time
from collections.abc import Iterator
from hashlib import blake2b
from io import BytesIO
from pathlib import Path
from typing import BinaryIO, Final, NamedTuple

from otel_quant.base.fault_boundary import FAULTS, start_thread
from otel_quant.base.files import open_regular
from otel_quant.base.log import LOG
from otel_quant.base.secrets import masked
from otel_quant.format.event_file import MANIFEST
from otel_quant.format.store import ObjectExistsError, RecordingStore, StoreError, require_store

_FIRST: Final = 5.0  # Seconds before the first upload: a program may be killed soon
_EVERY: Final = 60.0  # Seconds between two later ones
_LAST: Final = 30.0  # Seconds that the end of a program waits for the last one at most
_SLOW: Final = f"the upload was not complete {_LAST:g} s after the program's end"
_TRIES: Final = 5  # How often another upload may make the next object first
_LARGEST: Final = 8_000_000  # Bytes of files in one object
_SMALL: Final = 64_000  # Bytes of a file that is sent each time that it is replaced
_RARELY: Final = 600.0  # Seconds between two of a larger one, before the end


class _Sent(NamedTuple):
    """What the store has of a file."""

    size: int
    digest: bytes
    at: float = -_RARELY  # When it was sent from its beginning, by the monotonic clock in seconds


class Upload:
    """The upload of one recording. Any number of threads may use it."""

    def __init__(self, folder: Path, url: str) -> None:
        require_store(url)
        self._folder, self._asked = folder.resolve(), url.rstrip("/")
        self._lock, self._ended = threading.Lock(), threading.Event()
        self._sent: dict[str, _Sent] = {}
        self._store: RecordingStore | None = None
        self._name, self._objects = "", 0
        self._problem = _SLOW

    @property
    def url(self) -> str:
        """The URL of the recording in the store, without a secret."""
        return masked(f"{self._asked}/{self._name or self._folder.name}")

    def send(self, *, is_last: bool = True) -> int:
        """Sends what the store does not have; returns how many bytes. Raises :class:`StoreError`."""
        sent = 0
        with self._lock:
            store = self._store = self._store or RecordingStore(self._asked, makes_folder=True)
            for _ in range(_TRIES):
                try:
                    if not self._name:
                        self._take_place(store)
                    size = _LARGEST
                    while size == _LARGEST and (new := dict(self._new(is_last=is_last))):
                        pieces = {name: piece for name, (piece, _) in new.items()}
                        store.add(self._name, self._objects + 1, pieces)
                        self._objects += 1
                        self._sent |= {name: known for name, (_, known) in new.items()}
                        size = sum(len(data) for _, data in pieces.values())
                        sent += size
                    return sent
                except ObjectExistsError:  # another upload was first, or an answer was lost
                    self._name = ""
        raise StoreError(f"{self.url}: another upload of it is running; try again after it")

    def send_until_the_end(self) -> None:
        """Sends again and again until :meth:`end`."""
        pause = _FIRST
        while not self._ended.wait(pause):
            self._try(is_last=False)
            pause = min(2 * pause, _EVERY)

    def end(self) -> str:
        """Sends the rest, for 30 s at most; returns a line with the URL, or an empty text after a failure."""
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
                self._problem = "" if is_last else _SLOW
            except StoreError as error:
                self._problem = str(error)

    def _take_place(self, store: RecordingStore) -> None:
        """Chooses the name of this recording in the store, which no other recording has, and reads what is there of it."""
        with self._opened(MANIFEST) as file:
            own = _identity(file.read())
        for number in itertools.count():
            name = f"{self._folder.name}-{number}" if number else self._folder.name
            objects = store.recordings(name).get(name, [])
            theirs, _ = store.read(objects[:1]).get(MANIFEST, (b"", None))
            if not objects or (own and own == _identity(theirs)):
                break
        self._name, self._objects = name, len(objects)
        files = store.read(objects).items()
        known = {name: (len(data), BytesIO(data)) for name, (data, _) in files}
        self._sent = {
            name: _Sent(size, _hashed(it, size).digest()) for name, (size, it) in known.items()
        }

    def _new(self, *, is_last: bool) -> Iterator[tuple[str, tuple[tuple[int, bytes], _Sent]]]:
        """Yields the pieces of changed files that fit into one object, and what the store has of each file with it."""
        room, now = _LARGEST, time.monotonic()
        names = {path.name for path in self._folder.iterdir() if not path.name.startswith(".")}
        # The manifest goes into the first object: it identifies the recording
        for name in sorted(names | self._sent.keys(), key=lambda it: (it != MANIFEST, it)):
            known = self._sent.get(name, _Sent(0, _hashed(BytesIO(), 0).digest()))
            with self._opened(name) as file:
                size = file.seek(0, os.SEEK_END)
                hashed = _hashed(file, known.size)
                begin = known.size if hashed.digest() == known.digest else 0
                if not begin:
                    hashed = _hashed(file, 0)
                piece = file.read(room)
            is_due = begin or is_last or size <= _SMALL or now - known.at >= _RARELY
            if room and is_due and (piece or begin < known.size):
                room -= len(piece)
                hashed.update(piece)
                at = known.at if begin else now
                yield name, ((begin, piece), _Sent(begin + len(piece), hashed.digest(), at))

    def _opened(self, name: str) -> BinaryIO:
        """Opens a file; an empty one where it is gone."""
        try:
            return open_regular(self._folder / name)
        except OSError:
            return BytesIO()


def _hashed(file: BinaryIO, size: int) -> blake2b:
    """Returns the hash of the first bytes of a file, which is read from there on afterwards."""
    hashed, left = blake2b(digest_size=16), size
    file.seek(0)
    while left > 0 and (data := file.read(min(left, _LARGEST))):
        hashed.update(data)
        left -= len(data)
    return hashed


def _identity(manifest: bytes) -> bytes:
    """Returns the part of a manifest that stays as it was made: when and by which process."""
    return manifest.partition(b'"origin"')[0]
