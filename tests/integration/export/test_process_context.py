"""The open step is in the process context, as a reader outside of the process finds it by OpenTelemetry's specification (OTEP 4719)."""

from __future__ import annotations

import os
import re
import struct
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import pytest
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
from opentelemetry.proto.resource.v1 import resource_pb2

from otel_quant.schema import semconv
from tests.fixtures.programs import clean_environment

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="a mapping of Linux")

_MAPPING: Final = re.compile(r"^([0-9a-f]+)-.* (\[anon(_shmem)?:OTEL_CTX\]|/memfd:OTEL_CTX.*)$", re.MULTILINE)  # fmt: skip


def _message_class() -> Any:
    """Returns the class of ProcessContext, which the package of OpenTelemetry's messages does not have yet."""
    file = descriptor_pb2.FileDescriptorProto(
        name="process_context.proto", package="test", syntax="proto3",
        dependency=[resource_pb2.DESCRIPTOR.name, "opentelemetry/proto/common/v1/common.proto"],
    )  # fmt: skip
    message = file.message_type.add(name="ProcessContext")
    of_message = descriptor_pb2.FieldDescriptorProto.TYPE_MESSAGE
    message.field.add(name="resource", number=1, type=of_message, label=1, type_name=".opentelemetry.proto.resource.v1.Resource")  # fmt: skip
    message.field.add(name="attributes", number=2, type=of_message, label=3, type_name=".opentelemetry.proto.common.v1.KeyValue")  # fmt: skip
    pool = descriptor_pool.Default()
    pool.Add(file)
    return message_factory.GetMessageClass(pool.FindMessageTypeByName("test.ProcessContext"))


_CONTEXT: Final = _message_class()


class Reader:
    """Reads the context of a process."""

    def __init__(self, pid: int) -> None:
        (found,) = _MAPPING.finditer(Path(f"/proc/{pid}/maps").read_text())
        self._address = int(found[1], 16)
        self._memory = os.open(f"/proc/{pid}/mem", os.O_RDONLY)

    def _read(self, address: int, size: int) -> bytes:
        return os.pread(self._memory, size, address)

    def read(self) -> bytes | None:
        """Returns the message; None while it is written."""
        signature, version, size, published, payload = struct.unpack("=8sIIQQ", self._read(self._address, 32))  # fmt: skip
        assert (signature, version) == (b"OTEL_CTX", 2)
        message = self._read(payload, size) if published else b""
        (again,) = struct.unpack("=Q", self._read(self._address + 16, 8))
        return message if published and published == again else None

    def context(self) -> tuple[Mapping[str, object], Mapping[str, object]]:
        """Returns the attributes of the resource, and the others."""
        message = _CONTEXT.FromString(next(filter(None, iter(self.read, 0))))
        return _plain(message.resource.attributes), _plain(message.attributes)


def _plain(pairs: Any) -> dict[str, object]:
    found = {each.key: getattr(each.value, each.value.WhichOneof("value")) for each in pairs}
    assert len(found) == len(pairs)
    return found


@contextmanager
def program(code: str, folder: Path) -> Iterator[subprocess.Popen[str]]:
    """Runs code, which waits for a line where it is to be looked at."""
    variables = {"OTEL_QUANT_PROCESS_CONTEXT": "true", "OTEL_QUANT_RECORD": "made"}
    (folder / "job.py").write_text(code)
    with subprocess.Popen(
        [sys.executable, "job.py"], cwd=folder, env=clean_environment(variables), text=True,
        stdin=subprocess.PIPE, stdout=subprocess.PIPE,
    ) as process:  # fmt: skip
        yield process
    assert process.returncode == 0


STEPS: Final = """
import os, threading
import otel_quant

def look():
    print(os.getpid(), flush=True); input()

def other():
    with otel_quant.step("Other thread"):
        ready.set(); leave.wait()

with otel_quant.step("Model Quantization"):
    look()
    with otel_quant.step("Calibration", 300 * "sehr große "):
        look()
    look()
    ready, leave = threading.Event(), threading.Event()
    thread = threading.Thread(target=other); thread.start(); ready.wait()
    look()
    leave.set(); thread.join()
    look()
    pid = os.fork()
    if not pid:
        assert "OTEL_CTX" not in open("/proc/self/maps").read()
        with otel_quant.step("In a child"):
            look()
        os._exit(0)
    assert os.waitpid(pid, 0)[1] == 0
look()
with otel_quant.step("Of another run"):
    look()
"""
NAME, KIND, INDEX = semconv.STEP_NAME, semconv.STEP_KIND, semconv.STEP_INDEX


def test_the_step_that_opened_last_is_in_the_context_until_it_ends(tmp_path: Path) -> None:
    seen, processes = [], set()
    with program(STEPS, tmp_path) as running:
        assert running.stdin is not None
        for line in running.stdout or ():
            resource, step = Reader(int(line)).context()
            assert resource[semconv.PROCESS_PID] == int(line)
            assert resource["service.name"] == "job"
            processes.add((resource[semconv.RUN_ID], int(line) == running.pid))
            seen.append(step)
            running.stdin.write("\n")
            running.stdin.flush()
    whole = {NAME: "Model Quantization", KIND: "Model Quantization", INDEX: 0}
    assert seen == [
        whole, {NAME: (300 * "sehr große ")[:1000], KIND: "Calibration", INDEX: 1}, whole,
        {NAME: "Other thread", KIND: "User-Defined", INDEX: 2}, whole,
        {NAME: "In a child", KIND: "User-Defined", INDEX: 0}, {},
        {NAME: "Of another run", KIND: "User-Defined", INDEX: 3},
    ]  # fmt: skip
    assert sorted(is_first for _, is_first in processes) == [False, True]


CHANGES: Final = """
import os, sys
from otel_quant.export.otel.process_context import ProcessContextSink
from otel_quant.schema.events import Event
from otel_quant.schema.readings import RunInfo, StepInfo

sink, run = ProcessContextSink(lambda item: None), RunInfo("0" * 16, os.getpid())
sink.run_started(Event(kind="run.started", time_ns=0, clock_ns=0, run=run))
print(os.getpid(), flush=True)
for at in range(100_000):
    name = f"{at} " * (1 + at % 150)  # of any length, and the same in all its parts
    step = StepInfo(at, name, name)
    sink.step_started(Event(kind="step.started", time_ns=0, clock_ns=0, run=run, step=step))
input()
"""


def test_no_reader_sees_half_of_a_change(tmp_path: Path) -> None:
    with program(CHANGES, tmp_path) as running:
        assert running.stdin is not None
        assert running.stdout is not None
        reader, seen, last = Reader(int(running.stdout.readline())), 0, 0
        while last < 99_999:
            _, step = reader.context()
            if step:
                numbers = {*str(step[NAME]).split(" ")[:-1]} | {*str(step[KIND]).split(" ")[:-1]}
                assert len(numbers) == 1 or len(str(step[NAME])) == 1000
                index = step[INDEX]
                assert isinstance(index, int)
                assert {str(index)} <= numbers
                seen, last = seen + (index > last), max(index, last)
        running.stdin.write("\n")
    assert seen > 1000


def test_the_context_of_somebody_else_is_left_alone(tmp_path: Path) -> None:
    other = """
import mmap, os
import otel_quant
file = os.memfd_create("OTEL_CTX")
os.ftruncate(file, 4096)
mine = mmap.mmap(file, 4096)
with otel_quant.step("Calibration"):
    pass
maps = open("/proc/self/maps").read()
print(maps.count("OTEL_CTX"), mine[:8], flush=True)
"""
    with program(other, tmp_path) as running:
        assert running.stdout is not None
        assert running.stdout.read() == f"1 {bytes(8)}\n"
