"""ONNX Runtime's quantization tools: static, dynamic, and block-wise for MatMul."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, Final

from otel_quant.base.fault_boundary import FAULTS
from otel_quant.base.log import LOG
from otel_quant.capture.instruments.shared.arguments import Models, models_of
from otel_quant.capture.instruments.shared.hooks import (
    MODEL_QUANTIZATION,
    STEP,
    Hook,
    Library,
    Wrapper,
)
from otel_quant.capture.instruments.shared.samples import (
    COUNTING_SAMPLES,
    count_sample,
    note_shapes,
)
from otel_quant.capture.instruments.shared.steps import (
    as_library_step,
    as_operation,
    innermost,
    is_reported_already,
    open_library_step,
    step,
)
from otel_quant.capture.recorder.ongoing import OpenStep
from otel_quant.capture.scope import OPENING_A_STEP, Activation, qualified_name
from otel_quant.capture.uncounted_frames import wraps
from otel_quant.schema import semconv
from otel_quant.schema.step_names import ProfileStep

_CALLS: Final = "otel_quant.capture.instruments.onnxruntime:"
_COLLECT: Final = Wrapper(
    _CALLS + "collect", "step **{step}**; counts what `get_next` of its reader returns"
)
_COMPUTE: Final = Wrapper(
    _CALLS + "compute", "the end of that step, or a step **{step}** of its own"
)
_QUANTIZE: Final = Wrapper(
    _CALLS + "quantize_model",
    f"step **{ProfileStep.QUANTIZATION_STATIC}** or **{ProfileStep.QUANTIZATION_DYNAMIC}**",
)
_PROCESS: Final = Wrapper(_CALLS + "process", "step **{step}**; the models are costed")
_PREPARED: Final = Wrapper(
    _CALLS + "prepared_inputs", "the shapes of the first sample are those of the models' inputs"
)

_ORT: Final = "onnxruntime.quantization"
_CALIBRATE: Final = f"{_ORT}.calibrate"
_DEBUG: Final = f"{_ORT}.qdq_loss_debug"

_QUANTIZER: Final = (("self.per_channel", semconv.PER_CHANNEL),)
_NBITS: Final = (
    ("self.algo_config.bits", semconv.BITS),
    ("self.bits", semconv.BITS),
    ("self.algo_config.block_size", semconv.BLOCK_SIZE),
    ("self.block_size", semconv.BLOCK_SIZE),
    ("self.algo_config.quant_format", semconv.FORMAT),
    ("self.model_path", semconv.INPUT_PATH),
)

LIBRARY: Final = Library(
    name="onnxruntime",
    distribution="onnxruntime",
    versions_seen="1.20, 1.31",
    hooks=(
        Hook(f"{_ORT}.shape_inference", "quant_pre_process", STEP, ProfileStep.PRE_PROCESS),
        Hook(_CALIBRATE, "MinMaxCalibrater.collect_data", _COLLECT, ProfileStep.CALIBRATION),
        Hook(_CALIBRATE, "MinMaxCalibrater.compute_data", _COMPUTE, ProfileStep.CALIBRATION),
        Hook(_CALIBRATE, "HistogramCalibrater.collect_data", _COLLECT, ProfileStep.CALIBRATION),
        Hook(_CALIBRATE, "HistogramCalibrater.compute_data", _COMPUTE, ProfileStep.CALIBRATION),
        Hook(f"{_ORT}.qdq_quantizer", "QDQQuantizer.quantize_model", STEP, ProfileStep.QUANTIZATION_STATIC, sources=_QUANTIZER),
        Hook(f"{_ORT}.onnx_quantizer", "ONNXQuantizer.quantize_model", _QUANTIZE, sources=_QUANTIZER),
        Hook(f"{_ORT}.matmul_nbits_quantizer", "MatMulNBitsQuantizer.process", _PROCESS, ProfileStep.QUANTIZATION_MATMUL_NBITS, sources=_NBITS),
        # Its name in onnxruntime 1.20.
        Hook(f"{_ORT}.matmul_4bits_quantizer", "MatMul4BitsQuantizer.process", _PROCESS, ProfileStep.QUANTIZATION_MATMUL_NBITS, sources=_NBITS),
        Hook(f"{_ORT}.neural_compressor.weight_only", "prepare_inputs", _PREPARED),
        Hook(f"{_ORT}.onnx_model", "ONNXModel.save_model_to_file", STEP, ProfileStep.POST_PROCESS, sources=(("output_path", semconv.OUTPUT_PATH),)),
        Hook(_DEBUG, "collect_activations", STEP, ProfileStep.MODEL_EVALUATION),
        Hook(_DEBUG, "compute_activation_error", STEP, ProfileStep.MODEL_EVALUATION),
        Hook(_DEBUG, "compute_weight_error", STEP, ProfileStep.MODEL_EVALUATION),
        # Entry points: their arguments describe the steps, and their models are costed.
        Hook(f"{_ORT}.quantize", "quantize_static", MODEL_QUANTIZATION),
        Hook(f"{_ORT}.quantize", "quantize_dynamic", MODEL_QUANTIZATION),
        Hook(f"{_ORT}.quantize", "quantize", MODEL_QUANTIZATION),
    ),
)  # fmt: skip


# Whether ``collect_data`` is running: that of MinMax calls ``compute_data`` itself.
_COLLECTING: Final[ContextVar[bool]] = ContextVar("otel_quant_collecting", default=False)

_ABSENT: Final = object()


def collect(function: Callable[..., Any], hook: Hook, library: Library) -> Callable[..., Any]:
    """Makes ``collect_data`` the Calibration step and counts what it takes from its reader.

    Within an operation the step lasts until ``compute_data`` has returned, however often
    data are collected before.
    """
    name = qualified_name(function)

    @wraps(function)
    def wrapper(self: Any, data_reader: Any, *args: Any, **kwargs: Any) -> Any:
        with (
            _calibrating(self, name, library, is_last=False) as begun,
            _counted(data_reader if begun is not None else None),
        ):
            token = _COLLECTING.set(True)
            try:
                return function(self, data_reader, *args, **kwargs)
            finally:
                _COLLECTING.reset(token)

    return wrapper


def compute(function: Callable[..., Any], hook: Hook, library: Library) -> Callable[..., Any]:
    """Makes ``compute_data`` the end of the Calibration step, or a step if none is open."""
    name = qualified_name(function)

    @wraps(function)
    def wrapper(self: Any, *args: Any, **kwargs: Any) -> Any:
        if _COLLECTING.get():
            return function(self, *args, **kwargs)
        with _calibrating(self, name, library, is_last=True):
            return function(self, *args, **kwargs)

    return wrapper


def quantize_model(
    function: Callable[..., Any], hook: Hook, library: Library
) -> Callable[..., Any]:
    """Makes each call the static or the dynamic quantization, depending on its quantizer."""
    static, dynamic = (
        as_library_step(function, kind, library, sources=hook.sources)
        for kind in (ProfileStep.QUANTIZATION_STATIC, ProfileStep.QUANTIZATION_DYNAMIC)
    )

    @wraps(function)
    def wrapper(self: Any, *args: Any, **kwargs: Any) -> Any:
        chosen = static if getattr(self, "static", True) else dynamic
        return chosen(self, *args, **kwargs)

    return wrapper


def process(function: Callable[..., Any], hook: Hook, library: Library) -> Callable[..., Any]:
    """Makes each call a step, and costs the model that the quantizer holds at its end.

    The float model is costed where the quantizer knows its file; one that was passed
    in memory has been quantized in place.
    """

    def models(result: object, quantizer: Any, /, *_: object, **__: object) -> Models:
        return models_of({"input_model": quantizer.model_path}, quantizer.model.model)

    return as_operation(step(function, hook, library), library, models=models)


def prepared_inputs(
    function: Callable[..., Any], hook: Hook, library: Library
) -> Callable[..., Any]:
    """Keeps the shapes of the first of the samples that each call returns before all else."""

    @wraps(function)
    def wrapper(*args: Any, **kwargs: Any) -> Any:
        result = function(*args, **kwargs)
        with FAULTS.kept_in("shapes of calibration samples"):
            samples = result[0]
            if samples:
                note_shapes(samples[0])
        return result

    return wrapper


@contextmanager
def _calibrating(
    calibrator: Any, function: str, library: Library, *, is_last: bool
) -> Iterator[OpenStep | None]:
    """Runs a call of a calibrator within its Calibration step, yielding the step."""
    operation = innermost()
    activation = Activation(None)
    with FAULTS.kept_in(OPENING_A_STEP):
        if operation is not None and operation.shared_step is not None:
            activation = operation.shared_step
        elif not is_reported_already(ProfileStep.CALIBRATION, library):
            activation = Activation(_open(calibrator, function, library))
            if operation is not None:
                operation.begin_shared_step(activation)
    if operation is None or operation.shared_step is not activation:
        with activation:
            yield activation.step
        return
    try:
        yield activation.step
    except BaseException as error:
        operation.end_shared_step(error)
        raise
    if is_last:
        operation.end_shared_step()


def _open(calibrator: Any, function: str, library: Library) -> OpenStep | None:
    method = type(calibrator).__name__.removesuffix("Calibrater")
    return open_library_step(
        ProfileStep.CALIBRATION,
        library,
        function=function,
        attributes={semconv.CALIBRATION_METHOD: method},
    )


@contextmanager
def _counted(reader: Any) -> Iterator[None]:
    """Counts what ``get_next`` of one reader returns while the block runs."""
    restore: Callable[[], None] | None = None
    with FAULTS.kept_in(COUNTING_SAMPLES):
        restore = _count_on(reader)
    try:
        yield
    finally:
        if restore is not None:
            with FAULTS.kept_in(COUNTING_SAMPLES):
                restore()


def _count_on(reader: Any) -> Callable[[], None] | None:
    """Has a reader's ``get_next`` count what it returns; returns what undoes that."""
    get_next = getattr(reader, "get_next", None)
    if not callable(get_next):
        return None

    @wraps(get_next)
    def counted(*args: Any, **kwargs: Any) -> Any:
        inputs = get_next(*args, **kwargs)
        with FAULTS.kept_in(COUNTING_SAMPLES):
            if inputs:  # what ends a calibration is None, or no inputs
                count_sample(reader, inputs)
                note_shapes(inputs)
        return inputs

    own = getattr(reader, "__dict__", {}).get("get_next", _ABSENT)
    try:
        reader.get_next = counted
    except (AttributeError, TypeError):
        LOG.debug("%s takes no attributes; its samples are not counted", type(reader).__name__)
        return None

    def restore() -> None:
        if vars(reader).get("get_next") is not counted:
            return  # the reader has replaced it itself
        if own is _ABSENT:
            del reader.get_next
        else:
            reader.get_next = own

    return restore
