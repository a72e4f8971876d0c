"""Each verdict on what bounds a step is given where its evidence is, and not where it nearly is."""

from __future__ import annotations

import math
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from otel_quant.diagnosis.bounds import VERDICTS, Bound, Evidence, bound_of, remedy_of, words_of
from otel_quant.diagnosis.gpus import GpuEvidence
from otel_quant.diagnosis.spots import CHILD, DISK, EVENTS, FUTEX, LOCK, NETWORK, PIPE, SLEEP
from otel_quant.diagnosis.stack_trees import Stacks
from otel_quant.diagnosis.tasks import Garbage, TasksBeside
from otel_quant.schema import semconv
from otel_quant.schema.code_lines import OTHER, Amounts, Place
from otel_quant.schema.readings import GpuWork

MAIN = Place("/a/quantize.py", "main", 12, "")
LOADER = Place("/a/quantize.py", "Reader.get_next", 30, "")
QUEUE = Place("queue.py", "Queue.get", 7, "python")
TIMED = Place("/a/quantize.py", "timed", 40, "")
SESSION = Place("onnxruntime/capi/session.py", "Session.run", 406, "onnxruntime")
COLLECT = Place("onnxruntime/quantization/calibrate.py", "collect", 698, "onnxruntime")
BATON = Place("torch/utils/file_baton.py", "FileBaton.wait", 49, "torch")
BUILD = Place("torch/utils/cpp_extension.py", "load", 9, "torch")
TORCHS_LOCK = Place("torch/utils/_filelock.py", "FileLock.__enter__", 24, "torch")
ACQUIRE = Place("filelock/_api.py", "BaseFileLock.acquire", 1037, "filelock")
POLL = Place("filelock/_api.py", "BaseFileLock._poll_until_acquired", 1177, "filelock")
DOWNLOAD = Place("huggingface_hub/file_download.py", "hf_hub_download", 900, "huggingface_hub")
RUN_COMPILED = Place("torch/_dynamo/eval_frame.py", "_fn", 745, "torch")
COMPILE = Place("torch/_dynamo/convert_frame.py", "_compile", 1500, "torch")
IMPORTED = COMPILE._replace(function="<module>")
CELL = Place("IPython/core/interactiveshell.py", "run_code", 3699, "IPython")
MODULE = Place("torch/nn/modules/module.py", "Module._call_impl", 1762, "torch")
FORWARD = Place("/a/quantize.py", "Model.forward", 44, "")
QUARK = Place("quark/torch/quantization/api.py", "calibrate", 7, "quark")
FETCH = Place("torch/utils/data/_utils/fetch.py", "fetch", 50, "torch")
GENERATED = Place("<__array_function__ internals>", "histogram", 180, "")
IMPORT = Place("<frozen importlib._bootstrap>", "_find_and_load", 1176, "python")

LOAD = Place("transformers/modeling_utils.py", "PreTrainedModel.from_pretrained", 9, "transformers")
SOCKET = Place("socket.py", "SocketIO.readinto", 706, "python")
ACQUIRED = Place("threading.py", "Condition.wait", 355, "python")
POPEN = Place("subprocess.py", "Popen.wait", 1264, "python")

NO_GPU = GpuEvidence()
NO_TASKS = TasksBeside()
NO_GARBAGE = Garbage()

RUNS = 1.0, 0.0  # Shares of the time: on a processor, and waiting for one
BLOCKED = 0.1, 0.0

Seen = tuple[tuple[Place, ...], float, tuple[float, float]]  # A stack, its seconds, those shares


def work(seconds: float, of: tuple[float, float] = RUNS) -> Seen:
    return (MAIN, COLLECT), seconds, of


def load(seconds: float) -> Seen:
    return (MAIN, COLLECT, LOADER, QUEUE), seconds, RUNS


def evidence(
    *seen: Seen,
    cores: float = 2.0,
    cpus: float = 4,
    duration: float = 10.0,
    gpu: GpuEvidence = NO_GPU,
    per_sample: float = math.nan,
    tasks: TasksBeside = NO_TASKS,
    garbage: Garbage = NO_GARBAGE,
    waits: dict[str, float] | None = None,
    **figures: float,
) -> Evidence:
    """Returns the evidence of a step of ten seconds that uses two of four processors; figures by the schema's constants."""
    stacks = Stacks()
    for lines, seconds, (cpu, waiting) in seen:
        time = round(seconds * 1e9)
        stacks.add(0, lines, Amounts(time, round(cpu * time), round(waiting * time), time // 10))
    known: dict[str, Any] = {semconv.CPU_USER: cores * duration, semconv.CPU_SYSTEM: 0.0}
    known |= {getattr(semconv, name): value for name, value in figures.items()}
    of_step = stacks.steps[0], duration, known, cpus, 8 * 10**9, per_sample, gpu, tasks
    return Evidence(*of_step, garbage, waits or {})


def beside(**known: Any) -> dict[str, Any]:
    """Returns what is known of other tasks, as an argument of :func:`evidence`."""
    return {"tasks": TasksBeside(**known)}


def under(*lines: Place) -> Evidence:
    """Returns the evidence of a calibration that was at a stack for all of its time."""
    return evidence((lines, 10, RUNS), CALIBRATION_SAMPLE_COUNT=9)


def gpu(
    busy: float,
    sm: float = math.nan,
    dram: float = 0.0,
    pcie: float = 0.0,
    power: float = math.nan,
    **at: Any,
) -> GpuEvidence:
    """Returns what is known of a GPU that is the program's own: with its counters, if `sm` is given; the link as of an H200."""
    if math.isnan(sm):
        return GpuEvidence(GpuWork(busy, power=power), **{"is_alone": True, **at})
    return GpuEvidence(GpuWork(busy, sm, dram, pcie, 63e9, power), **{"is_alone": True, **at})


AT_COLLECT = "100 % of its time at main (quantize.py:12), in collect"
BLOCKED_AT = f"{AT_COLLECT}, where it was blocked"
MIXED = "nothing_stands_out"

CASES = {
    "a hang": (replace(under(MAIN, COLLECT, LOADER, QUEUE), stall=(5.0, "no progress for 5.00 s")), "stalled", "no progress for 5.00 s"),
    "a stall for less": (replace(under(MAIN, COLLECT), stall=(4.9, "no progress for 4.90 s")), MIXED, AT_COLLECT),
    "a lock file": (evidence(((MAIN, BUILD, BATON), 6, RUNS), work(4)), "lock_file", "60 % of its time, most at main (quantize.py:12), in FileBaton.wait"),
    "less at a lock file": (evidence(((MAIN, BUILD, BATON), 4, RUNS), work(6)), MIXED, "100 % of its time at main (quantize.py:12), most in collect"),
    "a build by another process": (evidence(((MAIN, BUILD, TORCHS_LOCK, ACQUIRE, POLL), 6, RUNS), work(4)), "other_build", "60 % of its time, most at main (quantize.py:12), in load"),
    "a build that has the lock": (under(MAIN, BUILD, TORCHS_LOCK), "compiling", "100 % of its time, most at main (quantize.py:12), in load"),
    "a download by another process": (under(MAIN, DOWNLOAD, ACQUIRE, POLL), MIXED, "100 % of its time at main (quantize.py:12), in BaseFileLock._poll_until_acquired"),
    "a compiler": (evidence(((MAIN, BUILD, COLLECT), 6, RUNS), work(4)), "compiling", "60 % of its time, most at main (quantize.py:12), in load"),
    "a compiler for less": (evidence(((MAIN, BUILD, COLLECT), 4, RUNS), work(6)), MIXED, "100 % of its time at main (quantize.py:12), in collect"),
    "torch.compile": (evidence(((MAIN, RUN_COMPILED, COMPILE), 6, RUNS), work(4)), "compiling", "60 % of its time, most at main (quantize.py:12), in _compile"),
    "a compiled model that runs": (evidence(((MAIN, RUN_COMPILED, COLLECT), 10, RUNS)), MIXED, AT_COLLECT),
    "imports": (evidence(((MAIN, IMPORT, BUILD), 6, RUNS), work(4)), "compiling", "60 % of its time, most at main (quantize.py:12), in load"),
    "an import of a compiler": (under(MAIN, IMPORT, IMPORTED), "importing", "100 % of its time, most at main (quantize.py:12)"),
    "imports of others": (evidence(((MAIN, IMPORT, COLLECT), 6, RUNS), work(4)), "importing", "60 % of its time, most at main (quantize.py:12)"),
    "a start": (replace(evidence(((MAIN, IMPORT, COLLECT), 4, RUNS), ((MAIN, LOAD, COLLECT), 3, RUNS), work(3)), is_start=True), "startup", "40 % importing, 30 % loading a model, most at main (quantize.py:12)"),
    "a model that is loaded": (replace(evidence(((MAIN, LOAD, COLLECT), 6, RUNS), work(4)), is_start=True), "startup", "60 % loading a model, most at main (quantize.py:12)"),
    "a download": (replace(under(MAIN, LOAD, DOWNLOAD), is_start=True), "startup", "100 % downloading, most at main (quantize.py:12)"),
    "a start with more of something else": (replace(evidence(((MAIN, LOAD, COLLECT), 4, RUNS), work(6)), is_start=True), MIXED, "100 % of its time at main (quantize.py:12), in collect"),
    "a model that is loaded in a step": (evidence(((MAIN, LOAD, COLLECT), 6, RUNS), work(4)), MIXED, "100 % of its time at main (quantize.py:12), in collect"),
    "imports for less": (evidence(((MAIN, IMPORT, COLLECT), 4, RUNS), work(6)), MIXED, "100 % of its time at main (quantize.py:12), in collect"),
    "the loader": (evidence(load(6), work(4), CALIBRATION_SAMPLE_COUNT=9), "calibration_data", "60 % of its time, most at Reader.get_next (quantize.py:30), in Queue.get"),
    "the loader for less": (evidence(load(4), work(6), CALIBRATION_SAMPLE_COUNT=9), MIXED, "60 % of its time at main (quantize.py:12), in collect"),
    "a loader that waits in C code": (evidence(((MAIN, COLLECT, LOADER), 8, BLOCKED), work(2), waits={FUTEX: 0.7}), "calibration_data", "80 % of its time, most at Reader.get_next (quantize.py:30); it waits for another thread"),
    "a loader beside what waits in C code": (evidence(((MAIN, COLLECT, LOADER), 6, RUNS), work(4, BLOCKED), waits={FUTEX: 0.5}), "calibration_data", "60 % of its time, most at Reader.get_next (quantize.py:30)"),
    "all samples taken in a step before": (evidence(((MAIN, QUARK, LOADER, QUEUE), 6, RUNS), work(4)), "calibration_data", "60 % of its time, most at Reader.get_next (quantize.py:30), in Queue.get"),
    "a function of the program without samples": (evidence(((MAIN, QUARK, FORWARD), 6, RUNS), work(4)), MIXED, "60 % of its time at Model.forward (quantize.py:44)"),
    "a session that the program has wrapped": (under(MAIN, COLLECT, TIMED, SESSION), MIXED, "100 % of its time at timed (quantize.py:40), in Session.run"),
    "what it does itself beside that session": (under(MAIN, COLLECT, TIMED), MIXED, "100 % of its time at timed (quantize.py:40)"),
    "a reader that the program has wrapped": (under(MAIN, COLLECT, TIMED, LOADER), "calibration_data", "100 % of its time, most at Reader.get_next (quantize.py:30)"),
    "a generator of samples": (under(MAIN, QUARK, TIMED), "calibration_data", "100 % of its time, most at timed (quantize.py:40)"),
    "a loader that runs a model of its own": (under(MAIN, COLLECT, LOADER, SESSION), "calibration_data", "100 % of its time, most at Reader.get_next (quantize.py:30), in Session.run"),
    "a loader in PyTorch": (under(MAIN, QUARK, FETCH, LOADER, QUEUE), "calibration_data", "100 % of its time, most at Reader.get_next (quantize.py:30), in Queue.get"),
    "a calibration in a notebook": (under(CELL, MAIN, COLLECT), MIXED, AT_COLLECT),
    "the program's model": (under(MAIN, QUARK, MODULE, FORWARD), MIXED, "100 % of its time at Model.forward (quantize.py:44)"),
    "generated code": (under(MAIN, COLLECT, GENERATED, COLLECT), MIXED, AT_COLLECT),
    "lines that were folded": (under(MAIN, COLLECT, OTHER), MIXED, "100 % of its time at main (quantize.py:12), in other lines"),
    "other programs": (evidence(work(10, (0.5, 0.4)), cores=0.5), "other_programs", "its thread waited 40 % of its time for a processor, while the program used 0.5 of 4"),
    "other programs for less": (evidence(work(10, (0.5, 0.2)), cores=0.5), MIXED, AT_COLLECT),
    "threads of its own": (evidence(work(10, (0.5, 0.4)), cores=3.5), "all_processors", f"it used 3.5 of 4 processors; {AT_COLLECT}"),
    "page faults": (evidence(work(10, BLOCKED), MAJOR_FAULTS=3000), "page_faults", f"300 page faults a second read from storage; its thread was blocked 90 % of its time; {BLOCKED_AT}"),
    "fewer page faults": (evidence(work(10, BLOCKED), MAJOR_FAULTS=1000), MIXED, BLOCKED_AT),
    "workers that write while they use all processors": (evidence(work(10, BLOCKED), cores=3.5, DISK_WRITE=4e8, MAJOR_FAULTS=3000), "all_processors", f"it used 3.5 of 4 processors; {BLOCKED_AT}"),
    "the disk": (evidence(work(10, BLOCKED), DISK_READ=3e8, DISK_WRITE=1e8), "disk", f"40 MB a second read and written; its thread was blocked 90 % of its time; {BLOCKED_AT}"),
    "less of the disk": (evidence(work(10, BLOCKED), DISK_READ=1e8), MIXED, BLOCKED_AT),
    "the disk, by a cache": (evidence(work(10, BLOCKED), DISK_WRITE=4e8, CACHE_GROWTH=3e8), "disk", f"40 MB a second read and written; its thread was blocked 90 % of its time; its cache directory grew by 300 MB; {BLOCKED_AT}"),
    "memory by sample": (evidence(work(6), ((MAIN,), 4, RUNS), per_sample=20e6, CALIBRATION_SAMPLE_COUNT=100), "memory_growth", "20.0 MB with each of 100 samples, 25 % of the limit of 8.00 GB; 100 % of the growth at main (quantize.py:12), most in collect"),
    "less memory by sample": (evidence(work(10), per_sample=10e6, CALIBRATION_SAMPLE_COUNT=100), MIXED, AT_COLLECT),
    "memory that does not grow with samples": (evidence(work(10), CALIBRATION_SAMPLE_COUNT=100), MIXED, AT_COLLECT),
    # Figures of an H200: programs of which it is known what bounds them
    "queued products, then synchronize": (evidence(work(10), gpu=gpu(0.90, 0.84, 0.15, 12e6, waits=0.96)), "gpu", f"the GPU computed 90 % of the time (its multiprocessors 84 %, its memory 15 %); {AT_COLLECT}"),
    "bandwidth of the memory": (evidence(work(10, BLOCKED), gpu=gpu(0.92, 0.3, 0.80, waits=0.9), cores=0.1), "gpu", f"the GPU computed 92 % of the time (its multiprocessors 30 %, its memory 80 %); {BLOCKED_AT}"),
    "an older GPU at its power": (evidence(work(10), gpu=gpu(0.97, power=0.9, waits=0.9), cores=1.0), "gpu", f"the GPU computed 97 % of the time (at 90 % of its power); {AT_COLLECT}"),
    "an older GPU far from its power": (evidence(work(10), gpu=gpu(0.97, power=0.3, waits=0.9), cores=1.0), MIXED, AT_COLLECT),
    "convolutions that nothing waits for": (evidence(work(10), gpu=gpu(0.97, 0.9)), "gpu", f"the GPU computed 97 % of the time (its multiprocessors 90 %, its memory 0 %); {AT_COLLECT}"),
    "Python beside another program's": (evidence(work(10), gpu=gpu(0.97, 0.9, is_alone=False), cores=1.0), "one_processor", f"it used 1.0 of 4 processors, and its thread ran 100 % of its time; {AT_COLLECT}"),
    "half Python, half products": (evidence(work(10), gpu=gpu(0.46, 0.41, 0.09, 7e6, waits=0.5), cores=1.0), MIXED, AT_COLLECT),
    "half Python, half products, seen more often in the wait": (evidence(work(10), gpu=gpu(0.48, 0.43, 0.09, 7e6, waits=0.72), cores=1.0), MIXED, AT_COLLECT),
    "half copies, half products": (evidence(work(10), gpu=gpu(0.37, 0.35, 0.0, 0.6e9, waits=0.56, copies=0.44), cores=1.0), MIXED, AT_COLLECT),
    "half small layers, half products": (evidence(work(10), gpu=gpu(0.74, 0.50, waits=0.64), cores=1.0), MIXED, AT_COLLECT),
    "kernels of half its size, one after the other": (evidence(work(10), gpu=gpu(0.97, 0.55, waits=0.9), cores=1.0), "gpu", f"the GPU computed 97 % of the time (its multiprocessors 55 %, its memory 0 %); {AT_COLLECT}"),
    "numbers one at a time, beside a few copies": (evidence(work(10), gpu=gpu(0.1, 0.01, waits=0.7, copies=0.2), cores=1.0), "gpu_waits", f"the GPU computed 10 % of the time (its multiprocessors 1 %, its memory 0 %), and the thread waited for it 70 % of its time; {AT_COLLECT}"),
    "half numbers one at a time, half products": (evidence(work(10), gpu=gpu(0.41, 0.39, waits=1.0), cores=1.0), "gpu_waits", f"the GPU computed 41 % of the time (its multiprocessors 39 %, its memory 0 %), and the thread waited for it 100 % of its time; {AT_COLLECT}"),
    "one GPU of four": (evidence(work(10), gpu=gpu(0.9, 0.8, waits=0.9, idle=3)), "gpu", f"the GPU computed 90 % of the time (its multiprocessors 80 %, its memory 0 %), 3 other GPUs were idle; {AT_COLLECT}"),
    "pageable memory": (evidence(work(10), gpu=gpu(0.0, 0.0, 0.004, 19e9, copies=1.0), cores=1.0), "gpu_copies", f"19.0 GB a second to the GPU or from it, less than half of what its link takes, and the thread waited for copies 100 % of its time; {AT_COLLECT}"),
    "pinned memory, then synchronize": (evidence(work(10), gpu=gpu(0.0, 0.0, 0.01, 56e9, waits=1.0), cores=1.0), "gpu_copies", f"56.0 GB a second to the GPU or from it, and the thread waited for copies 100 % of its time; {AT_COLLECT}"),
    "pageable memory, and some products": (evidence(work(10), gpu=gpu(0.2, 0.2, 0.004, 9e9, copies=0.7, waits=0.3), cores=1.0), "gpu_copies", f"9.0 GB a second to the GPU or from it, less than half of what its link takes, and the thread waited for copies 70 % of its time; {AT_COLLECT}"),
    "large results": (evidence(work(10), gpu=gpu(0.0, 0.0, 0.0, 1.2e9, either=1.0), cores=1.0), "gpu_copies", f"1.2 GB a second to the GPU or from it, less than half of what its link takes, and the thread waited for copies 100 % of its time; {AT_COLLECT}"),
    "another type on the host": (evidence(work(10), gpu=gpu(0.0, 0.0, 0.0, 0.1e6, copies=1.0), cores=1.0), "gpu_idle", f"the GPU computed 0 % of its time, and its thread was blocked 0 %; {AT_COLLECT}"),
    "copies where nothing tells of the link": (evidence(work(10), gpu=gpu(0.4, copies=1.0), cores=1.0), MIXED, AT_COLLECT),
    "small kernels": (evidence(work(10), gpu=gpu(0.22, 0.0003, 0.0, 180e6), cores=1.0), "gpu_launches", f"the GPU computed 22 % of the time (its multiprocessors 0 %, its memory 0 %), and its thread ran 100 % of its time; {AT_COLLECT}"),
    "small layers": (evidence(work(10), gpu=gpu(0.42, 0.10, 0.0, 148e6, waits=0.1), cores=1.0), "gpu_launches", f"the GPU computed 42 % of the time (its multiprocessors 10 %, its memory 0 %), and its thread ran 100 % of its time; {AT_COLLECT}"),
    "kernels that fill it": (evidence(work(10), gpu=gpu(0.45, 0.41), cores=1.0), "one_processor", f"it used 1.0 of 4 processors, and its thread ran 100 % of its time; {AT_COLLECT}"),
    "small kernels of another program": (evidence(work(10), gpu=gpu(0.3, 0.1, is_alone=False), cores=1.0), "one_processor", f"it used 1.0 of 4 processors, and its thread ran 100 % of its time; {AT_COLLECT}"),
    "small kernels on a busy machine": (evidence(work(10, (0.65, 0.25)), gpu=gpu(0.22, 0.01), cores=0.65), "gpu_launches", f"the GPU computed 22 % of the time (its multiprocessors 1 %, its memory 0 %), and its thread ran 65 % of its time; {AT_COLLECT}"),
    "small kernels, asleep in between": (evidence(work(10, BLOCKED), gpu=gpu(0.22, 0.01), cores=0.5), MIXED, BLOCKED_AT),
    "one number at a time": (evidence(work(10), gpu=gpu(0.13, 0.0004, 0.0, 134e6, waits=0.6), cores=1.0), "gpu_waits", f"the GPU computed 13 % of the time (its multiprocessors 0 %, its memory 0 %), and the thread waited for it 60 % of its time; {AT_COLLECT}"),
    "small results to the host": (evidence(work(10), gpu=gpu(0.0, 0.0, 0.0, 90e6, either=0.9), cores=1.0), "gpu_waits", f"the GPU computed 0 % of the time (its multiprocessors 0 %, its memory 0 %), and the thread waited for it 90 % of its time; {AT_COLLECT}"),
    "an older GPU, one number at a time": (evidence(work(10), gpu=gpu(0.2, power=0.2, waits=0.9), cores=1.0), "gpu_waits", f"the GPU computed 20 % of the time (at 20 % of its power), and the thread waited for it 90 % of its time; {AT_COLLECT}"),
    "numbers that take long to compute": (evidence(work(10), gpu=gpu(0.71, 0.59, 0.21, 60e6, waits=1.0), cores=1.0), "gpu", f"the GPU computed 71 % of the time (its multiprocessors 59 %, its memory 21 %); {AT_COLLECT}"),
    "numbers that take less long": (evidence(work(10), gpu=gpu(0.6, 0.55, 0.2, 60e6, waits=0.7), cores=1.0), MIXED, AT_COLLECT),
    "histograms, which wait unseen": (evidence(work(10), gpu=gpu(0.78, 0.7, waits=0.1), cores=1.0), MIXED, AT_COLLECT),
    "numbers of the host": (evidence(work(10), gpu=gpu(0.0, 0.0, 0.0, 0.3e6, waits=0.9), cores=0.7), "gpu_idle", f"the GPU computed 0 % of its time, and its thread was blocked 0 %; {AT_COLLECT}"),
    "the only processor, waiting for a GPU": (evidence(work(10), gpu=gpu(0.6, 0.59, waits=1.0), cores=1.0, cpus=1), MIXED, AT_COLLECT),
    "a GPU that waits": (evidence(work(10), gpu=gpu(0.05)), "gpu_idle", f"the GPU computed 5 % of its time, and its thread was blocked 0 %; {AT_COLLECT}"),
    "a GPU that computes": (evidence(work(10), gpu=gpu(0.5)), MIXED, AT_COLLECT),
    "a GPU and a thread that both wait": (evidence(work(10, BLOCKED), gpu=gpu(0.05), cores=0.5), MIXED, BLOCKED_AT),
    "waiting": (evidence(work(10, BLOCKED), cores=0.1), "waiting", f"its thread was blocked 90 % of its time, and the program used 0.10 processors; {BLOCKED_AT}"),
    "waiting for threads of its own": (evidence(work(10, BLOCKED), cores=0.9), MIXED, BLOCKED_AT),
    "a compiler in a process of its own": (evidence(((MAIN, POPEN), 10, BLOCKED), cores=0.2, **beside(children_waited=0.6, child="cc1plus")), "child", "100 % of its time it waited for cc1plus, while the program used 0.20 processors; 100 % of its time at main (quantize.py:12), in Popen.wait, where it was blocked"),
    "a child for less": (evidence(((MAIN, POPEN), 4, BLOCKED), work(6, BLOCKED), cores=0.1), "waiting", "its thread was blocked 90 % of its time, and the program used 0.10 processors; 100 % of its time at main (quantize.py:12), most in collect, where it was blocked"),
    "a child for which nobody waits": (evidence(work(10, BLOCKED), cores=0.6, **beside(children_waited=0.0, child="sleep")), MIXED, BLOCKED_AT),
    "a download that is waited for": (evidence(((MAIN, SOCKET), 10, BLOCKED), cores=0.1, **beside(network=5e6)), "network", "100 % of its time it waited for the network, which carried 5.00 MB a second; 100 % of its time at main (quantize.py:12), in SocketIO.readinto, where it was blocked"),
    "a server that does not answer": (evidence(((MAIN, SOCKET), 10, BLOCKED), cores=0.1, **beside(network=10.0)), "waiting", "its thread was blocked 90 % of its time, and the program used 0.10 processors; 100 % of its time at main (quantize.py:12), in SocketIO.readinto, where it was blocked"),
    "a network that nobody waits for": (evidence(work(10, BLOCKED), cores=0.1, **beside(network=5e6)), "waiting", f"its thread was blocked 90 % of its time, and the program used 0.10 processors; {BLOCKED_AT}"),
    "a pool": (evidence(work(10, BLOCKED), cores=1.4, **beside(ran=1.3, waited=0.4, line="heavy (pool.py:6)")), "own_threads", f"its thread was blocked 90 % of its time, while 1.3 others ran, on average, and 0.4 waited for a processor, most at heavy (pool.py:6); {BLOCKED_AT}"),
    "a pool that waits for processors": (evidence(work(10, BLOCKED), cores=0.2, **beside(ran=0.1, waited=2.4)), "own_threads", f"its thread was blocked 90 % of its time, while 0.1 others ran, on average, and 2.4 waited for a processor; {BLOCKED_AT}"),
    "a pool that waits too": (evidence(work(10, BLOCKED), cores=0.1, **beside(ran=0.1, waited=0.0)), "waiting", f"its thread was blocked 90 % of its time, and the program used 0.10 processors; {BLOCKED_AT}"),
    "children that wait for processors": (evidence(work(10, BLOCKED), cores=0.1, **beside(children_waited=0.5)), MIXED, BLOCKED_AT),
    "a shell": (evidence(work(10, BLOCKED), cores=0.1, waits={CHILD: 0.9}), "child", f"90 % of its time it waited for another process, while the program used 0.10 processors; {BLOCKED_AT}"),
    "the output of a command": (evidence(work(10, BLOCKED), cores=0.1, waits={PIPE: 0.9}, **beside(child="sh")), "child", f"90 % of its time it waited for sh, while the program used 0.10 processors; {BLOCKED_AT}"),
    "a pipe of its own": (evidence(work(10, BLOCKED), cores=0.1, waits={PIPE: 0.9}), "waiting", f"its thread was blocked 90 % of its time, and the program used 0.10 processors; {BLOCKED_AT}"),
    "workers that alone run": (evidence(work(10, BLOCKED), cores=1.0, **beside(ran=0.0, waited=0.0, child="python")), "child", f"90 % of its time it waited for python, while the program used 1.00 processors; {BLOCKED_AT}"),
    "a loop and its connections": (evidence(work(10, BLOCKED), cores=0.1, waits={EVENTS: 0.9}, **beside(network=5e6, connections=4e6, ran=0.0, waited=0.0)), "network", f"90 % of its time it waited for the network, which carried 5.00 MB a second; {BLOCKED_AT}"),
    "a loop whose connections are idle": (evidence(work(10, BLOCKED), cores=0.1, waits={EVENTS: 0.9}, **beside(network=5e6, connections=10.0, ran=0.0, waited=0.0)), "waiting", f"its thread was blocked 90 % of its time, and the program used 0.10 processors; {BLOCKED_AT}"),
    "a socket in C code": (evidence(work(10, BLOCKED), cores=0.1, waits={NETWORK: 0.9}, **beside(network=5e6)), "network", f"90 % of its time it waited for the network, which carried 5.00 MB a second; {BLOCKED_AT}"),
    "a database that commits": (evidence(work(10, BLOCKED), cores=0.1, waits={DISK: 0.8}, DISK_WRITE=1e7), "disk", f"1 MB a second read and written; its thread was blocked 90 % of its time; {BLOCKED_AT}"),
    "asleep beside a thread that works": (evidence(work(10, BLOCKED), cores=1.0, waits={SLEEP: 0.9}, **beside(ran=0.9, waited=0.0, line="convert (x.py:9)")), "nothing_stands_out", BLOCKED_AT),
    "a pool that uses all processors": (evidence(work(10, BLOCKED), cores=3.5, **beside(ran=3.3, waited=0.0, line="heavy (pool.py:6)")), "all_processors", f"it used 3.5 of 4 processors, its other threads most at heavy (pool.py:6); {BLOCKED_AT}"),
    "asleep while others write": (evidence(work(10, BLOCKED), cores=0.1, waits={SLEEP: 0.9}, DISK_WRITE=4e9), "waiting", f"its thread was blocked 90 % of its time, and the program used 0.10 processors; {BLOCKED_AT}"),
    "a lock": (evidence(work(10, BLOCKED), cores=0.1, waits={LOCK: 0.9}, **beside(holder="refresh (x.py:7)")), "lock", f"its thread waited 90 % of its time for a lock, one of whose name a thread has at refresh (x.py:7); {BLOCKED_AT}"),
    "a lock of nobody": (evidence(work(10, BLOCKED), cores=0.1, waits={LOCK: 0.9}), "lock", f"its thread waited 90 % of its time for a lock; {BLOCKED_AT}"),
    "a lock for less": (evidence(work(10, BLOCKED), cores=0.1, waits={LOCK: 0.4}), "waiting", f"its thread was blocked 90 % of its time, and the program used 0.10 processors; {BLOCKED_AT}"),
    "threads of Python": (evidence(work(10, (0.3, 0.0)), cores=0.9, **beside(gil=0.6, ran=0.6, waited=0.0)), "gil", f"its thread waited for it 60 % of its time, while the program used 0.9 of 4 processors; {AT_COLLECT}"),
    "threads of Python for less": (evidence(work(10, (0.5, 0.0)), cores=1.0, **beside(gil=0.2, ran=0.5, waited=0.0)), MIXED, AT_COLLECT),
    "a pool for Python": (evidence(((MAIN, ACQUIRED), 10, BLOCKED), cores=1.0, **beside(gil=0.6, ran=0.9, waited=0.0)), "gil", "threads that it waits for waited for it 60 % of its time, while the program used 1.0 of 4 processors; 100 % of its time at main (quantize.py:12), in Condition.wait, where it was blocked"),
    "garbage": (evidence(work(10), garbage=Garbage(0.5, 20, 0.2, 0.15, "main (quantize.py:12)")), "garbage_collector", "it ran for 50 % of the time, 20 full collections of 200 ms on average of objects that were there before; the last at main (quantize.py:12)"),
    "garbage of its own": (evidence(work(10), garbage=Garbage(0.5, 1, 0.2, 0.05, "main (quantize.py:12)")), "garbage_collector", "it ran for 50 % of the time, 1 full collection of 200 ms on average; the last at main (quantize.py:12)"),
    "young garbage": (evidence(work(10), garbage=Garbage(0.2)), "garbage_collector", f"it ran for 20 % of the time; {AT_COLLECT}"),
    "little garbage": (evidence(work(10), garbage=Garbage(0.1, 20, 0.01)), MIXED, AT_COLLECT),
    "pinned to one": (evidence(work(10, (0.3, 0.7)), cores=1.0, **beside(pinned=1)), "pinned", f"its thread waited 70 % of its time for a processor, of which it may use 1 of 4; {AT_COLLECT}"),
    "pinned to one that others use": (evidence(work(10, (0.3, 0.7)), cores=0.3, **beside(pinned=1)), "other_programs", "its thread waited 70 % of its time for a processor, while the program used 0.3 of 4"),
    "pinned to all": (evidence(work(10, (0.3, 0.7)), cores=1.0, **beside(pinned=4)), "other_programs", "its thread waited 70 % of its time for a processor, while the program used 1.0 of 4"),
    "a throttled group": (evidence(work(10, (0.5, 0.4)), cores=0.5, **beside(throttled=0.45)), "throttled", f"its control group was kept from processors for 45 % of the time, while the program used 0.5; {AT_COLLECT}"),
    "a group that is hardly throttled": (evidence(work(10, (0.5, 0.4)), cores=0.5, **beside(throttled=0.1)), "other_programs", "its thread waited 40 % of its time for a processor, while the program used 0.5 of 4"),
    "a throttled group, asleep": (evidence(work(10, BLOCKED), cores=0.1, **beside(throttled=0.45, waited=0.0)), "waiting", f"its thread was blocked 90 % of its time, and the program used 0.10 processors; {BLOCKED_AT}"),
    "too many threads": (evidence(work(10, (0.3, 0.6)), cores=3.8, **beside(ran=3.5, waited=8.6)), "oversubscribed", f"13.0 threads of the program were ready to run, on average, and it may use 4 processors; {AT_COLLECT}"),
    "twice as many threads": (evidence(work(10, (0.5, 0.5)), cores=3.8, **beside(ran=3.5, waited=3.5)), "all_processors", f"it used 3.8 of 4 processors; {AT_COLLECT}"),
    "one processor": (evidence(work(10, (0.9, 0.0)), cores=1.0), "one_processor", f"it used 1.0 of 4 processors, and its thread ran 90 % of its time; {AT_COLLECT}"),
    "two processors": (evidence(work(10, (0.9, 0.0)), cores=1.5), MIXED, AT_COLLECT),
    "the only processor": (evidence(work(10), cores=1.0, cpus=1), "all_processors", f"it used 1.0 of 1 processors; {AT_COLLECT}"),
    "processors that are not known": (evidence(work(10), cores=1.0, cpus=math.nan), MIXED, AT_COLLECT),
}  # fmt: skip


@pytest.mark.parametrize("case", CASES)
def test_a_bound_is_found_with_its_evidence(case: str) -> None:
    found, name, text = CASES[case]
    assert bound_of(found) == Bound(name, text)


def test_every_bound_has_a_test_case_and_a_text() -> None:
    names = [verdict.name for verdict in VERDICTS]
    assert {name for _, name, _ in CASES.values()} == {*names, MIXED}
    (brief,) = (each.brief for each in semconv.ATTRIBUTES if each.name == semconv.STEP_BOUND_BY)
    page = (Path(__file__).parents[3] / "docs" / "stacks.md").read_text()
    for verdict in VERDICTS:
        (row,) = re.findall(
            rf"^\| `{verdict.name}` \| .* \| (known|probable) \|$", page, re.MULTILINE
        )
        assert row == verdict.certainty
        assert not verdict.remedy or verdict.remedy in page
        assert f"`{verdict.name}`" in brief
    assert words_of("waiting") == "bound by waiting"
    assert words_of("disk") == "probably bound by the disk"
    assert words_of(MIXED) == "no known cause"
    assert words_of("of a later version") == "bound by of a later version"


LIBRARY = "onnxruntime.quantization.calibrate.collect"
READS = Place("/a/quantize.py", "Reader.read", 41, "")


def seen_at(lines: tuple[Place, ...], seconds: float, grown: int = 0) -> tuple[Any, Amounts]:
    return lines, Amounts(round(seconds * 1e9), grown=grown)


def test_another_method_is_advised_only_if_the_current_one_keeps_activations_and_its_code_grew() -> (
    None
):
    collector, reader = (MAIN, COLLECT, FETCH), (MAIN, COLLECT, LOADER, QUEUE)

    def remedy(method: str, below_collector: int, in_reader: int, **grew: float) -> str:
        stacks = [seen_at(collector, 5, below_collector), seen_at(reader, 5, in_reader)]
        return remedy_of("memory_growth", stacks, LIBRARY, method, **grew)

    assert remedy("CalibrationMethod.Entropy", 3 * 10**9, 10**9) == (
        "calibrate with MinMax instead of CalibrationMethod.Entropy, which keeps every activation: 3.00 GB at most"
    )
    # Lines have what was given back and taken again, too.
    assert remedy("Entropy", 3 * 10**9, 10**9, grew=2 * 10**9).endswith(": 1.50 GB at most")
    assert remedy("Entropy", 10**9, 3 * 10**9) == remedy("MinMax", 3 * 10**9, 0) == ""
    assert remedy("Entropy", 0, 0) == remedy_of("memory_growth", [], LIBRARY, "Entropy") == ""
    loading = (MAIN, COLLECT, IMPORT), 5.0, 10**9
    assert remedy_of("memory_growth", [seen_at(*loading)], LIBRARY, "Entropy") == ""
    assert remedy_of("waiting", []) == remedy_of("new", []) == ""


def test_pinned_memory_is_advised_only_where_less_is_copied_than_the_link_takes() -> None:
    copies = {name: case for name, case in CASES.items() if case[1] == "gpu_copies"}
    found = {name for name, case in copies.items() if remedy_of("gpu_copies", [], evidence=case[2])}
    assert found == {"pageable memory", "pageable memory, and some products", "large results"}
    assert copies.keys() - found == {"pinned memory, then synchronize"}


def test_to_freeze_objects_is_advised_only_where_they_were_there_before() -> None:
    found = {name: remedy_of("garbage_collector", [], evidence=CASES[name][2]) for name in CASES}
    assert [name for name, remedy in found.items() if remedy] == ["garbage"]
    assert found["garbage"].startswith("call gc.freeze() before it")


@pytest.mark.parametrize(
    ("stack", "share", "expected"),
    [
        ((LOADER, READS), 0.5, "load the next samples in another thread while one is calibrated, which can save 5.00 s of 10.0 s at most"),
        ((LOADER, READS), 0.65, "load the next samples in another thread while one is calibrated, which can save 3.50 s of 10.0 s at most"),
        ((LOADER, READS), 0.99, "load samples in several processes, or keep them on disk as they are used, which can save 9.90 s of 10.0 s at most"),
        ((LOADER, QUEUE), 0.99, ""),  # it waits for a thread that loads already
        ((LOADER, Place("concurrent/futures/_base.py", "Future.result", 7, "python")), 0.99, ""),
        ((LOADER, Place("multiprocessing/pool.py", "IMapIterator.next", 7, "python"), Place("threading.py", "Condition.wait", 3, "python")), 0.99, ""),
        ((LOADER, Place("multiprocessing/queues.py", "Queue.get", 7, "python")), 0.99, ""),
        ((MODULE,), 0.99, ""),
    ],
)  # fmt: skip
def test_a_remedy_for_a_loader_has_what_it_can_win(
    stack: tuple[Place, ...], share: float, expected: str
) -> None:
    stacks = [
        seen_at((MAIN, COLLECT, *stack), 10 * share),
        seen_at((MAIN, COLLECT), 10 * (1 - share)),
    ]
    assert remedy_of("calibration_data", stacks, LIBRARY) == expected
    for more in (
        "computes 10 ms longer for each sample than for the one before",
        "waits for another thread",
    ):
        assert remedy_of("calibration_data", stacks, LIBRARY, evidence=f"it {more}") == ""


def test_in_a_librarys_step_what_called_it_says_nothing_and_its_own_lines_are_told_apart() -> None:
    found = evidence(((MAIN, COLLECT, FETCH), 6, RUNS), ((MAIN, COLLECT, LOADER, READS), 4, RUNS))
    assert found.line == "60 % of its time at main (quantize.py:12), in fetch"
    found.function = LIBRARY
    assert found.line == "60 % of its time at main (quantize.py:12), in fetch"


@pytest.mark.parametrize(("seconds", "duration"), [(0.9, 1.0), (4.0, 10.0)], ids=["short", "part"])
def test_a_step_with_little_evidence_has_no_bound(seconds: float, duration: float) -> None:
    assert bound_of(evidence(work(seconds), duration=duration)) is None
