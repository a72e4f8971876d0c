"""The process of an ONNX model: its sessions, what they are fed, and what they answer."""

from __future__ import annotations

import ctypes
import json
import os
import re
import time
import zlib
from collections.abc import Mapping, Sequence
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Final

from otel_quant.base.fault_boundary import LastResort
from otel_quant.inference.arrays import save_arrays
from otel_quant.inference.child import MemoryMark, growth, status, timed, timed_round

_TYPES: Final = {
    "tensor(float)": "float32", "tensor(double)": "float64",
    **{f"tensor({name})": name for name in (
        "float16", "bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64",
    )},
}  # fmt: skip
"""Types as onnxruntime and as numpy name them."""


class SessionRequestError(Exception):
    """What the user asked for does not fit the model or this onnxruntime."""


def feeds(inputs: Sequence[Any], feed: Mapping[str, Any]) -> dict[str, Any]:
    """Returns an array for each input: of a file, or else as values, indices and types have it."""
    import numpy as np

    path = feed["data"]
    if path is None:
        return {each.name: _made(each.name, _type_of(each), feed) for each in inputs}
    with np.load(path, allow_pickle=False) as file:
        arrays = dict(file)
    names = [each.name for each in inputs]
    for name in arrays:
        if name not in names:
            why = f"which is no input; expected {', '.join(names)}"
            raise SessionRequestError(f"{path} has {name!r}, {why}")
    return {each.name: _fitting(each, arrays, path) for each in inputs}


def _type_of(wanted: Any) -> str:
    """Returns the type of an input as numpy names it."""
    if wanted.type not in _TYPES:
        why = f"is {wanted.type}; expected tensors of numbers"
        raise SessionRequestError(f"input {wanted.name!r} {why}")
    return _TYPES[wanted.type]


def _fitting(wanted: Any, arrays: Mapping[str, Any], path: str) -> Any:
    """Returns the array of a file that an input takes."""
    name, dtype = wanted.name, _type_of(wanted)
    if name not in arrays:
        raise SessionRequestError(f"{path} has no {name!r}, which the model takes")
    found = arrays[name]
    fits = len(wanted.shape) == found.ndim and all(
        length == own or not isinstance(length, int)
        for length, own in zip(wanted.shape, found.shape, strict=True)
    )
    if str(found.dtype) != dtype or not fits:
        why = f"is {found.dtype} {list(found.shape)}; expected {dtype} {wanted.shape}"
        raise SessionRequestError(f"{path}: {name!r} {why}")
    return found


def _made(name: str, dtype: str, feed: Mapping[str, Any]) -> Any:
    """Returns numbers for an input: those of the user, or random ones, others for each ``sample`` of the feed."""
    import numpy as np

    shape = tuple(feed["shapes"][name])
    if name in feed["values"]:
        return np.asarray(feed["values"][name], dtype).reshape(shape)
    # Of the name, so that an input of several models is the same in each of them.
    random = np.random.default_rng(zlib.crc32(name.encode()) + feed.get("sample", 0))
    if name in feed["ranges"]:
        low, high = feed["ranges"][name]
        return random.uniform(low, high, shape).astype(dtype)
    if dtype.startswith("float"):
        return random.standard_normal(shape, np.float32).astype(dtype)
    low, high = _RANGES.get(dtype, (0, 2))  # 0 and 1 are indices of any table
    return random.integers(low, high, shape).astype(dtype)


_RANGES: Final = {"int8": (-128, 128), "uint8": (0, 256)}

_QUIET, _SILENT = 3, 4
"""Only errors are logged, or only what ends the process."""

REFUSALS: Final = {
    r"com\.amd\.quark:": "it has operators of AMD Quark; expected --custom-ops quark",
    r"(\S+):(\w+)\(-?\d+\) is not a registered function/op": r"this onnxruntime has no \2 of \1; expected --custom-ops with the library that has it",
    r"Unsupported model IR version: \d+, max supported IR version: (\d+)": r"it is newer than this onnxruntime; expected a newer one, or model.ir_version = \1 in onnx",
    r"Opset \d+ is under development.*till opset (\d+)": r"it is newer than this onnxruntime; expected a newer one, or the model exported with opset \1",
    r"Type 'tensor\((u?int(?:4|16))\)' of input parameter .*of operator \((?:Q|Deq)uantizeLinear\)": r"\1 is of opset 21; expected onnx.version_converter.convert_version(model, 21)",
    r"Could not find an implementation for ConvInteger\(": "this onnxruntime has no ConvInteger of int8 weights; expected quantize_dynamic with weight_type=QuantType.QUInt8, or a newer one",
    r"Could not find an implementation for (\w+)\(": r"there is no kernel of \1 for its types; expected float32, or another provider",
    r"External data path does not exist": "a file with its weights is missing; expected it where it was beside the model",
    r"two nodes with same node name \((.*)\)": r"two nodes have one name; expected another name for one of \1",
    r"bound to different types \(tensor\((\w+)\) and tensor\((\w+)\)": r"a node has operands of \1 and \2; expected a Cast before one of them",
    r"must be topologically sorted": "expected its nodes in order, as onnxruntime.quantization.quant_pre_process or otel-quant fix writes them",
    r"in initializer but not in graph input": "expected model.ir_version = 4 or more in onnx",
}
"""What onnxruntime and onnx.checker refuse, and what mends it: each was tried."""


def with_remedy(error: str) -> str:
    """Returns an error behind what mends it, where that is known: errors may be long, and are cut."""
    found = ((re.search(pattern, error, re.DOTALL), remedy) for pattern, remedy in REFUSALS.items())
    return next((f"{match.expand(remedy)}: {error}" for match, remedy in found if match), error)


_LARGE: Final = 1024
"""Bytes from which a weight goes into a file beside the saved graph."""

_LEVELS: Final = {
    "disable": "ORT_DISABLE_ALL", "basic": "ORT_ENABLE_BASIC",
    "extended": "ORT_ENABLE_EXTENDED", "all": "ORT_ENABLE_ALL",
}  # fmt: skip
"""Levels of graph optimization as onnxruntime names them."""


EXACT_SUMS: Final = {"session.x64quantprecision": "1"}
"""Entry of a session that has products of uint8 by int8 added in 32 bits, where x86 without VNNI adds two in 16, which saturate."""


class OnnxSession:
    """The sessions of one model; its methods are what a parent may ask."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._options: Mapping[str, Any] = {}
        self._path = ""
        self._libraries: list[str] = []
        self._session: Any = None
        self._feed: Mapping[str, Any] = {}
        self._feeds: dict[str, Any] = {}
        self._mark = MemoryMark()

    def load(self, path: str, options: Mapping[str, Any], feed: Mapping[str, Any]) -> Any:
        """Makes the session and its inputs, and runs it for the first times."""
        import onnxruntime

        self._path, self._options, self._feed = path, options, feed
        known = onnxruntime.get_available_providers()
        for name, _ in options["providers"]:
            if name not in known:
                why = f"is not in this onnxruntime; expected one of {', '.join(known)}"
                raise SessionRequestError(f"provider {name!r} {why}")
        names = options["custom_ops"]
        self._libraries = [_of_quark() if name == "quark" else name for name in names]
        before = status("VmRSS")
        began = time.perf_counter()
        self._session = self._new_session()
        made = time.perf_counter() - began
        grown = growth(before, status("VmRSS"))
        self._feeds = feeds(self._session.get_inputs(), feed)
        [first] = self._times(1)
        warm = sorted(self._times(max(1, options["warmup"])))
        told = {"version": onnxruntime.__version__, "providers": self._session.get_providers()}
        seconds = {"made": made, "first": first, "warm": warm[len(warm) // 2]}
        inputs = {name: [str(each.dtype), *each.shape] for name, each in self._feeds.items()}
        return {**told, **seconds, "inputs": inputs, "grown": grown}

    def run(self, times: int) -> dict[str, list[float]]:
        """Runs the session; returns the seconds of each run but one before them, and those of CPU time."""
        self._times(1)
        return timed_round(partial(self._session.run, None, self._feeds), times)

    def _times(self, count: int) -> list[float]:
        return timed(partial(self._session.run, None, self._feeds), count)

    def marks(self, resets: bool) -> Any:
        """Returns the kernel's mark of the highest memory in bytes, and sets it back."""
        return {"process": self._mark.take(resets)}

    def outputs(self, path: str, samples: int) -> list[str]:
        """Writes the outputs of a run, ``a0``, ``a1`` and so on, or those of runs of several samples; returns their names."""
        import numpy as np

        found = [self._session.run(None, self._feeds)]
        for number in range(1, 1 if self._feed["data"] else samples):
            fed = feeds(self._session.get_inputs(), {**self._feed, "sample": number})
            found.append(self._session.run(None, fed))
        shapes = [{np.shape(each) for each in alike} for alike in zip(*found, strict=True)]
        if samples > 1 and all(len(each) == 1 for each in shapes):
            save_arrays([np.stack(each) for each in zip(*found, strict=True)], path, "fiub")
        else:
            save_arrays(found[0], path, "fiub")
        return [each.name for each in self._session.get_outputs()]

    def profile(self, runs: int, saves_graph: bool, names: bool) -> Any:
        """Runs a second session with its profiler on, with names for nodes without one: a profile has only names."""
        graph = self._folder / "graph.onnx"
        session, began = None, time.perf_counter()
        if saves_graph:
            with LastResort():  # a graph with compiled nodes cannot be written
                named = self._with_names() if names else None
                session = self._new_session(named, is_profiled=True, graph=graph)
        if session is None:
            graph.unlink(missing_ok=True)
            session = self._new_session(is_profiled=True)
        took = time.perf_counter() - began
        for _ in range(1 + runs):  # the first is beside threads of the other session
            session.run(None, self._feeds)
        assigned = getattr(session, "get_provider_graph_assignment_info", list)  # onnxruntime 1.24
        listed = ((part.ep_name, part.get_nodes()) for part in assigned())
        parts = [[name, [[each.name, each.op_type] for each in nodes]] for name, nodes in listed]
        left = str(graph) if graph.exists() else None
        return {"assigned": parts, "file": session.end_profiling(), "graph": left, "made": took}

    def _with_names(self) -> bytes:
        """Returns the model, with names for nodes without one; weights beside the file stay there."""
        import onnx

        from otel_quant.inference.layer_errors import with_names

        model: bytes = with_names(
            onnx.load(self._path, load_external_data=False)
        ).SerializeToString()
        return model

    def printed(self) -> str:
        """Returns what libraries print in another run."""
        flush = ctypes.CDLL(None).fflush
        flush(None)
        before = os.fstat(1).st_size
        self._times(1)
        flush(None)
        return os.pread(1, os.fstat(1).st_size - before, before).decode(errors="replace")

    def layers(self, first: str, floats: list[str]) -> Any:
        """Compares the tensors of a run with another model's, and weights."""
        from otel_quant.inference.layer_errors import layer_errors

        options = self._session_options("disable")
        options.log_severity_level = _SILENT
        return layer_errors((first, self._path), floats, self._feeds, options, self._folder)

    def noise(self, errors: str, floats: str, first: str) -> Any:
        """Returns which part of the outputs' noise comes from where; two of the paths are models made for that."""
        import onnxruntime

        from otel_quant.inference.advise.noise import noise_of_parts

        def session(path: str, level: str) -> Any:
            options, providers = self._session_options(level), ["CPUExecutionProvider"]
            return onnxruntime.InferenceSession(path, options, providers=providers)

        sessions = session(errors, "disable"), session(floats, "all"), session(first, "all")
        return noise_of_parts(*sessions, self._feeds)

    def products(self, kinds: Sequence[Sequence[str]]) -> list[tuple[float, str]]:
        """Returns how many times as long products take here as with uint8 by the faster type of weights, and that.

        Each is known by ConvInteger, or another operator, and the types that it multiplies. 1 where one has no kernel.
        """
        found = []
        for operator, *types in kinds:
            found.append((1.0, ""))
            with LastResort():
                usual = {it: _seconds_of_product(operator, "uint8", it) for it in ("int8", "uint8")}
                best = min(usual, key=usual.__getitem__)
                found[-1] = _seconds_of_product(operator, *types) / usual[best], best
        return found

    def saturates(self) -> bool:
        """Whether sums of products of uint8 by int8 saturate on this processor, by a product of the largest."""
        with LastResort():  # an older onnxruntime may have no such kernel
            [found] = _product("", "uint8", "int8", (255, 127))()
            return bool((found < 256 * 255 * 127).any())
        return False

    def _session_options(self, level: str) -> Any:
        import onnxruntime

        made = onnxruntime.SessionOptions()
        made.log_severity_level = _QUIET
        made.graph_optimization_level = getattr(onnxruntime.GraphOptimizationLevel, _LEVELS[level])
        if self._options["threads"] is not None:
            made.intra_op_num_threads = self._options["threads"]
        for library in self._libraries:
            made.register_custom_ops_library(library)
        return made

    def _new_session(
        self, model: bytes | None = None, *, is_profiled: bool = False, graph: Path | None = None
    ) -> Any:
        """Makes a session, perhaps of a copy of the model; one that is profiled may leave the graph that it runs."""
        import onnxruntime

        made = self._session_options(self._options["level"])
        if is_profiled:
            made.enable_profiling = True
            made.profile_file_prefix = str(self._folder / "profile")
            made.add_session_config_entry("session.record_ep_graph_assignment_info", "1")
        if graph is not None:
            made.optimized_model_filepath = str(graph)
            weights = "session.optimized_model_external_initializers"
            made.add_session_config_entry(f"{weights}_file_name", "graph.weights")
            made.add_session_config_entry(f"{weights}_min_size_in_bytes", str(_LARGE))
        if model is not None:
            entry = "session.model_external_initializers_file_folder_path"
            made.add_session_config_entry(entry, str(Path(self._path).resolve().parent))
        providers: list[Any] = [(name, dict(more)) for name, more in self._options["providers"]]
        beside = self._options["session"]
        told = json.loads(Path(beside).read_text(encoding="utf-8")) if beside else {}
        for key, text in {**told.get("session_config", {}), **self._options["entries"]}.items():
            made.add_session_config_entry(key, text)
        return onnxruntime.InferenceSession(
            model or self._path, made, providers=providers or ["CPUExecutionProvider"],
            disabled_optimizers=[*self._options["disabled"], *told.get("disabled_optimizers", ())],
        )  # fmt: skip


_PRODUCTS: Final = {
    "ConvInteger": ("ConvInteger", "1,64,16,16", "1,64,14,14", (64, 64, 3, 3)),
    "": ("MatMulInteger", "64,256", "64,256", (256, 256)),
}
"""Products that are tried: operator, shapes of operand, result and weights."""


def _seconds_of_product(operator: str, first: str, second: str) -> float:
    """Returns the least CPU time of a product of integers."""
    return min(timed(_product(operator, first, second), 30, time.process_time))


def _product(operator: str, first: str, second: str, values: Sequence[int] = (1, 1)) -> Any:
    """Returns what computes a product of integers, on one thread."""
    import numpy as np
    import onnxruntime
    from onnx import numpy_helper, parser

    name, given, made, shape = _PRODUCTS[operator]
    text = f"({first}[{given}] x) => (int32[{made}] y) {{ y = {name}(x, w) }}"
    model = parser.parse_model(f'<ir_version: 8, opset_import: ["" : 13]> product {text}')
    weights = np.full(shape, values[1], second)
    model.graph.initializer.append(numpy_helper.from_array(weights, "w"))
    options, providers = onnxruntime.SessionOptions(), ["CPUExecutionProvider"]
    options.intra_op_num_threads = 1
    session = onnxruntime.InferenceSession(model.SerializeToString(), options, providers=providers)
    fed = {"x": np.full(tuple(map(int, given.split(","))), values[0], first)}
    return partial(session.run, None, fed)


def _of_quark() -> str:
    """Returns the library of AMD Quark's operators, whose import loads what the library needs."""
    if find_spec("quark") is None:
        raise SessionRequestError("--custom-ops quark: Quark is not installed; expected amd-quark")
    from quark.onnx import get_library_path

    return str(get_library_path())


def text_of(error: Exception) -> str:
    """Returns an error as it is sent to the parent."""
    is_of_user = isinstance(error, SessionRequestError)
    return str(error) if is_of_user else with_remedy(f"{type(error).__name__}: {error}")
