"""Programs that ``verdicts.py --blind`` runs: what bounds each was written down before the first of them was run.

They do by other means what those of ``verdict_programs.py`` do, and no verdict was mended with them at hand.

python benchmarks/blind_programs.py NAME
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import ctypes
import fcntl
import gc
import hashlib
import heapq
import http.client
import importlib
import json
import mmap
import multiprocessing
import os
import pathlib
import pickle
import queue
import re
import sched
import select
import signal
import socket
import subprocess
import sys
import threading
import time
import types
import urllib.request
import zlib
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from http.server import ThreadingHTTPServer
from typing import Any

from planted import planted, run_one
from verdict_programs import (
    FREEZE,
    KEEP,
    LOADER,
    OTHER_METHOD,
    SECONDS,
    Reader,
    Slow,
    busy_thread,
    file_of,
    numbers,
    quantize,
    served,
    spin,
    until,
)

from otel_quant import step

# --- calibration ----------------------------------------------------------------------------


class Generated:
    """Gives what a generator makes, as readers do."""

    def __init__(self, samples: Iterator[dict[str, Any]]) -> None:
        self.samples = samples

    def get_next(self) -> Any:
        """Returns a sample; None after the last."""
        return next(self.samples, None)


def unpacked(count: int) -> Iterator[dict[str, Any]]:
    """Reads and unpacks a file for each sample."""
    import numpy as np

    path = pathlib.Path("sample.z")
    path.write_bytes(zlib.compress(numbers(400_000).tobytes(), 1))
    for _ in range(count):
        values = np.frombuffer(zlib.decompress(path.read_bytes()))  # here
        values = np.sort(values)  # here
        yield {"x": values[: 3 * 64 * 64].reshape(1, 3, 64, 64).astype(np.float32)}


@planted("calibration_data", near="one_processor", remedy=LOADER, opens=True)
def a_generator_that_unpacks() -> None:
    quantize(Generated(unpacked(60)))  # here


@planted("calibration_data", near="child", remedy=LOADER, opens=True)
def a_command_for_each_sample() -> None:
    def convert() -> None:
        subprocess.run(["sleep", "0.1"], check=True)  # here

    quantize(Reader(30, convert))


@planted("calibration_data", near="network", remedy=LOADER, opens=True)
def each_sample_is_downloaded() -> None:
    server = ThreadingHTTPServer(("127.0.0.1", 0), Slow)
    threading.Thread(target=server.serve_forever, daemon=True).start()

    def fetch() -> None:
        with urllib.request.urlopen(f"http://127.0.0.1:{server.server_port}/") as answer:
            answer.read(80_000)  # here

    quantize(Reader(14, fetch))
    server.shutdown()


@planted("one_processor", "nothing_stands_out", "all_processors", near="calibration_data", opens=True)  # fmt: skip
def outputs_are_checked_behind_each_run() -> None:
    import onnxruntime

    run = onnxruntime.InferenceSession.run

    def checked(session: Any, *arguments: Any) -> Any:
        results = run(session, *arguments)
        spin(0.01)  # here
        return results

    onnxruntime.InferenceSession.run = checked
    quantize(Reader(200, lambda: None))


@planted("memory_growth", near="calibration_data", opens=True, group={"memory": 1.2e9})
def one_array_that_gets_longer() -> None:
    import numpy as np

    whole = [numbers(1)]

    def read() -> None:
        whole[0] = np.concatenate([whole[0], numbers(700_000)])  # here

    quantize(Reader(50, read))


@planted("memory_growth", near="calibration_data", remedy=OTHER_METHOD, opens=True, group={"memory": 1.5e9})  # fmt: skip
def a_percentile_of_all_of_it() -> None:
    quantize(Reader(70, lambda: time.sleep(0.02), 224), "Percentile", size=224)


# --- start, imports, compilers --------------------------------------------------------------


@planted("importing", near="one_processor")
def a_module_of_tables() -> None:
    rows = ",\n".join(f"'{n}': [{n}, ({n}, 'x{n}'), {{'a': {n}.5}}]" for n in range(110_000))
    pathlib.Path("tables.py").write_text(f"TABLE = {{{rows}}}\n")
    sys.path.insert(0, os.getcwd())
    importlib.import_module("tables")  # here


@planted("one_processor", near="importing")
def unpickled_with_its_module() -> None:
    module = types.ModuleType("plugin")
    source = "class Table:\n    def __setstate__(self, state):\n        import time\n        end = time.monotonic() + 2.5\n        while time.monotonic() < end: pass\n"  # fmt: skip
    pathlib.Path("plugin.py").write_text(source)
    exec(source, module.__dict__)
    sys.modules["plugin"] = module
    table = module.Table()
    table.a = 1
    packed = pickle.dumps(table)
    del sys.modules["plugin"]
    sys.path.insert(0, os.getcwd())
    pickle.loads(packed)


@planted("startup", near="network", opens=True)
def downloads_its_weights_first() -> None:
    server = ThreadingHTTPServer(("127.0.0.1", 0), Slow)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    urllib.request.urlretrieve(f"http://127.0.0.1:{server.server_port}/", "weights.bin")  # here
    server.shutdown()
    with step("Quantize"):
        spin(0.3)


@planted("", "child", "waiting", near="startup", opens=True)
def a_command_comes_first() -> None:
    subprocess.run(["sleep", str(SECONDS)], check=True)
    with step("Quantize"):
        spin(0.3)


@planted("compiling", near="one_processor", remedy=KEEP, needs="torch")
def a_module_is_compiled_for_each_layer() -> None:
    import torch

    for number in until(4):
        layer = torch.nn.Sequential(torch.nn.Linear(8 + number, 8), torch.nn.GELU())
        torch.compile(layer)(torch.ones(2, 8 + number))  # here


@planted("one_processor", near="compiling", needs="torch")
def traced_again_and_again() -> None:
    import torch

    model = torch.nn.Sequential(*[torch.nn.Linear(4, 4) for _ in range(40)])
    for _ in until():
        torch.fx.symbolic_trace(model)  # here


# --- processors -----------------------------------------------------------------------------


@planted("throttled", near="all_processors", group={"cpu": 0.5}, needs="torch")
def torch_in_half_a_processor() -> None:
    import torch

    torch.set_num_threads(2)
    square = torch.ones(500, 500)
    for _ in until():
        square @ square  # here


@planted("pinned", near="own_threads")
def a_pool_kept_on_one_processor() -> None:
    os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})
    block = os.urandom(200_000)
    with ThreadPoolExecutor(2) as pool:
        for _ in until():
            waiting = [pool.submit(zlib.compress, block) for _ in range(2)]
            zlib.compress(block)  # here
            concurrent.futures.wait(waiting)


@planted("all_processors", near="pinned")
def each_thread_on_its_own_processor() -> None:
    first, last = min(os.sched_getaffinity(0)), max(os.sched_getaffinity(0))

    def other() -> None:
        os.sched_setaffinity(0, {last})
        for _ in until():
            hashlib.sha256(bytes(3_000_000))

    thread = threading.Thread(target=other)
    thread.start()
    os.sched_setaffinity(0, {first})
    for _ in until():
        hashlib.sha256(bytes(3_000_000))  # here
    thread.join()


@planted("oversubscribed", near="all_processors")
def twelve_threads_derive_keys() -> None:
    def derive() -> None:
        hashlib.pbkdf2_hmac("sha256", b"a", b"b", 40_000)

    threads = [busy_thread(derive) for _ in range(12)]
    for _ in until():
        derive()  # here
    for thread in threads:
        thread.join()


@planted("other_programs", near="one_processor", beside="busy", needs="torch")
def a_small_model_on_a_busy_machine() -> None:
    import torch

    torch.set_num_threads(1)
    layer = torch.nn.Conv2d(8, 8, 3)
    for _ in until():
        layer(torch.ones(1, 8, 64, 64))


@planted("all_processors", near="one_processor")
def a_session_in_a_loop_of_its_own() -> None:
    import numpy as np
    import onnxruntime

    quantize(Reader(1, lambda: None, 256), size=256)
    session = onnxruntime.InferenceSession("f.onnx")
    for _ in until(4):
        session.run(None, {"x": np.ones((1, 3, 256, 256), np.float32)})  # here


@planted("one_processor", near="all_processors", needs="torch")
def torch_with_one_thread() -> None:
    import torch

    torch.set_num_threads(1)
    square = torch.ones(700, 700)
    for _ in until():
        square @ square  # here


@planted("one_processor", near="gil")
def a_heartbeat_beside_it() -> None:
    stop = threading.Event()

    def beat() -> None:
        while not stop.wait(0.01):
            pathlib.Path("alive").touch()

    threading.Thread(target=beat).start()
    heap: list[int] = []
    for number in until():
        heapq.heappush(heap, -number % 977)  # here
    stop.set()


@planted("gil", near="all_processors")
def patterns_in_three_threads() -> None:
    text = "layer.12.weight " * 4000

    def search() -> None:
        len(re.findall(r"(\w+)\.(\d+)\.\w+", text))

    threads = [busy_thread(search) for _ in range(2)]
    for _ in until():
        search()
    for thread in threads:
        thread.join()


# --- waiting --------------------------------------------------------------------------------


@planted("waiting", near="stalled")
def an_alarm() -> None:
    signal.signal(signal.SIGALRM, lambda *_: None)
    signal.setitimer(signal.ITIMER_REAL, SECONDS)
    signal.pause()  # here


@planted("waiting", near="network")
def a_pause_by_select() -> None:
    for _ in until():
        select.select([], [], [], 0.25)  # here


@planted("waiting", near="one_processor")
def jobs_at_their_times() -> None:
    jobs = sched.scheduler()
    for number in range(1, 6):
        jobs.enter(number / 2, 1, lambda: None)
    jobs.run()  # here


@planted("waiting", near="lock")
def at_a_barrier() -> None:
    barrier = threading.Barrier(3)

    def prepare(seconds: float) -> None:
        time.sleep(seconds)
        barrier.wait()

    for seconds in (1.0, SECONDS):
        threading.Thread(target=prepare, args=(seconds,)).start()
    barrier.wait()  # here


@planted("waiting", near="other_build")
def a_lock_of_the_kernels() -> None:
    code = "import fcntl,time\nf = open('k.lock', 'w')\nfcntl.flock(f, fcntl.LOCK_EX)\nprint(1, flush=True)\ntime.sleep(2.5)"  # fmt: skip
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE) as other:
        assert other.stdout is not None
        other.stdout.readline()
        with open("k.lock", "w") as file:
            fcntl.flock(file, fcntl.LOCK_EX)  # here


@planted("child", near="waiting")
def output_by_popen() -> None:
    os.popen(f"sleep {SECONDS}; echo done").read()  # here


@planted("child", near="own_threads")
def a_fork_of_its_own() -> None:
    pid = os.fork()
    if pid == 0:
        spin(SECONDS)
        os._exit(0)
    os.waitpid(pid, 0)  # here


@planted("child", near="network")
def results_through_a_pipe() -> None:
    mine, its = multiprocessing.Pipe()

    def work() -> None:
        for _ in range(5):
            spin(SECONDS / 5)
            its.send(1)

    worker = multiprocessing.get_context("fork").Process(target=work)
    worker.start()
    for _ in range(5):
        mine.recv()  # here
    worker.join()


@planted("waiting", near="child")
def an_event_beside_an_idle_child() -> None:
    idle = subprocess.Popen(["cat"], stdin=subprocess.PIPE, stdout=subprocess.DEVNULL)
    event = threading.Event()
    threading.Timer(SECONDS, event.set).start()
    event.wait()  # here
    assert idle.stdin is not None
    idle.stdin.close()
    idle.wait()


@planted("network", near="waiting")
def streams_of_asyncio() -> None:
    async def download() -> None:
        reads, writes = await asyncio.open_connection(*served(0.05, 4000))
        while await reads.read(65536):
            pass
        writes.close()

    asyncio.run(download())


@planted("network", near="disk")
def an_upload_that_is_read_slowly() -> None:
    server = socket.create_server(("127.0.0.1", 0))

    def receive() -> None:
        connection, _ = server.accept()
        for _ in until():
            time.sleep(0.05)
            connection.recv(200_000)
        connection.close()

    threading.Thread(target=receive).start()
    upload = http.client.HTTPConnection(*server.getsockname())
    upload.connect()
    try:
        for _ in range(1000):
            upload.send(bytes(500_000))  # here
    except OSError:
        pass


@planted("waiting", near="network")
def a_queue_of_asyncio() -> None:
    async def consume() -> None:
        ready: asyncio.Queue[int] = asyncio.Queue()
        loop = asyncio.get_running_loop()
        for number in range(5):
            loop.call_later(number / 2 + 0.5, ready.put_nowait, number)
        for _ in range(5):
            await ready.get()

    asyncio.run(consume())


@planted("own_threads", near="network")
def a_thread_of_asyncio() -> None:
    async def work() -> None:
        await asyncio.to_thread(hashlib.pbkdf2_hmac, "sha256", b"a", b"b", 6_000_000)

    asyncio.run(work())


@planted("own_threads", near="child")
def results_as_they_come() -> None:
    def sort() -> None:
        for _ in until():
            numbers(400_000).sort()

    with ThreadPoolExecutor(1) as pool:
        for _ in concurrent.futures.as_completed([pool.submit(sort)]):  # here
            pass


@planted("lock", near="own_threads")
def a_lock_under_another_name() -> None:
    class Model:
        guard = threading.Lock()

        def save(self) -> None:
            with self.guard:
                time.sleep(SECONDS)

    model = Model()
    mutex = model.guard
    threading.Thread(target=model.save).start()
    time.sleep(0.05)
    mutex.acquire(timeout=10)  # here
    mutex.release()


@planted("lock", near="waiting")
def a_condition_whose_lock_is_held() -> None:
    condition = threading.Condition()

    def publish() -> None:
        with condition:
            time.sleep(SECONDS)

    threading.Thread(target=publish).start()
    time.sleep(0.05)
    with condition:  # here
        condition.notify_all()


# --- disk, the garbage collector, a hang ----------------------------------------------------


@planted("disk", near="waiting")
def synchronous_writes() -> None:
    block = os.urandom(4_000_000)
    file = os.open("out.bin", os.O_WRONLY | os.O_CREAT | os.O_DSYNC)
    for _ in until():
        os.pwrite(file, block, 0)  # here
    os.close(file)


@planted("one_processor", near="disk")
def many_small_files() -> None:
    for number in until():
        path = pathlib.Path(f"{number % 200}.json")
        path.write_text(json.dumps({"scale": number}))  # here
        path.read_text()  # here


@planted("page_faults", near="waiting", opens=True)
def rows_gathered_from_a_file() -> None:
    import numpy as np

    path = file_of(300_000_000)
    whole: Any = np.memmap(path, np.uint8, "r")
    whole._mmap.madvise(mmap.MADV_RANDOM)
    rows = whole[: 4096 * 73_000].reshape(-1, 4096)
    random = np.random.default_rng(0)
    with step("Read"):
        for _ in until():
            rows[random.integers(0, len(rows), 500), 0].sum()  # here


@planted("garbage_collector", near="one_processor", remedy=FREEZE, opens=True)
def a_helper_that_cleans_up() -> None:
    table = json.loads(json.dumps([{"a": [n], "b": {"c": n}} for n in range(200_000)]))

    def clean() -> None:
        gc.collect()  # here

    with step("Quantize"):
        for _ in until():
            hashlib.sha256(bytes(20_000_000))
            clean()
    del table


@planted("one_processor", near="garbage_collector")
def objects_while_it_is_off() -> None:
    gc.disable()
    for _ in until():
        kept = [{"a": [n]} for n in range(20_000)]  # here
    gc.enable()
    del kept


@planted("stalled", near="child", is_idle=True)
def a_queue_of_processes_that_stays_empty() -> None:
    waiting: multiprocessing.Queue[int] = multiprocessing.Queue()
    try:
        waiting.get(timeout=33)  # here
    except queue.Empty:
        pass


@planted("stalled", near="lock", is_idle=True)
def a_lock_that_is_never_released() -> None:
    lock = threading.Lock()
    lock.acquire()
    lock.acquire(timeout=33)  # here


@planted("waiting", near="page_faults")
def asleep_in_c() -> None:
    ctypes.CDLL(None).usleep(int(SECONDS * 1e6))  # here


if __name__ == "__main__":
    run_one(sys.argv[1])
