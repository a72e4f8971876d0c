"""One node of a job: two ranks that calibrate in step, of which one may have a fault; started by ``ranks.py``.

torch is imported once and shared by fork. What stays is the agent, as torchrun's is: when a rank fails it ends the others.
Arguments: the node, the kind of fault, its variant, and the rank that has it.
"""

from __future__ import annotations

import datetime
import os
import queue
import resource
import signal
import sys
import threading
import time
from contextlib import suppress
from pathlib import Path
from typing import NoReturn

import torch
import torch.distributed as dist

import otel_quant

RANKS, NODES, STEPS = 2, 2, 10
NODE, KIND, VARIANT, WHO = int(sys.argv[1]), sys.argv[2], int(sys.argv[3]), int(sys.argv[4])
AT = 3 + VARIANT % 5  # The step at which it fails
PATIENCE = datetime.timedelta(seconds=5)  # Of a rank that waits for others


class Reader:
    """Reads samples; of the rank with the fault slowly."""

    def __init__(self, is_slow: bool) -> None:
        self.is_slow = is_slow

    def get_next(self) -> torch.Tensor:
        """Returns the next sample."""
        if self.is_slow and VARIANT % 2:
            self.read_file()
        elif self.is_slow:
            time.sleep(0.4)
        return torch.ones(64, 64)

    def read_file(self) -> None:
        """Writes a file, again and again to the disk itself."""
        end = time.monotonic() + 0.4
        with Path(f"sample-{WHO}").open("wb") as file:
            while time.monotonic() < end:
                file.write(bytes(4096))
                file.flush()
                os.fsync(file.fileno())


def calibrate(sample: torch.Tensor, seconds: float) -> None:
    """Computes for some seconds of CPU time."""
    began = time.thread_time()
    while time.thread_time() - began < seconds:
        sample @ sample


def fail() -> None:
    """Has the fault."""
    faults = {"kill": kill, "exception": raise_it, "memory": take_memory, "hang": hang}
    faults[KIND]()


def kill() -> None:
    """Ends by a signal."""
    names = signal.SIGKILL, signal.SIGSEGV, signal.SIGABRT, signal.SIGBUS
    os.kill(os.getpid(), names[VARIANT % 4])


def raise_it() -> None:
    """Raises an exception; one is as if a peer had been lost, of another kind."""
    if VARIANT % 4 == 0:
        raise ValueError("no scale")
    if VARIANT % 4 == 1:
        raise ConnectionResetError(104, "Connection reset by peer: storage")
    if VARIANT % 4 == 2:
        dict[str, int]()["model.layers.7"]
    sys.exit("no such shard")


def take_memory() -> None:
    """Asks for more memory than there is, or than it may use."""
    if VARIANT % 2:
        resource.setrlimit(resource.RLIMIT_AS, (6 << 30, 6 << 30))
    if VARIANT % 4 < 2:
        bytearray(1 << 45)
    torch.empty(1 << 43)


def hang() -> None:
    """Waits for ever: asleep, for a lock, for a queue, or busy."""
    if VARIANT % 4 == 0:
        time.sleep(1000)
    if VARIANT % 4 == 1:
        lock = threading.Lock()
        lock.acquire()
        lock.acquire()
    if VARIANT % 4 == 2:
        queue.Queue[int]().get()
    while True:
        time.monotonic()


def work(rank: int) -> None:
    """Calibrates as one of the ranks."""
    dist.init_process_group("gloo", timeout=PATIENCE)
    is_it = rank == WHO
    reader, seconds = Reader(KIND == "reader" and is_it), 0.06
    if KIND == "rank" and is_it:
        seconds = 0.36
    with otel_quant.step("Calibration"):
        for number in range(STEPS):
            sample = reader.get_next()
            calibrate(sample, seconds)
            if number == AT and is_it and KIND in ("kill", "exception", "memory", "hang"):
                fail()
            if VARIANT % 2:
                dist.all_reduce(sample)
            else:
                dist.barrier()
    dist.destroy_process_group()


def watch(ranks: list[int]) -> NoReturn:
    """Waits for the ranks, and ends them all when one has failed."""
    failed = 0
    while ranks and not failed:
        pid, status = os.wait()
        ranks.remove(pid)
        failed = os.waitstatus_to_exitcode(status)
    for number in (signal.SIGTERM, signal.SIGKILL):
        for pid in ranks:
            with suppress(ProcessLookupError):
                os.kill(pid, number)
        end = time.monotonic() + 10
        while ranks and time.monotonic() < end:
            pid, _ = os.waitpid(-1, os.WNOHANG)
            if pid:
                ranks.remove(pid)
            time.sleep(0.01)
    sys.exit(failed and 1)


torch.set_num_threads(1)
started: list[int] = []
for local in range(RANKS):
    if not (child := os.fork()):
        number = NODE * RANKS + local
        os.environ |= {"RANK": str(number), "WORLD_SIZE": str(RANKS * NODES)}
        work(number)
        break
    started.append(child)
else:
    watch(started)
