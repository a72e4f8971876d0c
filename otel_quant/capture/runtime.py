"""This process's run: made when its first step opens, ended when the process does.

What is here is process-wide by nature: the sinks (an instrument lives as long as its
meter), the recorder of the run that is under way, and what happens at exit and in
forked children.

A run begins with its first step, as Quark's own profile does, so a program that never quantizes has
none. A child process that is started while a quantization library is loaded begins the run too, because
the child's span needs a parent. `Pool` ends its workers by a signal, so in a worker each outermost
operation has a root span of its own, and all of it has left the process when the operation returns.

There are no signal handlers: one would delay SIGTERM until a C call of minutes returns. What a killed
process leaves is on disk already: each checkpoint, and a last reading that is at most 2 s old.
"""

from __future__ import annotations

import atexit
import builtins
import os
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final
from weakref import WeakKeyDictionary, ref

from opentelemetry.context import Context
from opentelemetry.instrumentation.utils import is_instrumentation_enabled

from otel_quant.base.environment import settings_from
from otel_quant.base.fault_boundary import FAULTS
from otel_quant.base.log import LOG
from otel_quant.capture.early_stacks import EARLY_STACKS
from otel_quant.capture.exits import LAST_ERRORS
from otel_quant.capture.instruments import MISSED
from otel_quant.capture.instruments.processes import LAUNCHED, PARENT
from otel_quant.capture.probes.readers import Probes
from otel_quant.capture.recorder.ongoing import OpenStep, current_step
from otel_quant.capture.recorder.recorder import Recorder
from otel_quant.capture.recorder.run_info import new_run_info
from otel_quant.capture.stack_sampler import sampler_for
from otel_quant.export.otel.automatic_providers import (
    AUTOMATIC_PROVIDERS,
    NOT_INSTALLED,
    PROVIDERS,
    has_providers_of_program,
)
from otel_quant.export.otel.delivery import Delivery
from otel_quant.export.otel.logs import LogsSink
from otel_quant.export.otel.metrics import MetricsSink
from otel_quant.export.otel.sdk_workarounds import WORKAROUNDS
from otel_quant.export.otel.service_name import CARRIER_KEY, name_service
from otel_quant.export.otel.spans import SpanIds, SpansSink
from otel_quant.export.quark_yaml.columns import ProgramMetrics
from otel_quant.export.quark_yaml.file import (
    PROGRAM_REQUEST,
    ProfileRequest,
    profile_path,
    quark_own_path,
    request_of_run,
    requested_by,
)
from otel_quant.export.quark_yaml.sink import QuarkYamlSink
from otel_quant.export.recording_sink import RecordingSink
from otel_quant.format.event_file import PROFILE, choose_folder, make_folder
from otel_quant.schema import semconv
from otel_quant.schema.events import Sink
from otel_quant.schema.figures import RESOURCES, TREE_MEMORY, Number
from otel_quant.schema.readings import CostedModel, Reading, RunInfo, StepInfo
from otel_quant.schema.settings import Settings

_SINCE: Final = (
    "since before it was hooked; call otel_quant.run() or instrument() before the import"
)


class Runtime:
    """The run of this process and what outlives a run."""

    def __init__(self) -> None:
        self.delivery = Delivery()
        self.metrics = ProgramMetrics(RESOURCES)
        self._lock = threading.RLock()
        self._recorder = _no_run()
        self._ended: Recorder | None = None  # the last one, once another has been made
        self._settings: Settings | None = None
        self._sinks: tuple[Sink, ...] | None = None
        self._spans: SpansSink | None = None
        # By provider, because a provider keeps what it was told to observe, and no second time.
        self._metrics_sinks: WeakKeyDictionary[Any, ref[MetricsSink]] = WeakKeyDictionary()
        self._added_sinks: tuple[Sink, ...] = ()
        self._process_context: Sink | None = None  # One in a process
        self._profile_sink: QuarkYamlSink | None = None
        self._recording: tuple[str | None, RecordingSink | None] = None, None
        self.operations: list[Any] = []  # calls of entry points that are under way
        self._outputs: dict[str, int] = {}  # where steps have written, and since when
        # Monotonic clock, since when the stacks of the run are taken; 0 for its start
        self._began_ns = 0
        self._exiting = False
        self._ends_at_exit = False
        self._has_profile = True

    # --- the run --------------------------------------------------------------------------

    @property
    def settings(self) -> Settings:
        """What the environment asked for when the run began, or asks for now."""
        return self._settings or settings_from(os.environ)

    @property
    def recorder(self) -> Recorder:
        """The run under way, or a new one; one that records nothing where the program suppresses instrumentation."""
        if not is_instrumentation_enabled():
            return _no_run()
        if self._is_over:
            with self._lock:
                if self._is_over:
                    self._ended = self.latest_run
                    self._recorder = self._recorder_for(request_of_run())
        return self._recorder

    @property
    def _is_over(self) -> bool:
        """Whether the next step begins another run; at exit it does not, if there was one."""
        recorder = self._recorder
        return recorder.ended and not (self._exiting and recorder.baseline is not None)

    @property
    def latest_run(self) -> Recorder | None:
        """The run under way, or else the last that has ended; None before the first."""
        recorder = self._recorder
        return recorder if recorder.baseline is not None else self._ended

    @property
    def is_running(self) -> bool:
        """Whether a run has begun and not ended."""
        recorder = self._recorder
        return recorder.baseline is not None and not recorder.ended

    def current_step(self) -> OpenStep | None:
        """Returns the innermost open step of the calling context."""
        return current_step(self._recorder)

    def end_run(self, error: BaseException | None = None, only: Recorder | None = None) -> None:
        """Ends the run, if one is under way. The next step begins another."""
        if only in (None, self._recorder):
            self._recorder.end(error)
            self._settings = None

    def begin_run(
        self, profile: str | None = None, keep: Sink | None = None, text: list[str] | None = None
    ) -> Recorder:
        """Begins a run, unless one is under way; `text` keeps what its local file has."""
        request = request_of_run(profile)
        with self._lock:
            if not self.is_running and not self._exiting:
                self._ended = self.latest_run
                self._recorder = self._recorder_for(request)
            recorder = self.recorder
            if keep is not None:
                recorder.add_sink(keep)
            file = self._profile_sink
            if text is not None and (file is None or not file.keep(text)):
                keeper = QuarkYamlSink(None, self.metrics)
                keeper.keep(text)
                recorder.add_sink(keeper)
        recorder.start()
        return recorder

    def write_profile(self, path: str) -> None:
        """Asks for the local file as Quark's profiler does: in a folder that exists, also once the run has begun."""
        PROGRAM_REQUEST.ask(path, makes_folders=False)
        with self._lock, FAULTS.kept_in("local profile"):
            if not self.is_running:
                return
            if self._profile_sink is None:
                LOG.warning(
                    "%s is not written: the run began without a local file; set "
                    "OTEL_QUANT_PROFILE, or give the path before the first step",
                    path if self.settings.paths else "the local file",
                )
            else:
                request = requested_by(self.settings, PROGRAM_REQUEST.latest)
                assert request is not None
                self._profile_sink.move(self._path_of(request, self._recorder.info))

    def move_profile_off(self, path: str) -> None:
        """Moves the local file aside if Quark's own profiler is about to write to its path."""
        with self._lock, FAULTS.kept_in("local profile"):
            if self.is_running and self._profile_sink is not None:
                self._profile_sink.move_off(path)

    def add_sink(self, sink: Sink) -> None:
        """Hands the run under way, and every later one, to one more sink."""
        with self._lock:
            if sink not in self._added_sinks:
                self._added_sinks = (*self._added_sinks, sink)
                self._recorder.add_sink(sink)

    def child_carrier(self, begin: bool) -> dict[str, str]:
        """Returns the trace context for a child process, by header name, and the run's name."""
        if begin:
            self.recorder.start()
        headers = self._spans.carrier() if self.is_running and self._spans is not None else {}
        return {**headers, CARRIER_KEY: self._recorder.info.name} if headers else {}

    def note_output(self, step: OpenStep) -> None:
        """Notes where a step has written, to be audited once nothing is open."""
        place = step.attributes.get(semconv.OUTPUT_PATH)
        if isinstance(place, str) and self.settings.cost:
            self._outputs.setdefault(place, step.start.time_ns)

    def report_if_idle(self) -> None:
        """Audits what was written, and in a worker ends the root span and sends everything, unless something is open."""
        if self.operations or not self.is_running or not self._recorder.idle:
            return
        if self._outputs:
            # Imported here: a program that writes no model does not pay for it.
            from otel_quant.capture.instruments.model_cost import audited_checkpoints

            outputs, self._outputs = self._outputs, {}
            with FAULTS.kept_in("audit"):
                audited = audited_checkpoints(outputs, paths=self.settings.paths)
                if found := [*audited]:
                    self.recorder.models_costed(found)
        if PARENT.is_worker:
            self.recorder.report()
            self._drain(self.delivery.drain, self.settings.exit_timeout)

    def change_providers(self) -> None:
        """Ends the run and lets go of the providers: the next run uses others."""
        with self._lock, FAULTS.kept_in("change of providers"):
            self.end_run()
            for sink in self._sinks or ():
                sink.forget()
            self._recorder = _no_run()
            self._ended = self._sinks = self._spans = None

    # --- exit and fork --------------------------------------------------------------------

    # Python calls what was registered last first:
    # 1. What the program registers after its first step, Quark's own profiler with its last record too.
    # 2. The end of the run: its spans end, its files are complete, exporters have a limited time to deliver.
    # 3. What was there before: the providers of the SDK, which register as they are made; those that have not
    #    answered by then are not shut down (:mod:`otel_quant.export.otel.delivery`).

    def end_at_exit(self) -> None:
        """Has the run end at exit: after what registers later, before what has registered.

        Where `otel-quant run` has registered the end before the program's own code, only providers are before that.
        """
        is_registered = LAUNCHED in sys.modules and not has_providers_of_program()
        if not self._ends_at_exit and not is_registered:
            self.end_first_at_exit()

    def end_first_at_exit(self) -> None:
        """Moves the end before what has registered since: providers that were made after the first step."""
        self._ends_at_exit = True
        atexit.unregister(self.at_process_end)
        atexit.register(self.at_process_end)

    def at_process_end(self, error: BaseException | None = None) -> None:
        """The process is about to end, by an exception if any: ends the run and waits, bounded, for exporters."""
        run = self.latest_run
        if self._exiting or run is None:
            return
        self._exiting, timeout = True, self.settings.exit_timeout
        run.end(error or _error_at_exit())
        for name in sorted(MISSED):
            LOG.warning("%s ran without a step: the program has kept it %s", name, _SINCE)
        try:
            self._drain(self.delivery.finish, timeout)
        except KeyboardInterrupt:  # Python would print a stack trace of ours, and go on
            LOG.warning("telemetry that has not been delivered is given up: interrupted")

    def record_failure(self, error: BaseException | None = None) -> None:
        """Records an exception that ends the process, at exit only where no run is under way, which has it otherwise."""
        raised = error or _error_at_exit()
        is_lost = error is not None or not self.is_running
        if is_lost and isinstance(raised, Exception | SystemExit):
            if not self.is_running:
                self._has_profile = self.latest_run is None  # else the profile of that one is moved
                self.begin_run()
            self.at_process_end(raised)

    def after_fork_in_child(self) -> None:
        """In a forked child: the parent's run is not this process's."""
        MISSED.clear()
        LAST_ERRORS.thread = None
        self._lock = threading.RLock()
        with FAULTS.kept_in("linking a child process"):
            if self.is_running and self._spans is not None:
                PARENT.carrier = {**self._spans.carrier(), CARRIER_KEY: self._recorder.info.name}
        recorder, self._recorder = self._recorder, _no_run()
        (_, recording), self._recording = self._recording, (None, None)
        self._ended = None
        self._settings = None
        self.operations.clear()
        self._outputs.clear()
        self._exiting = False
        PARENT.is_worker = True
        self.delivery.after_fork_in_child()
        AUTOMATIC_PROVIDERS.pop("profiles", None)  # with the parent's requests and connections
        recorder.forget()
        self._process_context = None  # it has no mapping here
        if recording is not None:
            recording.forget()

    def _drain(self, send: Callable[[float], bool], timeout: float) -> None:
        with FAULTS.kept_in("delivery"):
            try:
                sent = self.delivery.within(timeout, send)
            except KeyboardInterrupt:
                # Else the SDK would wait for the same once more, for half a minute, at exit.
                self.delivery.abandon()
                raise
            if not sent:
                LOG.warning(
                    "telemetry could not be delivered within %g s and is given up "
                    "(OTEL_QUANT_EXIT_TIMEOUT sets the time, in milliseconds)",
                    timeout,
                )
                self.delivery.abandon()

    # --- making ---------------------------------------------------------------------------

    def _recorder_for(self, request: ProfileRequest | None) -> Recorder:
        with FAULTS.kept_in("beginning of a run"):
            self._settings = settings = settings_from(os.environ)
            FAULTS.names_paths = settings.paths
            is_received = request is not None or settings.file_wanted or self._added_sinks
            if settings.sdk_disabled and not is_received:
                return _no_run()
            if not (is_received or PARENT.is_worker or has_providers_of_program()):
                for package in NOT_INSTALLED:
                    LOG.warning(
                        "nothing is recorded or sent: %s is not installed, without which opentelemetry-instrument has no "
                        "providers; expected pip install 'otel-quant[otlp]', or OTEL_QUANT_RECORD=DIR for a recording alone",
                        package,
                    )
                NOT_INSTALLED.clear()
            WORKAROUNDS.apply()
            if AUTOMATIC_PROVIDERS:
                name_service(AUTOMATIC_PROVIDERS.values())
            info = new_run_info(
                os.environ, PARENT.carrier,
                name=PARENT.carrier.get(CARRIER_KEY) or settings.run_name, paths=settings.paths,
                arguments=settings.arguments, folder=Path.cwd(),
            )  # fmt: skip
            stacks = EARLY_STACKS.take() or sampler_for(settings)
            self._began_ns = stacks.began_ns if stacks is not None else 0
            recorder = Recorder(
                info, Probes([each for each in RESOURCES if settings.gpu or each.name != "gpu"]),
                self._sinks_for(settings, request, info), self.metrics,
                sample_interval=settings.sample_interval, exact_peaks=settings.exact_peaks,
                stacks=stacks,
            )  # fmt: skip
            self.end_at_exit()
            return recorder
        return _no_run()

    def _sinks_for(
        self, settings: Settings, request: ProfileRequest | None, info: RunInfo
    ) -> list[Sink]:
        """Returns the sinks of a run, in the order in which they receive a start; they receive an end in the reverse order."""
        recording = self._recording_sink_for(settings, info)
        if recording is not None and (request is None or request.path is None):
            path = str(recording.folder / PROFILE)
            request = ProfileRequest(path, strict=settings.yaml_strict, is_shared=True)
        # A recording has the last reading in a file of its own.
        profile = self._profile_sink_for(request, info, keeps_last_reading=recording is None)
        self._profile_sink = profile
        sinks: list[Sink | None] = [
            profile,  # on disk before the step's span begins
            *self._process_sinks(),
            *self._rare_sinks(settings, info),
            recording,  # it has the ids of the spans
            *self._added_sinks,
        ]
        return [each for each in sinks if each is not None]

    def _recording_sink_for(self, settings: Settings, info: RunInfo) -> RecordingSink | None:
        """Returns the sink of this process's recording: the same for all runs at one path."""
        if settings.record is None:
            return None
        with FAULTS.kept_in("sink recording"):
            asked, sink = self._recording
            if asked != settings.record:
                folder = choose_folder(
                    Path(settings.record),
                    is_ours=settings.launched,
                    rank=info.rank,
                    names_paths=settings.paths,
                )
                sink = None
                if make_folder(folder, names_paths=settings.paths):
                    sink = RecordingSink(
                        folder, self._ids_of, is_launched=settings.launched,
                        interval=settings.sample_interval, began_ns=self._began_ns,
                    )  # fmt: skip
                self._recording = settings.record, sink
            return sink
        return None

    def _profile_sink_for(
        self, request: ProfileRequest | None, info: RunInfo, *, keeps_last_reading: bool
    ) -> QuarkYamlSink | None:
        if request is not None and self._has_profile:
            with FAULTS.kept_in("sink quark_yaml"):
                return QuarkYamlSink(
                    self._path_of(request, info), self.metrics, strict=request.strict,
                    makes_folders=request.makes_folders, keeps_last_reading=keeps_last_reading,
                )  # fmt: skip
        return None

    @staticmethod
    def _path_of(request: ProfileRequest, info: RunInfo) -> Path:
        return profile_path(request, info.rank, PARENT.is_worker, quark_own_path())

    def _process_sinks(self) -> tuple[Sink, ...]:
        if self._sinks is None:
            use = PROVIDERS.current
            logs = LogsSink(self.delivery.soon, self._context_of, use.logger)
            spans = self._spans = SpansSink(
                self.end_first_at_exit,
                logs.run_span_started,
                use.tracer,
                has_profiles=self.settings.profiles,
            )
            self._sinks = (spans, self._metrics_sink(use.meter), logs)
        return self._sinks

    def _rare_sinks(self, settings: Settings, info: RunInfo) -> list[Sink]:
        """Returns the sinks that few ask for: they are loaded only then."""
        found: list[Sink] = []
        if settings.profiles and not settings.sdk_disabled:
            with FAULTS.kept_in("sink profiles"):
                from otel_quant.export.otel.profiles import ProfilesProvider, ProfilesSink

                if "profiles" not in AUTOMATIC_PROVIDERS:
                    AUTOMATIC_PROVIDERS["profiles"] = ProfilesProvider()
                found.append(ProfilesSink(AUTOMATIC_PROVIDERS["profiles"].add, self._ids_of))
        if settings.process_context:
            with FAULTS.kept_in("sink process context"):
                from otel_quant.export.otel.process_context import ProcessContextSink

                self._process_context = self._process_context or ProcessContextSink(self._ids_of)
                found.append(self._process_context)
        # Of a pod of Kubeflow Trainer, in the first of its ranks
        if "KUBEFLOW_TRAINER_SERVER_URL" in os.environ and not (info.rank or PARENT.is_worker):
            with FAULTS.kept_in("sink TrainJob"):
                from otel_quant.export.train_job import TrainJobSink

                found.append(TrainJobSink(os.environ))
        return found

    def _ids_of(self, item: StepInfo | CostedModel | None) -> SpanIds | None:
        return self._spans.ids_of(item) if self._spans is not None else None

    def _metrics_sink(self, provider: Any) -> MetricsSink:
        key = self if provider is None else provider
        known = self._metrics_sinks.get(key)
        sink = known() if known is not None else None
        if sink is None:
            sink = MetricsSink(
                RESOURCES, self._reading_now, self._context_of, provider, self._peak_now
            )
            self._metrics_sinks[key] = ref(sink)
        return sink

    def _context_of(self, step: StepInfo | None) -> Context | None:
        return self._spans.context_of(step) if self._spans is not None else None

    def _peak_now(self) -> Number | None:
        recorder = self.latest_run
        return recorder.peaks.figures.get(TREE_MEMORY.name) if recorder is not None else None

    def _reading_now(self) -> Reading | None:
        recorder = self.latest_run
        if recorder is None:
            return None
        if not recorder.ended:
            return recorder.reading_now()
        # The run is over when its metrics are collected for the last time. For a run that
        # is shorter than the interval of that, it is the first time as well.
        return recorder.latest if self._exiting else None


def _error_at_exit() -> BaseException | None:
    """Returns the exception that ends the process."""
    # An interactive session goes on after an error, so its last error did not end the process.
    is_interactive = hasattr(sys, "ps1") or hasattr(builtins, "__IPYTHON__")
    return None if is_interactive else LAST_ERRORS.error or getattr(sys, "last_value", None)


def _no_run() -> Recorder:
    """Returns a recorder that records nothing."""
    nothing = Recorder(RunInfo(id="", pid=os.getpid()), Probes(()), ())
    nothing.forget()
    return nothing


RUNTIME: Final = Runtime()  # The only one in this process

PROVIDERS.changed = RUNTIME.change_providers

if hasattr(os, "register_at_fork"):
    os.register_at_fork(
        before=RUNTIME.delivery.before_fork,
        after_in_parent=RUNTIME.delivery.after_fork_in_parent,
        after_in_child=RUNTIME.after_fork_in_child,
    )
