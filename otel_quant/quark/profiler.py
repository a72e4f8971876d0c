"""``GlobalProfiler`` and ``profile_scope`` with Quark's signatures, on our recorder.

Beyond Quark's profiler: scopes may be open in several threads at the same time, failed steps are
marked, and every scope is a span even if no file is requested.
"""

from __future__ import annotations

import logging
import os
import sys
import threading
from collections.abc import Callable
from typing import Any, ClassVar, Final, TypeVar

from otel_quant.base.fault_boundary import FAULTS
from otel_quant.base.log import LOG
from otel_quant.capture.probes.cache_directories import CACHE_DIRECTORIES
from otel_quant.capture.recorder.ongoing import OpenStep
from otel_quant.capture.runtime import RUNTIME
from otel_quant.capture.scope import Activation, as_step, qualified_name
from otel_quant.export.quark_yaml.file import DEFAULT_PATH
from otel_quant.export.quark_yaml.metrics import Metric
from otel_quant.program.instrumenting import hook_libraries
from otel_quant.schema.events import Event, Sink
from otel_quant.schema.figures import ALL_GPUS_MEMORY, total_used
from otel_quant.schema.readings import ProfileStep as ProfileStep
from otel_quant.schema.readings import Reading
from otel_quant.schema.settings import QUARK_PROFILING

_GIB: Final = 1024**3

F = TypeVar("F", bound=Callable[..., Any])


class _RecordsSink(Sink):
    """Stores the columns of each checkpoint. Only used on request: memory grows with the run."""

    name = "records of the profiler"

    def __init__(self) -> None:
        self.records: list[dict[str, Any]] = []

    def checkpoint(self, event: Event) -> None:
        """Stores a checkpoint."""
        self.records.append(RUNTIME.metrics.columns(event))

    run_started = step_started = step_ended = run_ended = checkpoint


_RECORDS: Final = _RecordsSink()


class GlobalProfiler:
    """The profiler of this process; every call of the class returns the same one.

    With ``QUARK_PROFILING=1`` in the environment, the first call begins the run and its file. It
    also instruments Quark's own steps, as ``otel_quant.QuantInstrumentor`` does.

    Args:
        output_path: Path of the file; only the path of the first call is used. An existing file
            is kept under a numbered name.

    Attributes:
        enabled: Whether the file is written.
        output_path: The path that was given.
        records: The columns of each checkpoint so far, in order.
    """

    _instance: ClassVar[GlobalProfiler | None] = None
    _begun: ClassVar[GlobalProfiler | None] = None
    _making: ClassVar[threading.RLock] = threading.RLock()
    _has_psutil: ClassVar[bool] = True
    _initialized: bool

    def __new__(cls, output_path: str = DEFAULT_PATH) -> GlobalProfiler:
        """Returns the only instance; creates it if there is none."""
        with cls._making:
            if cls._instance is None:
                cls._instance = super().__new__(cls)
                cls._instance._initialized = False
            return cls._instance

    def __init__(self, output_path: str = DEFAULT_PATH) -> None:
        with self._making:
            if self._initialized:
                return
            self._initialized = True
            self.enabled = os.environ.get(QUARK_PROFILING, "0") == "1"
            self.output_path = output_path
            self.records: list[dict[str, Any]] = []
            self._stopped = False
            if self.enabled:
                with FAULTS.kept_in("profiler"):
                    self._begin()

    def _begin(self) -> None:
        if GlobalProfiler._begun is not None:
            # The program has reset the singleton: a new one of Quark's has its own metrics.
            GlobalProfiler._begun.stop()
            RUNTIME.metrics.reset()
        GlobalProfiler._begun = self
        hook_libraries()
        _RECORDS.records = self.records
        run = RUNTIME.latest_run
        if RUNTIME.is_running and run is not None and run.baseline is not None:
            # The run began with an earlier step: its start is the first record all the same.
            _RECORDS.receive(run.started(run.baseline))
        RUNTIME.add_sink(_RECORDS)
        if self.output_path:
            RUNTIME.write_profile(self.output_path)
        RUNTIME.begin_run()

    # --- the run --------------------------------------------------------------------------

    @property
    def checkpoint_metrics(self) -> list[Metric]:
        """The columns of each record; may be changed and reordered."""
        return RUNTIME.metrics.checkpoint_metrics

    @checkpoint_metrics.setter
    def checkpoint_metrics(self, metrics: list[Metric]) -> None:
        RUNTIME.metrics.checkpoint_metrics = metrics

    @property
    def summary_metrics(self) -> list[Metric]:
        """The figures of the summary; may be changed and reordered."""
        return RUNTIME.metrics.summary_metrics

    @summary_metrics.setter
    def summary_metrics(self, metrics: list[Metric]) -> None:
        RUNTIME.metrics.summary_metrics = metrics

    @property
    def start_time(self) -> float | None:
        """Wall clock at the run's first checkpoint, seconds since the epoch."""
        baseline = self._baseline()
        return baseline.time_ns / 1_000_000_000 if baseline is not None else None

    @property
    def base_memory(self) -> int:
        """RSS of the process tree at the run's first checkpoint, in bytes; 0 if unknown."""
        return getattr(self._at_start("memory"), "tree_rss", 0)

    @property
    def gpu_baseline_memory(self) -> int:
        """Memory in use on all visible GPUs at the first checkpoint, in bytes; 0 if unknown."""
        return total_used(self._at_start("gpu") or ()) or 0

    @property
    def gpu_peak_memory(self) -> int:
        """Highest memory in use on all visible GPUs so far, in bytes; 0 if unknown."""
        run = RUNTIME.latest_run if self.enabled else None
        return int(run.peaks.figures.get(ALL_GPUS_MEMORY.name, 0)) if run is not None else 0

    @property
    def baseline_disk_read(self) -> int:
        """Bytes fetched from storage before the first checkpoint; 0 if unknown."""
        return getattr(self._at_start("disk"), "read", 0)

    @property
    def baseline_disk_write(self) -> int:
        """Bytes sent to storage before the first checkpoint; 0 if unknown."""
        return getattr(self._at_start("disk"), "write", 0)

    @property
    def _gpu_available(self) -> bool:
        return bool(self._at_start("gpu"))

    @property
    def _disk_io_available(self) -> bool:
        return self._at_start("disk") is not None

    def _baseline(self) -> Reading | None:
        run = RUNTIME.latest_run if self.enabled else None
        return run.baseline if run is not None else None

    def _at_start(self, resource: str) -> Any:
        """Returns what was read of a resource at the first checkpoint; None if nothing was."""
        baseline = self._baseline()
        return baseline.resources.get(resource) if baseline is not None else None

    def stop(self) -> None:
        """Ends the run and its file. Called automatically when the program exits.

        A second call does nothing. This profiler records nothing afterwards.
        """
        if self.enabled and not self._stopped:
            self._stopped = True
            RUNTIME.end_run()

    # --- steps ----------------------------------------------------------------------------

    def scope(self, step_name: str, user_msg: str | None = None) -> ProfilerScope:
        """Makes a block a step: ``with profiler.scope(ProfileStep.MODEL_LOADING):``.

        Args:
            step_name: A ``ProfileStep`` constant, or any name.
            user_msg: Label instead of the name; meant for ``ProfileStep.USER_DEFINED``.

        Returns:
            The context manager; entering it returns the profiler. It may be used several times,
            nested and in several threads.
        """
        return ProfilerScope(self, step_name, user_msg)

    def __enter__(self) -> GlobalProfiler:
        return self

    def __exit__(self, kind: object, error: BaseException | None, traceback: object) -> None:
        """Does nothing: steps come from :meth:`scope`."""

    def _checkpoint(self, step_name: str) -> None:
        """Takes a checkpoint that is neither the start nor the end of a step."""
        if not self._stopped:
            RUNTIME.recorder.point(step_name)

    def _open(
        self, step_name: str, user_msg: str | None, function: str | None = None
    ) -> OpenStep | None:
        if self._stopped:
            return None
        return RUNTIME.recorder.open(step_name, label=user_msg, function=function)

    # --- the rest -------------------------------------------------------------------------

    def start_cache_dir_monitoring(self, path: str) -> None:
        """Measures how much a directory grows, for ``peak_cache_dir_disk_usage_mb``.

        Does nothing if the profiler is not enabled.

        Args:
            path: The directory.
        """
        if self.enabled and not self._stopped:
            with FAULTS.kept_in("watch of the cache directories"):
                CACHE_DIRECTORIES.watch(path)

    def start_tmp_dir_monitoring(self, path: str) -> None:
        """The former name of :meth:`start_cache_dir_monitoring`."""
        self.start_cache_dir_monitoring(path)

    @staticmethod
    def log_torch_memory(tag: str = "") -> None:
        """Logs torch's memory on each visible GPU; does nothing if torch is not loaded or has none.

        Works even if the profiler is not enabled. The line goes to the logger ``otel_quant`` at
        level INFO, and to standard error if that level is disabled.

        Args:
            tag: Text in brackets before the line.
        """
        torch = sys.modules.get("torch")
        if torch is None or not torch.cuda.is_available():
            return
        cuda, devices = torch.cuda, []
        for index in range(cuda.device_count()):
            free, total = cuda.mem_get_info(index)
            held = cuda.memory_allocated(index), cuda.memory_reserved(index)
            figures = {
                "allocated": held[0], "reserved": held[1], "used": total - free, "free": free,
            }  # fmt: skip
            text = ", ".join(f"{value / _GIB:.2f} GiB {name}" for name, value in figures.items())
            devices.append(f"GPU {index}: {text}")
        line = (f"[{tag}] " if tag else "") + "; ".join(devices)
        LOG.info("%s", line)
        if not LOG.isEnabledFor(logging.INFO):
            sys.stderr.write(f"{line}\n")


class ProfilerScope:
    """See :meth:`GlobalProfiler.scope`."""

    def __init__(self, profiler: GlobalProfiler, step_name: str, user_msg: str | None) -> None:
        self._profiler, self._step_name, self._user_msg = profiler, step_name, user_msg
        self._entered = threading.local()

    def __enter__(self) -> GlobalProfiler:
        activation = Activation(self._profiler._open(self._step_name, self._user_msg))
        self._entered.stack = [*getattr(self._entered, "stack", ()), activation]
        activation.__enter__()
        return self._profiler

    def __exit__(self, kind: object, error: BaseException | None, traceback: object) -> None:
        stack = getattr(self._entered, "stack", None)
        if stack:
            stack.pop().__exit__(kind, error, traceback)


def profile_scope(step: str, user_msg: str | None = None) -> Callable[[F], F]:
    """Makes every call of a function a step: ``@profile_scope(ProfileStep.CALIBRATION)``.

    Args:
        step: A ``ProfileStep`` constant, or any name.
        user_msg: Label instead of the name; meant for ``ProfileStep.USER_DEFINED``.

    Returns:
        The decorator; for functions, coroutine functions and generators.
    """

    def decorator(function: F) -> F:
        name = qualified_name(function)
        return as_step(function, lambda args, kwargs: GlobalProfiler()._open(step, user_msg, name))

    return decorator
