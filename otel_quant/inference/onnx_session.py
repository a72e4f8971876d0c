"""The process of an ONNX model: its sessions, what they are fed, and what they answer."""

from __future__ import annotations

import time
import zlib
from collections import Counter
from collections.abc import Mapping, Sequence
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Final

from otel_quant.base.fault_boundary import LastResort
from otel_quant.inference.child import reset_mark, status, timed

_TYPES: Final = {
    "tensor(float)": "float32",
    "tensor(double)": "float64",
    "tensor(float16)": "float16",
    "tensor(bool)": "bool",
    **{
        f"tensor({sign}int{bits})": f"{sign}int{bits}"
        for sign in ("", "u")
        for bits in (8, 16, 32, 64)
    },
}
"""Types as onnxruntime and as numpy name them."""


class MisfitError(Exception):
    """What the user asked for does not fit the model or this onnxruntime."""


def feeds(inputs: Sequence[Any], feed: Mapping[str, Any], np: Any) -> dict[str, Any]:
    """Returns an array for each input."""
    given = {} if feed["data"] is None else _loaded(feed["data"], np)
    names = [each.name for each in inputs]
    unknown = [name for name in given if name not in names]
    if unknown:
        raise MisfitError(
            f"{feed['data']} has {unknown[0]!r}, which is no input; expected {', '.join(names)}"
        )
    found = {}
    for each in inputs:
        dtype = _TYPES.get(each.type)
        if dtype is None:
            raise MisfitError(f"input {each.name!r} is {each.type}; expected tensors of numbers")
        if each.name in given:
            found[each.name] = _fitting(given[each.name], each, dtype, feed["data"])
        elif given:
            raise MisfitError(f"{feed['data']} has no {each.name!r}, which the model takes")
        else:
            found[each.name] = _made(each.name, dtype, feed, np)
    return found


def _loaded(path: str, np: Any) -> dict[str, Any]:
    try:
        with np.load(path, allow_pickle=False) as file:
            return {name: file[name] for name in file.files}
    except (OSError, ValueError, AttributeError) as error:
        reason = getattr(error, "strerror", None) or "is not a file of numpy.savez"
        raise MisfitError(f"{path}: {reason}") from error


def _fitting(array: Any, wanted: Any, dtype: str, path: str) -> Any:
    lengths = [length if isinstance(length, int) else None for length in wanted.shape]
    fits = len(lengths) == array.ndim and all(
        length is None or length == own for length, own in zip(lengths, array.shape, strict=True)
    )
    if str(array.dtype) != dtype or not fits:
        raise MisfitError(
            f"{path}: {wanted.name!r} is {array.dtype} {list(array.shape)}; expected {dtype} "
            f"{wanted.shape}"
        )
    return array


def _made(name: str, dtype: str, feed: Mapping[str, Any], np: Any) -> Any:
    shape = tuple(feed["shapes"][name])
    if name in feed["values"]:
        return np.asarray(feed["values"][name], dtype).reshape(shape)
    # Of the name, so that an input of several models is the same in each of them.
    random = np.random.default_rng(zlib.crc32(name.encode()))
    if dtype.startswith("float"):
        return random.standard_normal(shape, np.float32).astype(dtype)
    high = feed["limits"].get(name, 256 if dtype.endswith("int8") else 2)
    if dtype == "int8":
        return random.integers(-128, 128, shape).astype(dtype)
    return random.integers(0, 2 if dtype == "bool" else high, shape).astype(dtype)


def _assigned_nodes(session: Any) -> Mapping[str, int] | None:
    """Counts nodes by provider, as they were before fusion; None before onnxruntime 1.24."""
    ask = getattr(session, "get_provider_graph_assignment_info", None)
    if ask is None:
        return None
    return Counter(part.ep_name for part in ask() for _ in part.get_nodes())


def _layer_errors(
    first: str, quantized: str, feeds: Mapping[str, Any], folder: Path
) -> dict[str, dict[str, float]]:
    """Returns SQNR in dB by the name of the tensor: of its own quantization, and of all before it."""
    import numpy as np
    from onnxruntime.quantization import qdq_loss_debug as debug

    made = []
    for i, path in enumerate((first, quantized)):
        with_outputs = folder / f"outputs{i}.onnx"
        debug.modify_model_output_intermediate_tensors(
            path, with_outputs, save_as_external_data=True
        )
        made.append(debug.collect_activations(str(with_outputs), [dict(feeds)]))
    matched = debug.create_activation_matching(made[1], made[0])
    with np.errstate(divide="ignore", invalid="ignore"):
        errors = debug.compute_activation_error(matched)
    return {
        name: {
            "own": float(found["qdq_err"]),
            **({"all": float(found["xmodel_err"])} if "xmodel_err" in found else {}),
        }
        for name, found in errors.items()
    }


_QUIET: Final = 3
"""Only errors are logged."""

_QUARK: Final = "com.amd.quark:"
_WANTED: Final = "it has operators of AMD Quark; expected --custom-ops quark"

_BLOCK: Final = 4
"""Runs of one session in a row, where two take turns."""

_LARGE: Final = 1024
"""Bytes from which a weight goes into a file beside the saved graph."""


class Session:
    """The sessions of one model; its methods are what a parent may ask."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._options: Mapping[str, Any] = {}
        self._path = ""
        self._libraries: list[str] = []
        self._session: Any = None
        self._feeds: dict[str, Any] = {}
        self._has_mark = True

    def load(self, path: str, options: Mapping[str, Any], feed: Mapping[str, Any]) -> Any:
        """Makes the session and its inputs, and runs it for the first times."""
        import numpy as np
        import onnxruntime

        self._path, self._options = path, options
        known = onnxruntime.get_available_providers()
        for name, _ in options["providers"]:
            if name not in known:
                expected = f"expected one of {', '.join(known)}"
                raise MisfitError(f"provider {name!r} is not in this onnxruntime; {expected}")
        names = options["custom_ops"]
        self._libraries = [_of_quark() if name == "quark" else name for name in names]
        before = status("VmRSS")
        began = time.perf_counter()
        self._session = self._new_session(self._plain())
        made = time.perf_counter() - began
        after = status("VmRSS")
        self._feeds = feeds(self._session.get_inputs(), feed, np)
        first = self._times(1)
        warm = self._times(max(1, options["warmup"]))
        return {
            "version": onnxruntime.__version__,
            "providers": self._session.get_providers(),
            "inputs": {name: [str(each.dtype), *each.shape] for name, each in self._feeds.items()},
            "made": made,
            "first": first[0],
            "warm": sorted(warm)[len(warm) // 2],
            "grown": None if after is None or before is None else max(0, after - before),
        }

    def run(self, times: int) -> list[float]:
        """Runs the session; returns the seconds of each run but one before them."""
        self._times(1)
        return self._times(times)

    def _times(self, count: int) -> list[float]:
        return timed(partial(self._session.run, None, self._feeds), count)

    def marks(self, resets: bool) -> Any:
        """Returns the kernel's mark of the highest memory in bytes, and sets it back."""
        found = {"process": status("VmHWM") if self._has_mark else None}
        if resets:
            self._has_mark = reset_mark()
        return found

    def outputs(self, path: str) -> list[str]:
        """Writes the outputs of a run, ``a0``, ``a1`` and so on; returns their names."""
        import numpy as np

        found = self._session.run(None, self._feeds)
        names = [each.name for each in self._session.get_outputs()]
        arrays = [isinstance(each, np.ndarray) and each.dtype.kind in "fiub" for each in found]
        np.savez(path, **{f"a{i}": each for i, each in enumerate(found) if arrays[i]})
        return names

    def profile(self, runs: int, saves_graph: bool) -> Any:
        """Runs a second session with its profiler on, in turn with the first one."""
        graph = self._folder / "graph.onnx"
        session = None
        if saves_graph:
            with LastResort():  # a graph with compiled nodes cannot be written
                session = self._new_session(self._profiled(graph))
        if session is None:
            graph.unlink(missing_ok=True)
            session = self._new_session(self._profiled(None))
        plain: list[float] = []
        profiled: list[float] = []
        session.run(None, self._feeds)
        for _ in range(-(-runs // _BLOCK)):  # the first is beside threads of the other session
            plain += self._times(_BLOCK)[1:]
            profiled += timed(partial(session.run, None, self._feeds), _BLOCK)[1:]
        return {
            "assigned": _assigned_nodes(session),
            "file": session.end_profiling(),
            "graph": str(graph) if graph.exists() else None,
            "plain": plain,
            "profiled": profiled,
        }

    def layers(self, first: str) -> Any:
        """Compares tensors with those of the float model, by onnxruntime's debugger."""
        return _layer_errors(first, self._path, self._feeds, self._folder)

    def _plain(self) -> Any:
        import onnxruntime

        made = onnxruntime.SessionOptions()
        made.log_severity_level = _QUIET
        level = self._options["level"].upper()
        name = "ORT_DISABLE_ALL" if level == "DISABLE" else f"ORT_ENABLE_{level}"
        made.graph_optimization_level = getattr(onnxruntime.GraphOptimizationLevel, name)
        if self._options["threads"] is not None:
            made.intra_op_num_threads = self._options["threads"]
        for library in self._libraries:
            made.register_custom_ops_library(library)
        return made

    def _profiled(self, graph: Path | None) -> Any:
        made = self._plain()
        made.enable_profiling = True
        made.profile_file_prefix = str(self._folder / "profile")
        made.add_session_config_entry("session.record_ep_graph_assignment_info", "1")
        if graph is not None:
            made.optimized_model_filepath = str(graph)
            made.add_session_config_entry(
                "session.optimized_model_external_initializers_file_name", "graph.weights"
            )
            made.add_session_config_entry(
                "session.optimized_model_external_initializers_min_size_in_bytes", str(_LARGE)
            )
        return made

    def _new_session(self, made: Any) -> Any:
        import onnxruntime

        providers: list[Any] = [(name, dict(more)) for name, more in self._options["providers"]]
        return onnxruntime.InferenceSession(
            self._path, made, providers=providers or ["CPUExecutionProvider"]
        )


def _of_quark() -> str:
    """Returns the library of AMD Quark's operators, whose import loads what the library needs."""
    if find_spec("quark") is None:
        raise MisfitError("--custom-ops quark: Quark is not installed; expected amd-quark")
    from quark.onnx import get_library_path

    return str(get_library_path())


def text_of(error: Exception) -> str:
    """Returns an error as its parent is told it."""
    text = str(error)
    if isinstance(error, MisfitError):
        return text
    if _QUARK in text:
        text = f"{_WANTED}: {text}"
    return f"{type(error).__name__}: {text}"
