"""What ``verdicts.py`` runs: programs as people write them, of each of which it is known what bounds it.

python benchmarks/verdict_programs.py NAME
"""

from __future__ import annotations

import asyncio
import gc
import hashlib
import importlib
import itertools
import json
import mmap
import multiprocessing
import os
import pathlib
import pickle
import queue
import random
import select
import socket
import sqlite3
import subprocess
import sys
import threading
import time
import urllib.request
import zlib
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from planted import planted, run_one

from otel_quant import step

SECONDS = 2.5
"""How long most steps last: a verdict needs a second."""


def until(seconds: float = SECONDS) -> Iterator[int]:
    """Counts until time is over."""
    end = time.monotonic() + seconds
    for count in itertools.count():
        if time.monotonic() > end:
            return
        yield count


def spin(seconds: float) -> None:
    """Runs Python."""
    end = time.perf_counter() + seconds
    while time.perf_counter() < end:  # here
        pass  # here


def numbers(count: int) -> Any:
    """Returns an array."""
    import numpy as np

    return np.random.default_rng(0).random(count)  # here


# --- calibration: onnxruntime ---------------------------------------------------------------


def quantize(reader: Any, method: str = "MinMax", size: int = 64) -> None:
    """Calibrates and quantizes a small model."""
    import numpy as np
    from onnx import TensorProto, helper, numpy_helper, save
    from onnxruntime.quantization import CalibrationMethod, quantize_static

    weights = [("w", (16, 3, 3, 3)), ("v", (16, 16, 3, 3))]
    made = [numpy_helper.from_array(np.random.default_rng(0).normal(size=s).astype(np.float32), n) for n, s in weights]  # fmt: skip
    nodes = [
        helper.make_node("Conv", ["x", "w"], ["h"], pads=[1] * 4),
        helper.make_node("Relu", ["h"], ["r"]),
        helper.make_node("Conv", ["r", "v"], ["y"], pads=[1] * 4),
    ]
    ends = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [1, depth, size, size]) for name, depth in (("x", 3), ("y", 16))]  # fmt: skip
    graph = helper.make_graph(nodes, "g", ends[:1], ends[1:], made)
    save(
        helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8),
        "f.onnx",
    )
    quantize_static("f.onnx", "q.onnx", reader, calibrate_method=CalibrationMethod[method])


class Reader:
    """Gives samples, each made by a function."""

    def __init__(self, count: int, make: Any, size: int = 64) -> None:
        self.left, self.make, self.size = count, make, size

    def get_next(self) -> Any:
        """Returns a sample; None after the last."""
        import numpy as np

        self.left -= 1
        if self.left < 0:
            return None
        self.make()
        return {"x": np.ones((1, 3, self.size, self.size), np.float32)}


LOADER = "load samples in several processes"
OTHER_METHOD = "calibrate with MinMax"


@planted("calibration_data", near="waiting", remedy=LOADER, opens=True)
def slow_samples() -> None:
    def fetch() -> None:
        time.sleep(0.1)  # here

    quantize(Reader(30, fetch))


@planted("calibration_data", near="one_processor", remedy=LOADER, opens=True)
def decoded_samples() -> None:
    packed = zlib.compress(bytes(30_000_000))

    def decode() -> None:
        zlib.decompress(packed)  # here

    quantize(Reader(60, decode))


@planted("calibration_data", near="own_threads", remedy="", opens=True)
def samples_from_a_queue() -> None:
    ready: queue.Queue[int] = queue.Queue(2)

    def load() -> None:
        for number in range(30):
            time.sleep(0.1)
            ready.put(number)

    threading.Thread(target=load).start()

    def take() -> None:
        ready.get()  # here

    quantize(Reader(30, take))


@planted("one_processor", "all_processors", "nothing_stands_out", near="calibration_data", opens=True)  # fmt: skip
def quick_samples_for_a_slow_model() -> None:
    quantize(Reader(400, lambda: None, 256), size=256)


@planted("nothing_stands_out", "one_processor", "all_processors", near="calibration_data", opens=True)  # fmt: skip
def a_third_of_the_time_for_samples() -> None:
    quantize(Reader(350, lambda: time.sleep(0.0015), 256), size=256)


@planted("one_processor", "all_processors", near="calibration_data", needs="torch")
def a_models_own_forward() -> None:
    import torch

    class Model(torch.nn.Module):
        def forward(self, x: Any) -> Any:
            for row in x:
                x = x + row.sum()
            return x

    model = Model()
    for _ in until():
        model(torch.ones(64, 64))


@planted("memory_growth", near="calibration_data", remedy=OTHER_METHOD, opens=True, group={"memory": 1.2e9})  # fmt: skip
def every_activation_is_kept() -> None:
    quantize(Reader(45, lambda: time.sleep(0.05), 256), "Entropy", size=256)


@planted("memory_growth", near="calibration_data", opens=True, group={"memory": 1.2e9})
def the_reader_keeps_its_samples() -> None:
    kept: list[Any] = []

    def read() -> None:
        kept.append(numbers(1_500_000))  # here
        time.sleep(0.04)

    quantize(Reader(50, read))


@planted("memory_growth", near="calibration_data", opens=True, group={"memory": 1.2e9})
def results_are_kept_as_text() -> None:
    kept: list[str] = []

    def read() -> None:
        kept.append(json.dumps(list(range(1_500_000))))  # here

    quantize(Reader(40, read))


@planted("calibration_data", near="memory_growth", remedy=LOADER, opens=True, group={"memory": 1.2e9})  # fmt: skip
def samples_that_come_and_go() -> None:
    def read() -> None:
        numbers(10_000_000).sum()  # here

    quantize(Reader(70, read))


@planted("calibration_data", near="memory_growth", remedy=LOADER, opens=True, group={"memory": 1.2e9})  # fmt: skip
def a_cache_that_fills() -> None:
    kept: list[Any] = []

    def read() -> None:
        if len(kept) < 8:
            kept.append(numbers(5_000_000))
        time.sleep(0.05)  # here

    quantize(Reader(45, read))


@planted("calibration_data", near="memory_growth", remedy=LOADER, opens=True, group={"memory": 3e9})
def a_little_of_each_sample_is_kept() -> None:
    kept: list[Any] = []

    def read() -> None:
        kept.append(numbers(200_000))
        time.sleep(0.06)  # here

    quantize(Reader(40, read))


# --- start, imports, compilers --------------------------------------------------------------


@planted("importing", near="one_processor")
def imports_torch() -> None:
    import torch
    import transformers.models.llama.modeling_llama  # here

    del torch, transformers


@planted("importing", near="waiting")
def a_module_that_sleeps() -> None:
    pathlib.Path("slow_plugin.py").write_text("import time\ntime.sleep(2.5)\n")
    sys.path.insert(0, os.getcwd())
    importlib.import_module("slow_plugin")  # here


@planted("importing", near="one_processor")
def many_small_modules() -> None:
    sys.path.insert(0, os.getcwd())
    for number in until():
        name = f"generated_{number}"
        pathlib.Path(f"{name}.py").write_text("\n".join(f"def f{n}(x): return x + {n}" for n in range(800)))  # fmt: skip
        __import__(name)  # here


@planted("one_processor", near="importing")
def a_script_that_is_run() -> None:
    import runpy

    pathlib.Path("work.py").write_text("x = 0\nfor i in range(30_000_000): x += i\n")
    runpy.run_path("work.py")


@planted("one_processor", near="importing")
def an_import_in_a_loop() -> None:
    total = 0
    for _ in until():
        from math import sqrt

        for number in range(1000):
            total += int(sqrt(number))


@planted("one_processor", "nothing_stands_out", near="importing")
def a_part_of_it_is_an_import() -> None:
    import decimal
    import sqlite3.dbapi2
    import xml.dom.minidom

    del decimal, xml, sqlite3
    spin(SECONDS)  # here


@planted("startup", "importing", near="one_processor", opens=True)
def imports_before_the_first_step() -> None:
    import onnxruntime.quantization
    import torch
    import transformers.models.llama.modeling_llama  # here

    del onnxruntime, torch, transformers
    with step("Quantize"):
        time.sleep(0.2)


@planted("startup", near="importing", opens=True)
def loads_a_checkpoint() -> None:
    import torch

    def load_checkpoint() -> Any:
        time.sleep(3)  # here
        return torch.ones(10)

    load_checkpoint()  # here
    with step("Quantize"):
        time.sleep(0.2)


@planted("startup", near="importing", opens=True)
def loads_weights_into_a_model() -> None:
    import torch

    model = torch.nn.Sequential(*(torch.nn.Linear(2000, 2000) for _ in range(20)))
    weights = model.state_dict()
    for _ in until(3):
        model.load_state_dict(weights)  # here
    with step("Quantize"):
        time.sleep(0.2)


@planted("", "one_processor", near="startup", opens=True)
def reads_its_data_first() -> None:
    text = json.dumps([{"text": "x" * 20, "label": n} for n in range(100_000)])
    for _ in until(3):
        json.loads(text)
    with step("Quantize"):
        time.sleep(0.2)


@planted("", "waiting", near="startup", opens=True)
def waits_first() -> None:
    time.sleep(3)  # here
    with step("Quantize"):
        time.sleep(0.2)


@planted("", "one_processor", near="startup", opens=True)
def computes_first() -> None:
    spin(3)  # here
    with step("Quantize"):
        time.sleep(0.2)


def chain(x: Any) -> Any:
    """Is compiled."""
    import torch

    for number in range(60):
        x = torch.sin(x) * number + torch.cos(x)
    return x


KEEP = "keep what was compiled"


@planted("compiling", near="one_processor", remedy=KEEP, needs="torch")
def compiled_again_and_again() -> None:
    import torch

    for _ in until(4):
        torch._dynamo.reset()
        torch.compile(chain, backend="eager")(torch.ones(4))  # here


@planted("compiling", near="one_processor", remedy=KEEP, needs="torch")
def compiled_with_autograd() -> None:
    import torch

    for _ in until(4):
        torch._dynamo.reset()
        torch.compile(chain, backend="aot_eager")(torch.ones(4, requires_grad=True))  # here


@planted("compiling", near="child", remedy=KEEP, needs="torch")
def a_graph_for_each_shape() -> None:
    import torch

    compiled = torch.compile(chain, backend="eager", dynamic=False)
    for number in until(4):
        if number % 7 == 6:
            torch._dynamo.reset()
        compiled(torch.ones(number % 7 + 2))  # here


@planted("one_processor", "all_processors", near="compiling", needs="torch")
def what_was_compiled_runs() -> None:
    import torch

    def double(x: Any) -> Any:
        return x * 2

    compiled = torch.compile(double, backend="eager")
    for _ in until(6):
        compiled(torch.ones(4))


@planted("one_processor", near="compiling")
def python_is_compiled() -> None:
    text = "\n".join(f"def f{n}(x): return x + {n}" for n in range(2000))
    for _ in until():
        compile(text, "generated", "exec")  # here


@planted("child", near="compiling")
def a_c_compiler() -> None:
    pathlib.Path("x.cpp").write_text("#include <regex>\n#include <map>\nint main() { std::regex r(\"a+\"); }\n")  # fmt: skip
    for _ in until():
        subprocess.run(["g++", "-O2", "-c", "x.cpp"], check=True)  # here


@planted("lock_file", near="waiting", remedy="delete the file lock", needs="torch")
def an_old_lock_of_torch() -> None:
    from torch.utils.file_baton import FileBaton

    pathlib.Path("lock").touch()
    threading.Timer(3, os.unlink, ["lock"]).start()
    FileBaton("lock").wait()  # here


@planted("lock_file", near="startup", remedy="delete the file lock", needs="torch")
def an_old_lock_looked_at_often() -> None:
    from torch.utils.file_baton import FileBaton

    baton = FileBaton("lock", wait_seconds=0.01)
    pathlib.Path("lock").touch()
    threading.Timer(3, os.unlink, ["lock"]).start()
    baton.wait()  # here


@planted("lock_file", near="one_processor", remedy="delete the file lock", needs="torch")
def an_old_lock_several_times() -> None:
    from torch.utils.file_baton import FileBaton

    for _ in range(6):
        pathlib.Path("lock").touch()
        threading.Timer(0.5, os.unlink, ["lock"]).start()
        FileBaton("lock").wait()  # here


@planted("waiting", near="lock_file")
def a_file_of_its_own() -> None:
    pathlib.Path("mine.lock").touch()
    threading.Timer(3, os.unlink, ["mine.lock"]).start()
    while pathlib.Path("mine.lock").exists():
        time.sleep(0.1)  # here


@planted("one_processor", near="lock_file", needs="torch")
def an_old_lock_for_a_moment() -> None:
    from torch.utils.file_baton import FileBaton

    pathlib.Path("lock").touch()
    threading.Timer(0.4, os.unlink, ["lock"]).start()
    FileBaton("lock").wait()
    spin(2 * SECONDS)  # here


HOLDER = """
import fcntl, sys, time
lock = open(sys.argv[1], "w")
fcntl.flock(lock, fcntl.LOCK_EX)
print(flush=True)
time.sleep(float(sys.argv[2]))
"""


def holder(path: pathlib.Path, seconds: float) -> subprocess.Popen[bytes]:
    """Starts another process that has a lock."""
    path.parent.mkdir(exist_ok=True)
    started = subprocess.Popen([sys.executable, "-c", HOLDER, path, str(seconds)], stdout=subprocess.PIPE)  # fmt: skip
    assert started.stdout is not None
    started.stdout.readline()
    return started


def build(name: str, text: str = "#error not now", *, is_module: bool = True) -> None:
    """Builds an extension of torch, which fails at its first line once it has the lock if no text is given."""
    from torch.utils import cpp_extension

    pathlib.Path("x.cpp").write_text(f"{text}\n")
    pathlib.Path(name).mkdir(exist_ok=True)
    try:
        cpp_extension.load(name, "x.cpp", build_directory=name, is_python_module=is_module)  # here
    except (RuntimeError, OSError):
        pass


@planted("other_build", near="lock_file", opens=True, needs="torch.utils.cpp_extension")
def another_build_has_the_lock() -> None:
    other = holder(pathlib.Path("a/lock"), 5)
    with step("Build"):
        build("a")  # here
    other.wait()


@planted("other_build", near="child", opens=True, needs="torch.utils.cpp_extension")
def another_build_then_work() -> None:
    other = holder(pathlib.Path("a/lock"), 5)
    with step("Build"):
        build("a", is_module=False)  # here
        spin(0.5)
    other.wait()


@planted("other_build", near="waiting", opens=True, needs="torch.utils.cpp_extension")
def other_builds_one_after_another() -> None:
    others = [holder(pathlib.Path(f"{name}/lock"), 4 * (at + 1)) for at, name in enumerate("ab")]
    with step("Build"):
        for name in "ab":
            build(name)  # here
    for other in others:
        other.wait()


@planted("waiting", "lock", near="other_build", opens=True)
def a_filelock_of_its_own() -> None:
    from filelock import FileLock

    other = holder(pathlib.Path("locks/b.lock"), 3)
    with step("Download"), FileLock("locks/b.lock"):  # here
        pass
    other.wait()


@planted("compiling", near="other_build", remedy=KEEP, opens=True, needs="torch.utils.cpp_extension")  # fmt: skip
def builds_of_its_own() -> None:
    with step("Build"):
        for number in until(4):
            text = f"int own{number}() {{ return {number}; }}"
            build(f"own{number}", text, is_module=False)  # here


@planted("one_processor", near="other_build", opens=True, needs="torch.utils.cpp_extension")
def another_build_for_a_moment() -> None:
    other = holder(pathlib.Path("a/lock"), 0.8)
    with step("Build"):
        build("a")
        spin(6)  # here
    other.wait()


# --- processors -----------------------------------------------------------------------------


def busy_thread(work: Any, seconds: float = SECONDS) -> threading.Thread:
    """Starts a thread that works for a while."""

    def run() -> None:
        for _ in until(seconds):
            work()

    thread = threading.Thread(target=run)
    thread.start()
    return thread


@planted("throttled", near="other_programs", group={"cpu": 0.4})
def a_small_share_of_a_processor() -> None:
    spin(SECONDS)  # here


@planted("throttled", near="pinned", group={"cpu": 0.6})
def hashes_in_a_small_group() -> None:
    block = bytes(1_000_000)
    threads = [busy_thread(lambda: hashlib.sha256(block)) for _ in range(2)]
    for _ in until():
        hashlib.sha256(block)  # here
    for thread in threads:
        thread.join()


def burn(seconds: float) -> float:
    """Works in another process."""
    spin(seconds)
    return seconds


@planted("throttled", near="child", group={"cpu": 0.5})
def workers_in_a_small_group() -> None:
    with multiprocessing.get_context("fork").Pool(2) as pool:
        pool.map(burn, [SECONDS, SECONDS])  # here


@planted("one_processor", "nothing_stands_out", near="throttled", group={"cpu": 1.6})
def a_group_that_is_large_enough() -> None:
    spin(SECONDS)  # here


@planted("waiting", near="throttled", group={"cpu": 0.2})
def asleep_in_a_small_group() -> None:
    for _ in until():
        time.sleep(0.1)  # here


@planted("child", "waiting", near="throttled", group={"cpu": 0.5})
def a_sleeping_child_in_a_small_group() -> None:
    subprocess.run(["sleep", str(SECONDS)], check=True)  # here


def pin() -> None:
    """Keeps this thread, and those that it starts, on one processor."""
    os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})


@planted("pinned", near="other_programs")
def array_threads_on_one_processor() -> None:
    import numpy as np

    pin()
    array = numbers(200_000)
    threads = [busy_thread(lambda: np.sin(array)) for _ in range(2)]
    for _ in until():
        np.sin(array)  # here
    for thread in threads:
        thread.join()


@planted("pinned", near="oversubscribed", needs="torch")
def torch_on_one_processor() -> None:
    import torch

    pin()
    torch.set_num_threads(2)
    square = torch.ones(800, 800)
    for _ in until():
        square @ square  # here


@planted("pinned", near="all_processors")
def a_worker_on_the_same_processor() -> None:
    pin()
    workers = [multiprocessing.get_context("fork").Process(target=burn, args=(SECONDS,)) for _ in range(2)]  # fmt: skip
    for worker in workers:
        worker.start()
    spin(SECONDS)  # here
    for worker in workers:
        worker.join()


@planted("one_processor", near="pinned")
def alone_on_one_processor() -> None:
    pin()
    spin(SECONDS)  # here


@planted("other_programs", near="pinned", beside="busy on the first processor")
def another_program_on_its_processor() -> None:
    pin()
    spin(SECONDS)


@planted("waiting", near="pinned")
def asleep_on_one_processor() -> None:
    pin()
    time.sleep(SECONDS)  # here


@planted("oversubscribed", near="other_programs", needs="torch")
def torch_with_sixteen_threads() -> None:
    import torch

    torch.set_num_threads(16)
    square = torch.ones(600, 600)
    for _ in until():
        square @ square  # here


@planted("oversubscribed", near="own_threads")
def a_pool_of_ten_that_hash() -> None:
    block = bytes(20_000_000)
    with ThreadPoolExecutor(10) as pool:
        for _ in until():
            list(pool.map(lambda _: hashlib.sha256(block).digest(), range(20)))  # here


@planted("oversubscribed", near="all_processors")
def eight_threads_sort() -> None:
    threads = [busy_thread(lambda: numbers(300_000).sort()) for _ in range(8)]
    for _ in until():
        numbers(300_000).sort()  # here
    for thread in threads:
        thread.join()


@planted("all_processors", "other_programs", near="oversubscribed")
def three_threads_on_two() -> None:
    threads = [busy_thread(lambda: numbers(300_000).sort()) for _ in range(2)]
    for _ in until():
        numbers(300_000).sort()
    for thread in threads:
        thread.join()


@planted("waiting", near="oversubscribed")
def twenty_threads_that_sleep() -> None:
    threads = [threading.Thread(target=time.sleep, args=(SECONDS,)) for _ in range(20)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()  # here


@planted("other_programs", near="one_processor", beside="busy")
def python_on_a_busy_machine() -> None:
    spin(SECONDS)


@planted("other_programs", near="all_processors", beside="busy")
def arrays_on_a_busy_machine() -> None:
    array = numbers(2_000_000)
    for _ in until():
        (array * 2).sum()


@planted("other_programs", near="one_processor", beside="busy")
def text_on_a_busy_machine() -> None:
    text = json.dumps(list(range(100_000)))
    for _ in until():
        json.loads(text)


@planted("one_processor", near="other_programs", beside="polite")
def python_beside_a_polite_program() -> None:
    spin(SECONDS)  # here


@planted("waiting", near="other_programs", beside="busy")
def asleep_on_a_busy_machine() -> None:
    for _ in until():
        time.sleep(0.2)  # here


@planted("all_processors", near="one_processor", needs="torch")
def products_of_torch() -> None:
    import torch

    torch.set_num_threads(2)
    square = torch.ones(1200, 1200)
    for _ in until():
        square @ square  # here


@planted("all_processors", near="child")
def a_pool_of_processes() -> None:
    with multiprocessing.get_context("fork").Pool(2) as pool:
        pool.map(burn, [SECONDS, SECONDS])  # here


@planted("all_processors", near="own_threads")
def two_threads_compress() -> None:
    block = os.urandom(4_000_000)
    with ThreadPoolExecutor(2) as pool:
        for _ in until():
            list(pool.map(zlib.compress, [block] * 4))  # here


@planted("one_processor", "nothing_stands_out", near="all_processors")
def a_thread_and_a_half() -> None:
    def half() -> None:
        hashlib.sha256(bytes(3_000_000)).digest()
        time.sleep(0.2)

    other = busy_thread(half)
    spin(SECONDS)
    other.join()


@planted("one_processor", near="all_processors")
def a_loop_in_python() -> None:
    total = 0
    for _ in until():
        for number in range(20_000):
            total += number * number  # here


@planted("one_processor", near="disk")
def pickles_in_memory() -> None:
    rows = [{"number": n, "text": str(n)} for n in range(50_000)]
    for _ in until():
        pickle.loads(pickle.dumps(rows))  # here


@planted("one_processor", near="child")
def sorts_words() -> None:
    words = [str(random.random()) for _ in range(200_000)]
    for _ in until():
        sorted(words, key=lambda word: word[::-1])  # here


@planted("nothing_stands_out", "waiting", near="one_processor")
def half_asleep() -> None:
    for _ in until():
        spin(0.05)
        time.sleep(0.05)


# --- waiting --------------------------------------------------------------------------------


@planted("waiting", near="own_threads")
def sleeps() -> None:
    for _ in until():
        time.sleep(0.3)  # here


@planted("waiting", near="network")
def an_asyncio_loop_that_sleeps() -> None:
    async def one() -> None:
        for _ in until():
            await asyncio.sleep(0.1)

    async def all_of_them() -> None:
        await asyncio.gather(*(one() for _ in range(10)))

    asyncio.run(all_of_them())


@planted("waiting", near="child")
def a_pipe_that_comes_late() -> None:
    reads, writes = os.pipe()
    threading.Timer(SECONDS, os.write, (writes, b"x")).start()
    os.read(reads, 1)  # here


@planted("child", near="waiting")
def a_command_that_sleeps() -> None:
    subprocess.run(["sleep", str(SECONDS)], check=True)  # here


@planted("child", near="own_threads")
def a_script_and_its_output() -> None:
    program = "import time\nend = time.monotonic() + 2.5\nwhile time.monotonic() < end: pass\nprint(1)"  # fmt: skip
    process = subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True)
    process.communicate()  # here


@planted("child", near="waiting")
def a_command_by_the_shell() -> None:
    os.system(f"sleep {SECONDS}; true")  # here


@planted("child", near="all_processors")
def a_process_that_is_joined() -> None:
    worker = multiprocessing.get_context("fork").Process(target=burn, args=(SECONDS,))
    worker.start()
    worker.join()  # here


@planted("child", near="own_threads")
def one_worker_of_an_executor() -> None:
    context = multiprocessing.get_context("fork")
    with ProcessPoolExecutor(1, mp_context=context) as pool:
        list(pool.map(burn, [SECONDS / 2] * 2))  # here


@planted("child", near="disk")
def lines_of_a_command() -> None:
    command = ["sh", "-c", "for i in 1 2 3 4 5 6; do echo $i; sleep .4; done"]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        for _ in process.stdout:  # here
            pass


@planted("one_processor", "all_processors", "nothing_stands_out", near="child")
def a_child_in_the_background() -> None:
    process = subprocess.Popen(["sleep", "3"])
    spin(SECONDS)  # here
    process.wait()


@planted("waiting", "nothing_stands_out", near="child")
def a_child_for_a_third() -> None:
    for _ in until():
        subprocess.run(["sleep", "0.1"], check=True)
        time.sleep(0.25)


def served(pause: float, size: int, seconds: float = SECONDS) -> tuple[str, int]:
    """Starts a server in this process that sends so many bytes after each pause; returns its address."""
    server = socket.create_server(("127.0.0.1", 0))

    def serve() -> None:
        connection, _ = server.accept()
        for _ in until(seconds):
            time.sleep(pause)
            connection.sendall(bytes(size))
        connection.close()

    threading.Thread(target=serve).start()
    address: tuple[str, int] = server.getsockname()
    return address


@planted("network", near="waiting")
def a_slow_download_by_socket() -> None:
    connection = socket.create_connection(served(0.05, 2000))
    while connection.recv(65536):  # here
        pass


class Slow(BaseHTTPRequestHandler):
    """Answers slowly."""

    def do_GET(self) -> None:
        """Sends a megabyte in pieces."""
        self.send_response(200)
        self.end_headers()
        for _ in range(25):
            time.sleep(0.1)
            self.wfile.write(bytes(40_000))

    def log_message(self, *_: object) -> None:
        """Prints nothing."""


@planted("network", near="own_threads")
def a_slow_download_by_http() -> None:
    server = ThreadingHTTPServer(("127.0.0.1", 0), Slow)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    with urllib.request.urlopen(f"http://127.0.0.1:{server.server_port}/") as answer:
        while answer.read(10_000):  # here
            pass
    server.shutdown()


@planted("network", near="waiting")
def a_socket_that_is_selected() -> None:
    connection = socket.create_connection(served(0.05, 5000))
    while True:
        select.select([connection], [], [])  # here
        if not connection.recv(65536):
            break


@planted("waiting", "network", near="network")
def a_server_that_says_nothing() -> None:
    connection = socket.create_connection(served(SECONDS, 1))
    connection.recv(1)  # here


@planted("waiting", near="network")
def asleep_while_others_download() -> None:
    def download() -> None:
        connection = socket.create_connection(served(0.05, 2000))
        while connection.recv(65536):
            pass

    thread = threading.Thread(target=download)
    thread.start()
    time.sleep(SECONDS)  # here
    thread.join()


@planted("one_processor", "all_processors", "own_threads", "gil", near="network")
def a_fast_download() -> None:
    connection = socket.create_connection(served(0, 500_000))
    while block := connection.recv(1 << 20):
        hashlib.sha256(block)


@planted("own_threads", near="waiting")
def a_thread_that_is_joined() -> None:
    text = json.dumps(list(range(50_000)))
    busy_thread(lambda: json.loads(text)).join()  # here


@planted("own_threads", near="one_processor")
def results_of_one_worker() -> None:
    array = numbers(1_000_000)
    with ThreadPoolExecutor(1) as pool:
        for _ in until():
            pool.submit(lambda: array.copy().sort()).result()  # here


@planted("own_threads", near="gil")
def a_producer_and_its_queue() -> None:
    ready: queue.Queue[str | None] = queue.Queue(4)

    def produce() -> None:
        for _ in until():
            ready.put(json.dumps(list(range(100_000))))
        ready.put(None)

    threading.Thread(target=produce).start()
    while ready.get() is not None:  # here
        pass


@planted("waiting", near="own_threads")
def a_thread_that_waits_too() -> None:
    thread = threading.Thread(target=time.sleep, args=(SECONDS,))
    thread.start()
    thread.join()  # here


@planted("waiting", near="own_threads")
def a_pool_that_sleeps() -> None:
    with ThreadPoolExecutor(4) as pool:
        list(pool.map(time.sleep, [SECONDS / 4] * 16))  # here


# --- disk -----------------------------------------------------------------------------------


def file_of(size: int) -> pathlib.Path:
    """Returns a file that is on the disk and not in memory."""
    path = pathlib.Path("data.bin")
    with path.open("wb") as file:
        for _ in range(size // 10_000_000):
            file.write(os.urandom(10_000_000))
        file.flush()
        os.fsync(file.fileno())
        os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
    return path


@planted("disk", near="one_processor", opens=True)
def reads_a_file() -> None:
    path = file_of(200_000_000)
    with step("Read"):
        for _ in until():
            with path.open("rb", buffering=0) as file:
                os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
                while file.read(8_000_000):  # here
                    pass


@planted("disk", near="one_processor")
def writes_and_waits_for_it() -> None:
    block = os.urandom(4_000_000)
    with open("out.bin", "wb") as file:
        for _ in until():
            file.write(block)
            file.flush()
            os.fsync(file.fileno())  # here


@planted("disk", near="waiting")
def a_database_that_commits() -> None:
    base = sqlite3.connect("base.db")
    base.execute("CREATE TABLE scales (name TEXT, value BLOB)")
    for number in until():
        base.execute("INSERT INTO scales VALUES (?, ?)", (str(number), os.urandom(2000)))
        base.commit()  # here


@planted("one_processor", near="disk")
def a_file_that_is_in_memory() -> None:
    path = pathlib.Path("data.bin")
    path.write_bytes(bytes(50_000_000))
    for _ in until():
        path.read_bytes()  # here


@planted("one_processor", "all_processors", near="disk")
def writes_to_memory() -> None:
    block = os.urandom(8_000_000)
    path = pathlib.Path("/dev/shm/otel-quant-verdicts.bin")
    for _ in until():
        path.write_bytes(block)  # here
    path.unlink()


@planted("waiting", near="disk")
def asleep_while_others_write() -> None:
    def write() -> None:
        with open("out.bin", "wb") as file:
            for _ in until():
                file.write(bytes(5_000_000))
                os.fsync(file.fileno())
                file.seek(0)
                time.sleep(0.02)

    thread = threading.Thread(target=write)
    thread.start()
    time.sleep(SECONDS)  # here
    thread.join()


@planted("page_faults", near="disk", opens=True)
def a_mapped_file_at_random() -> None:
    path = file_of(300_000_000)
    with step("Read"), path.open("rb") as file:
        mapped = mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ)
        mapped.madvise(mmap.MADV_RANDOM)
        for _ in until():
            mapped[random.randrange(300_000_000)]  # here
        mapped.close()


@planted("page_faults", near="disk", opens=True)
def rows_of_a_memmap() -> None:
    import numpy as np

    path = file_of(300_000_000)
    with path.open("rb") as file:
        mapped = mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ)
    mapped.madvise(mmap.MADV_RANDOM)
    rows = np.frombuffer(mapped, np.uint8)[: 4096 * 73_000].reshape(-1, 4096)
    with step("Read"):
        for _ in until():
            rows[random.randrange(len(rows))].sum()  # here


@planted("page_faults", "disk", near="disk", opens=True, needs="torch")
def weights_that_are_mapped() -> None:
    import torch

    torch.save({str(n): torch.rand(250_000) for n in range(300)}, "weights.pt")
    with open("weights.pt", "rb") as file:
        os.fsync(file.fileno())
        os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
    with step("Read"):
        for _ in until():
            weights = torch.load("weights.pt", mmap=True)
            for weight in weights.values():
                weight.sum().item()  # here
            del weights, weight
            with open("weights.pt", "rb") as file:
                os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


@planted("one_processor", near="page_faults")
def a_mapped_file_that_is_in_memory() -> None:
    pathlib.Path("data.bin").write_bytes(bytes(50_000_000))
    with open("data.bin", "rb") as file:
        mapped = mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ)
        for _ in until():
            mapped.find(b"x")  # here


@planted("one_processor", near="page_faults")
def memory_taken_and_given_back() -> None:
    for _ in until():
        bytearray(100_000_000)  # here


@planted("waiting", near="page_faults", opens=True)
def pages_now_and_then() -> None:
    path = file_of(300_000_000)
    with step("Read"), path.open("rb") as file:
        mapped = mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ)
        mapped.madvise(mmap.MADV_RANDOM)
        for _ in until():
            for _ in range(5):
                mapped[random.randrange(300_000_000)]
            time.sleep(0.1)  # here
        mapped.close()


# --- a hang ---------------------------------------------------------------------------------


@planted("stalled", near="waiting", is_idle=True)
def an_event_that_never_comes() -> None:
    threading.Event().wait(33)  # here


@planted("stalled", near="own_threads", is_idle=True)
def a_queue_without_a_producer() -> None:
    waiting: queue.Queue[int] = queue.Queue()
    try:
        waiting.get(timeout=33)  # here
    except queue.Empty:
        pass


@planted("stalled", near="network", is_idle=True)
def a_server_that_never_answers() -> None:
    connection = socket.create_connection(served(33, 1, 1))
    connection.recv(1)  # here


@planted("waiting", near="stalled", is_idle=True)
def a_long_pause() -> None:
    time.sleep(22)  # here


@planted("waiting", "nothing_stands_out", near="stalled", is_idle=True)
def it_goes_on_now_and_then() -> None:
    for _ in range(3):
        time.sleep(11)
        spin(0.5)


@planted("child", near="stalled", is_idle=True)
def a_child_that_works_a_little() -> None:
    program = "import time\nfor _ in range(330):\n    end = time.monotonic() + .015\n    while time.monotonic() < end: pass\n    time.sleep(.085)"  # fmt: skip
    subprocess.run([sys.executable, "-c", program], check=True)  # here


# --- the GIL, locks, the garbage collector --------------------------------------------------


@planted("gil", near="one_processor")
def four_threads_of_python() -> None:
    def work() -> None:
        sum(n * n for n in range(5000))

    threads = [busy_thread(work) for _ in range(3)]
    for _ in until():
        work()
    for thread in threads:
        thread.join()


@planted("gil", "own_threads", "garbage_collector", near="own_threads")
def a_pool_that_parses() -> None:
    text = json.dumps([{"a": n, "b": [n]} for n in range(5_000)])
    with ThreadPoolExecutor(4) as pool:
        for _ in until():
            list(pool.map(json.loads, [text] * 40))


@planted("gil", near="other_programs")
def a_model_in_python_beside_a_server() -> None:
    stop = threading.Event()

    def poll() -> None:
        state = 0
        while not stop.is_set():
            state = (state * 31 + 7) % 1_000_003

    threads = [threading.Thread(target=poll) for _ in range(2)]
    for thread in threads:
        thread.start()
    scales: dict[str, float] = {}
    for number in until():
        scales[f"layer.{number % 100}"] = max(abs(n - 50) for n in range(500)) / 127  # here
    stop.set()


@planted("gil", near="all_processors")
def words_counted_in_threads() -> None:
    text = " ".join(str(n) for n in range(20_000))

    def count() -> None:
        found: dict[str, int] = {}
        for word in text.split():
            found[word] = found.get(word, 0) + 1

    threads = [busy_thread(count) for _ in range(2)]
    for _ in until():
        count()
    for thread in threads:
        thread.join()


@planted("all_processors", "one_processor", near="gil")
def two_threads_that_let_go() -> None:
    block = bytes(2_000_000)
    other = busy_thread(lambda: hashlib.sha256(block).digest())
    for _ in until():
        hashlib.sha256(block).digest()
    other.join()


@planted("one_processor", near="gil")
def one_of_many_threads_works() -> None:
    stop = threading.Event()
    threads = [threading.Thread(target=stop.wait) for _ in range(5)]
    for thread in threads:
        thread.start()
    spin(SECONDS)  # here
    stop.set()


@planted("own_threads", "nothing_stands_out", "lock", near="gil")
def two_threads_in_turns() -> None:
    mine, its = threading.Semaphore(1), threading.Semaphore(0)
    end = time.monotonic() + SECONDS

    def other() -> None:
        while time.monotonic() < end:
            its.acquire()
            spin(0.03)
            mine.release()

    threading.Thread(target=other, daemon=True).start()
    while time.monotonic() < end:
        mine.acquire()
        spin(0.03)
        its.release()
    its.release()


@planted("lock", near="waiting")
def a_lock_that_a_sleeper_has() -> None:
    lock = threading.Lock()

    def upload() -> None:
        with lock:
            time.sleep(SECONDS)  # here

    threading.Thread(target=upload).start()
    time.sleep(0.05)
    with lock:  # here
        pass


@planted("lock", "own_threads", near="own_threads")
def a_lock_that_a_worker_has() -> None:
    lock = threading.RLock()

    def convert() -> None:
        with lock:
            spin(SECONDS)  # here

    threading.Thread(target=convert).start()
    time.sleep(0.05)
    with lock:  # here
        pass


class Cache:
    """Has a lock, as classes have."""

    def __init__(self) -> None:
        self._lock = threading.Lock()

    def refresh(self) -> None:
        """Takes long."""
        with self._lock:
            time.sleep(0.2)

    def get(self) -> int:
        """Waits for it."""
        with self._lock:
            return 1


@planted("lock", near="waiting")
def a_cache_that_is_refreshed() -> None:
    cache = Cache()
    thread = busy_thread(cache.refresh)
    while thread.is_alive():
        cache.get()


@planted("lock", near="network")
def a_lock_taken_by_hand() -> None:
    lock = threading.Lock()
    lock.acquire()
    threading.Timer(SECONDS, lock.release).start()
    lock.acquire()  # here


@planted("waiting", near="lock")
def an_event_that_comes_late() -> None:
    event = threading.Event()
    threading.Timer(SECONDS, event.set).start()
    event.wait()  # here


@planted("waiting", near="lock")
def a_queue_that_fills_slowly() -> None:
    ready: queue.Queue[int] = queue.Queue()
    for number in range(5):
        threading.Timer(number / 2 + 0.5, ready.put, [number]).start()
    for _ in range(5):
        ready.get()  # here


@planted("one_processor", near="lock")
def a_lock_that_nobody_has() -> None:
    lock = threading.Lock()
    total = 0
    for _ in until():
        for number in range(1000):
            with lock:
                total += number


FREEZE = "gc.freeze()"


def records(count: int) -> list[dict[str, list[int]]]:
    """Returns many objects."""
    return [{"a": [number]} for number in range(count)]


@planted("garbage_collector", near="one_processor", remedy=FREEZE, opens=True)
def collects_after_each_layer() -> None:
    kept = records(400_000)
    with step("Quantize"):
        for _ in until():
            sum(range(200_000))
            gc.collect()  # here
    del kept


@planted("garbage_collector", near="one_processor", remedy=FREEZE, opens=True)
def collects_beside_torch() -> None:
    import torch

    kept = records(300_000)
    layers = [torch.nn.Linear(100, 100) for _ in range(20)]
    with step("Quantize"):
        for _, layer in zip(until(), itertools.cycle(layers), strict=False):
            layer.weight.abs().max()
            gc.collect()  # here
    del kept


@planted("garbage_collector", near="one_processor")
def builds_many_objects() -> None:
    gc.set_threshold(700, 2, 2)
    kept = []
    for _ in until():
        kept.append({"a": [1]})  # here


@planted("garbage_collector", near="memory_growth")
def a_graph_that_it_builds() -> None:
    nodes: list[Any] = []
    for _ in until():
        nodes += ([n, {"in": []}] for n in range(5000))
        gc.collect()  # here


@planted("one_processor", near="garbage_collector")
def collects_now_and_then() -> None:
    kept = records(100_000)
    for number in until():
        sum(range(200_000))  # here
        if number % 100 == 0:
            gc.collect()
    del kept


@planted("one_processor", near="garbage_collector")
def objects_that_go_at_once() -> None:
    for _ in until():
        [[] for _ in range(100)]


@planted("waiting", near="garbage_collector")
def asleep_and_collected() -> None:
    kept = records(50_000)
    for _ in until():
        time.sleep(0.2)  # here
        gc.collect()
    del kept


# --- how several of these go together -------------------------------------------------------


@planted("waiting", "nothing_stands_out", near="calibration_data")
def a_loop_of_its_own_that_loads() -> None:
    def load() -> None:
        time.sleep(0.1)  # here

    for _ in until():
        load()
        spin(0.015)


@planted("one_processor", near="waiting", opens=True)
def equal_short_steps() -> None:
    for _ in range(6):
        with step("Quantize layer"):
            spin(0.5)  # here


@planted("waiting", "child", near="child", needs="torch")
def data_of_workers_of_torch() -> None:
    import torch

    class Slow(torch.utils.data.Dataset[Any]):
        def __len__(self) -> int:
            return 100

        def __getitem__(self, index: int) -> Any:
            time.sleep(0.05)
            return torch.ones(10)

    for _ in torch.utils.data.DataLoader(Slow(), batch_size=4, num_workers=2):  # here
        pass


@planted("one_processor", near="disk")
def logs_all_it_does() -> None:
    import logging

    log = logging.getLogger("planted")
    log.addHandler(logging.FileHandler("log.txt"))
    log.propagate = False
    for number in until():
        log.warning("sample %d", number)  # here


@planted("waiting", near="network")
def polls_a_server_that_is_not_ready() -> None:
    for _ in until():
        try:
            socket.create_connection(("127.0.0.1", 9), 1)
        except OSError:
            time.sleep(0.2)  # here


if __name__ == "__main__":
    run_one(sys.argv[1])
