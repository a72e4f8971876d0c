"""The process of one ONNX model: ``python -m otel_quant.inference.child READ WRITE FOLDER``."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Final

from otel_quant.base.fault_boundary import LastResort
from otel_quant.inference.answering import answer_requests, reset_mark, status
from otel_quant.inference.assignment import RECORD, assigned_nodes

_LEVELS: Final = {
    "disable": "ORT_DISABLE_ALL",
    "basic": "ORT_ENABLE_BASIC",
    "extended": "ORT_ENABLE_EXTENDED",
    "all": "ORT_ENABLE_ALL",
}
_QUIET: Final = 3
"""Only errors are logged."""

_QUARK: Final = "com.amd.quark:"
_WANTED: Final = "it has operators of AMD Quark; expected --custom-ops quark"

_BLOCK: Final = 4
"""Runs of one session in a row, where two take turns."""

_LARGE: Final = 1024
"""Bytes from which a weight goes into a file beside the saved graph."""


class _MisfitError(Exception):
    """What the user asked for does not fit the model or this onnxruntime."""


class _Model:
    """The sessions of one model."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._options: Mapping[str, Any] = {}
        self._path = ""
        self._libraries: list[str] = []
        self._session: Any = None
        self._feeds: dict[str, Any] = {}

    def load(self, path: str, options: Mapping[str, Any], subject: Mapping[str, Any]) -> Any:
        """Makes the session and its inputs, and runs it for the first times."""
        import numpy as np
        import onnxruntime

        from otel_quant.inference.feeds import FeedError, feeds

        self._path, self._options = path, options
        _refuse_unknown_providers(options, onnxruntime.get_available_providers())
        names = options["custom_ops"]
        self._libraries = [_of_quark() if name == "quark" else name for name in names]
        before = status("VmRSS")
        began = time.perf_counter_ns()
        self._session = self._new_session(self._plain())
        made = time.perf_counter_ns() - began
        grown = _difference(status("VmRSS"), before)
        try:
            self._feeds = feeds(self._session.get_inputs(), subject, np)
        except FeedError as error:
            raise _MisfitError(str(error)) from error
        first = self._times(1)
        warm = self._times(max(1, options["warmup"]))
        marked = status("VmHWM")
        return {
            "version": onnxruntime.__version__,
            "providers": self._session.get_providers(),
            "inputs": {name: [str(each.dtype), *each.shape] for name, each in self._feeds.items()},
            "made": made,
            "first": first[0],
            "warm": sorted(warm)[len(warm) // 2],
            "grown": grown,
            "load_peak": marked,
            "mark_reset": reset_mark(),
        }

    def run(self, times: int) -> list[int]:
        """Runs the session; returns the nanoseconds of each run but one before them."""
        self._times(1)
        return self._times(times)

    def _times(self, count: int) -> list[int]:
        run, feeds, clock = self._session.run, self._feeds, time.perf_counter_ns
        found = []
        for _ in range(count):
            began = clock()
            run(None, feeds)
            found.append(clock() - began)
        return found

    def memory(self) -> Any:
        """Returns the kernel's mark, in bytes."""
        return {"peak": status("VmHWM")}

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
        plain: list[int] = []
        profiled: list[int] = []
        clock = time.perf_counter_ns
        session.run(None, self._feeds)
        for _ in range(-(-runs // _BLOCK)):
            plain += self._times(_BLOCK)[1:]  # the first is beside threads of the other session
            for at in range(_BLOCK):
                began = clock()
                session.run(None, self._feeds)
                if at:
                    profiled.append(clock() - began)
        return {
            "assigned": assigned_nodes(session),
            "file": session.end_profiling(),
            "graph": str(graph) if graph.exists() else None,
            "plain": plain,
            "profiled": profiled,
        }

    def layers(self, first: str) -> Any:
        """Compares tensors with those of the float model, by onnxruntime's debugger."""
        from otel_quant.inference.layers import layer_errors

        return layer_errors(first, self._path, self._feeds, self._folder)

    def _plain(self) -> Any:
        import onnxruntime

        made = onnxruntime.SessionOptions()
        made.log_severity_level = _QUIET
        made.graph_optimization_level = getattr(
            onnxruntime.GraphOptimizationLevel, _LEVELS[self._options["level"]]
        )
        if self._options["threads"] is not None:
            made.intra_op_num_threads = self._options["threads"]
        for library in self._libraries:
            made.register_custom_ops_library(library)
        return made

    def _profiled(self, graph: Path | None) -> Any:
        made = self._plain()
        made.enable_profiling = True
        made.profile_file_prefix = str(self._folder / "profile")
        made.add_session_config_entry(RECORD, "1")
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
        raise _MisfitError("--custom-ops quark: Quark is not installed; expected amd-quark")
    from quark.onnx import get_library_path

    return str(get_library_path())


def _refuse_unknown_providers(options: Mapping[str, Any], known: list[str]) -> None:
    for name, _ in options["providers"]:
        if name not in known:
            raise _MisfitError(
                f"provider {name!r} is not in this onnxruntime; expected one of {', '.join(known)}"
            )


def _difference(after: int | None, before: int | None) -> int | None:
    return None if after is None or before is None else max(0, after - before)


def _answers(folder: Path) -> Mapping[str, Callable[..., Any]]:
    model = _Model(folder)
    return {
        "load": model.load,
        "run": model.run,
        "memory": model.memory,
        "outputs": model.outputs,
        "profile": model.profile,
        "layers": model.layers,
    }


def _text_of(error: Exception) -> str:
    text = str(error)
    if isinstance(error, _MisfitError):
        return text
    if _QUARK in text:
        text = f"{_WANTED}: {text}"
    return f"{type(error).__name__}: {text}"


if __name__ == "__main__":
    answer_requests(sys.argv[1:], _answers, _text_of)
