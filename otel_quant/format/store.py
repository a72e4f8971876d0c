"""A recording in an object store: what was added to its files since the last time is an object of its own.

``URL/NAME/000001.recording.tar.gz`` and so on: each is a tar of pieces of files, and the name of a piece is
``FILE@OFFSET``: what the file has from that byte on. A file that grows is moved once; one that is
replaced whole is a piece at 0, and an empty one there says that it is gone. So the first so many
objects are the recording as it was when the last of them was made. No object is ever overwritten.
"""

from __future__ import annotations

import re
import tarfile
import zlib
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from datetime import timedelta
from gzip import BadGzipFile
from importlib.util import find_spec
from io import BytesIO
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Final, TypeAlias
from urllib.parse import unquote

from otel_quant.base.log import LOG
from otel_quant.base.secrets import masked

if TYPE_CHECKING:
    from obstore import ObjectMeta
    from obstore.store import ClientConfig, RetryConfig

_SCHEMES: Final = ("s3://", "gs://", "az://", "file://")
_URLS: Final = "s3://BUCKET/PATH, gs://BUCKET/PATH, az://CONTAINER/PATH or file:///PATH"
Pieces: TypeAlias = Mapping[str, tuple[int, bytes]]  # By the file's name: offset, and what follows

_ENDING: Final = ".recording.tar.gz"
_PIECE: Final = re.compile(r"([^/\\@.][^/\\]*)@([0-9]+)")
_BROKEN: Final = (EOFError, tarfile.TarError, zlib.error, BadGzipFile)
_AT_ONCE: Final = 16  # Objects that are read at the same time
_LONGEST: Final = 300  # Characters of a reason
# HTTP without TLS where the endpoint that the user names is one
_CLIENT: Final[ClientConfig] = {"connect_timeout": "5s", "timeout": "20s", "allow_http": True}
_RETRY: Final[RetryConfig] = {"max_retries": 2, "retry_timeout": timedelta(seconds=10)}


class StoreError(ValueError):
    """Why a store could not be used: one line without secrets."""


class BrokenObjectError(StoreError):
    """An object of a recording is cut, or not what was uploaded."""


class ObjectExistsError(StoreError):
    """Another upload has already made the object of this name."""


def require(package: str, extra: str) -> None:
    """Raises :class:`StoreError` if a package is not installed."""
    if find_spec(package) is None:
        raise StoreError(f"the package {package} is missing; pip install 'otel-quant[{extra}]'")


def require_store(url: str) -> None:
    """Raises :class:`StoreError` if a URL has another form, or its package is not installed."""
    if not url.startswith(_SCHEMES) or url in _SCHEMES:
        raise StoreError(f"{masked(url)}: expected {_URLS}")
    require("obstore", "store")


def reason_in(error: Exception, url: str) -> str:
    """Returns why a store has failed: one line, without the queries of URLs, which may hold keys."""
    text, _, answer = str(error).partition("\n\n")[0].partition("<?xml")
    words = [text.strip(": \n"), *re.findall(r"<(?:Code|Message)>([^<]+)", answer)]
    text = re.sub(r"\?\S*", "", " ".join(": ".join(words).split()))
    reason = masked(text, is_prose=True)[:_LONGEST]
    return f"{masked(url)}: {reason or type(error).__name__}"


@contextmanager
def _store_errors(url: str) -> Iterator[None]:
    from obstore.exceptions import AlreadyExistsError, BaseError

    try:
        yield
    except (BaseError, OSError, *_BROKEN) as error:
        kind = ObjectExistsError if isinstance(error, AlreadyExistsError) else StoreError
        kind = BrokenObjectError if isinstance(error, _BROKEN) else kind
        raise kind(reason_in(error, url)) from None


class RecordingStore:
    """A place in a store, by its URL. Every method raises :class:`StoreError`."""

    def __init__(self, url: str, *, makes_folder: bool = False) -> None:
        require_store(url)
        from obstore.store import from_url

        self.url = url.rstrip("/")
        is_folder = url.startswith("file://")
        if is_folder and not makes_folder and not Path(unquote(url[7:])).is_dir():
            raise StoreError(f"{url}: no such folder; expected what `otel-quant upload` printed")
        with _store_errors(url):
            place = url.replace("#", "%23")  # it is of the path: a recording's URL has no fragment
            if is_folder:
                self._store = from_url(place, mkdir=makes_folder)
            else:
                self._store = from_url(place, client_options=_CLIENT, retry_config=_RETRY)

    def recordings(self, below: str | None = None) -> dict[str, list[ObjectMeta]]:
        """Returns the objects of each recording at this URL, or in a folder below it, in order, up to the first gap."""
        import obstore

        found: defaultdict[str, list[ObjectMeta]] = defaultdict(list)
        with _store_errors(self.url):
            every = chain.from_iterable(obstore.list(self._store, below))
            known = {each["path"]: each for each in every}
        lacking: dict[str, str] = {}
        for path in sorted(known):
            folder, _, name = path.rpartition("/")
            wanted = f"{len(found.get(folder, ())) + 1:06}{_ENDING}"
            if name == wanted:
                found[folder].append(known[path])
            elif name.endswith(_ENDING):
                lacking[f"{self.url}/{folder}"] = wanted
        for place, name in lacking.items():
            LOG.warning("%s: %s is missing: nothing after it is read", masked(place), name)
        return found

    def read(self, objects: Sequence[ObjectMeta]) -> dict[str, tuple[bytes, ObjectMeta]]:
        """Returns the files that the objects of a recording contain, each with the last object that has a piece of it."""
        import obstore

        def content(each: ObjectMeta) -> BytesIO:
            return BytesIO(obstore.get(self._store, each["path"]).bytes())

        files: dict[str, tuple[bytearray, ObjectMeta]] = {}
        with _store_errors(self.url), ThreadPoolExecutor(_AT_ONCE) as pool:
            for each, made in zip(objects, pool.map(content, objects), strict=True):
                broken = _store_errors(f"{self.url}/{each['path']}")
                with broken, tarfile.open(fileobj=made, mode="r:gz") as tar:
                    for member in tar:
                        piece, match = tar.extractfile(member), _PIECE.fullmatch(member.name)
                        if piece is not None and match is not None:
                            data = files.get(match[1], (bytearray(), each))[0]
                            data[int(match[2]) :] = piece.read()
                            files[match[1]] = data, each
        return {name: (bytes(data), last) for name, (data, last) in files.items() if data}

    def add(self, folder: str, number: int, pieces: Pieces) -> None:
        """Makes the next object of a recording; raises :class:`ObjectExistsError` if it exists."""
        import obstore

        path, made = f"{folder}/{number:06}{_ENDING}", BytesIO()
        with tarfile.open(fileobj=made, mode="w:gz", compresslevel=3) as tar:
            for name, (offset, data) in pieces.items():
                member = tarfile.TarInfo(f"{name}@{offset}")
                member.size = len(data)
                tar.addfile(member, BytesIO(data))
        with _store_errors(self.url):
            obstore.put(self._store, path, made.getvalue(), mode="create", use_multipart=False)
