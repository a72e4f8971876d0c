"""Sink that publishes the open step where profilers outside of the process read it: OpenTelemetry's process context.

A mapping of memory that every reader finds by its name, as OpenTelemetry's specification has it (OTEP 4719, in development): a header, and a
message that says whose the process is. What eBPF profilers see of native code then has the step of that moment. Loaded
only where OTEL_QUANT_PROCESS_CONTEXT asks for it.
"""

from __future__ import annotations

import ctypes
import mmap
import os
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final

from otel_quant.base.log import LOG
from otel_quant.export.otel.service_name import resource_without_sdk
from otel_quant.export.otel.spans import SpanIds
from otel_quant.schema import semconv
from otel_quant.schema.events import Attributes, Event, Sink, identity_of, run_ids_of
from otel_quant.schema.readings import StepInfo

NAME: Final = b"OTEL_CTX"
VERSION: Final = 2
# In /proc/PID/maps
_NAMES: Final = " [anon_shmem:OTEL_CTX]", " [anon:OTEL_CTX]", " /memfd:OTEL_CTX"
_PLACE: Final = 64 << 10
"""Bytes for a message, which readers take at most. There are two behind the header's: one may still be read."""

_SIZE: Final = 3 * _PLACE

_LONGEST: Final = 1000  # Characters of a value
_DONT_FORK: Final = 10  # MADV_DONTFORK
_SET_VMA: Final = 0x53564D41  # PR_SET_VMA
_NOEXEC: Final = 8  # MFD_NOEXEC_SEAL, from Linux 6.3 on
_SEALS: Final = 3  # MFD_CLOEXEC and MFD_ALLOW_SEALING
_FAILED: Final = ctypes.c_void_p(-1).value


class _Header(ctypes.Structure):
    _fields_ = (
        ("signature", ctypes.c_char * 8), ("version", ctypes.c_uint32), ("payload_size", ctypes.c_uint32),
        ("published", ctypes.c_uint64),  # Nanoseconds since the machine started; 0 while it is written
        ("payload", ctypes.c_uint64),
    )  # fmt: skip


class ProcessContextSink(Sink):
    """Publishes whose the process is, and which step was opened last of those that are open."""

    name = "process context"

    def __init__(self, ids_of: Callable[[StepInfo | None], SpanIds | None]) -> None:
        self._ids_of = ids_of
        self._lock = threading.Lock()
        self._steps: dict[int, bytes] = {}  # Encoded, by index: the last one is published
        self._run = b""
        self._mapping: _Mapping | None = None

    def run_started(self, event: Event) -> None:
        """Publishes the run."""
        ids, run = self._ids_of(None), run_ids_of(event.run)
        resource = ids.resource if ids is not None and ids.resource else resource_without_sdk()
        with self._lock:
            self._run = _resource({**resource, **run})
            if len(self._run) > _PLACE / 2:
                self._run = _resource(run)
            self._mapping = self._mapping or _Mapping.make()
            self._publish()

    def step_started(self, event: Event) -> None:
        """Publishes the step."""
        assert event.step is not None
        about = identity_of(event.step)
        names = (semconv.STEP_NAME, semconv.STEP_KIND, semconv.STEP_INDEX)
        with self._lock:
            pairs = (_field(2, _pair(name, about[name])) for name in names if name in about)
            self._steps[event.step.index] = b"".join(pairs)
            self._publish()

    def step_ended(self, event: Event) -> None:
        """Publishes the step that is open around it, if there is one."""
        assert event.step is not None
        with self._lock:
            self._steps.pop(event.step.index, None)
            self._publish()

    def run_ended(self, event: Event) -> None:
        """Publishes that no step is open."""
        with self._lock:
            self._steps.clear()
            self._publish()

    def forget(self) -> None:
        """Drops the mapping, which a forked child does not have."""
        self._lock, self._steps, self._mapping = threading.Lock(), {}, None

    def _publish(self) -> None:
        if self._mapping is not None:
            step = next(reversed(self._steps.values()), b"")
            self._mapping.publish(self._run + step)


class _Mapping:
    """The memory that readers find. There is one in a process at most."""

    def __init__(self, address: int, libc: ctypes.CDLL) -> None:
        self._address, self._libc = address, libc
        self._header = _Header.from_address(address)
        self._turn = 0
        self._fence = threading.Lock()
        self._fence.acquire()

    @classmethod
    def make(cls) -> _Mapping | None:
        """Returns a new one; None where there is one of somebody else's.

        Raises:
            OSError: The system has no memory for it.
        """
        if any(name in Path("/proc/self/maps").read_text() for name in _NAMES):
            LOG.warning(
                "OTEL_QUANT_PROCESS_CONTEXT: the open step is not published, because this process has a process "
                "context of another library, and readers expect one; turn one of them off"
            )
            return None
        libc = ctypes.CDLL(None, use_errno=True)
        libc.mmap.restype = ctypes.c_void_p
        libc.mmap.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_int, ctypes.c_int, ctypes.c_long)  # fmt: skip
        file = _memory_file()
        try:
            os.ftruncate(file, _SIZE)
            access = mmap.PROT_READ | mmap.PROT_WRITE
            address = libc.mmap(None, _SIZE, access, mmap.MAP_PRIVATE, file, 0)
        finally:
            os.close(file)
        whole = ctypes.c_void_p(address), ctypes.c_size_t(_SIZE)
        if address == _FAILED or libc.madvise(*whole, _DONT_FORK):
            raise OSError(ctypes.get_errno(), "mmap")
        return cls(address, libc)

    def publish(self, message: bytes) -> None:
        """Publishes a message in place of the last one."""
        header, before = self._header, self._header.published
        self._turn = 1 - self._turn
        place = self._address + _PLACE * (1 + self._turn)
        header.published = 0
        self._order()
        ctypes.memmove(place, message, len(message))
        header.signature, header.version = NAME, VERSION
        header.payload, header.payload_size = place, len(message)
        self._order()
        header.published = max(time.clock_gettime_ns(time.CLOCK_BOOTTIME), before + 1)
        # Again each time: that is what a reader waits for which watches this call.
        self._libc.prctl(_SET_VMA, 0, ctypes.c_void_p(self._address), ctypes.c_size_t(_SIZE), NAME)

    def _order(self) -> None:
        """Has what was written before it seen before what is written after it."""
        self._fence.release()
        self._fence.acquire()


def _memory_file() -> int:
    try:
        return os.memfd_create(NAME.decode(), _SEALS | _NOEXEC)
    except OSError:  # of an older kernel
        return os.memfd_create(NAME.decode(), _SEALS)


# --- the message: protobuf, of which a step needs three fields, and no package in 10 us -----


def _resource(attributes: Attributes) -> bytes:
    return _field(1, b"".join(_field(1, _pair(*each)) for each in attributes.items()))


def _pair(key: str, value: object) -> bytes:
    if isinstance(value, int):
        any_value = b"\x18" + _varint(value)
    else:
        any_value = _field(1, str(value)[:_LONGEST].encode(errors="replace"))
    return _field(1, key.encode()) + _field(2, any_value)


def _field(number: int, content: bytes) -> bytes:
    return bytes((number << 3 | 2,)) + _varint(len(content)) + content


def _varint(value: int) -> bytes:
    value &= (1 << 64) - 1
    found = bytearray()
    while value > 127:
        found.append(value & 127 | 128)
        value >>= 7
    found.append(value)
    return bytes(found)
