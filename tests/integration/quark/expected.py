"""What the programs must have reported: written out, not derived from the code under test."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from tests.fixtures.otlp_receiver import Tree

Attributes = dict[str, Any]

USAGE: dict[str, type] = {
    "quant.memory.start": int,
    "quant.memory.end": int,
    "quant.memory.delta": int,
    "quant.memory.peak": int,
    "quant.memory.peak_source": str,
    "quant.memory.peak_ratio": float,
    "quant.disk.read": int,
    "quant.disk.write": int,
    "quant.disk.read_chars": int,
    "quant.disk.write_chars": int,
    "quant.cpu.user": float,
    "quant.cpu.system": float,
    "quant.page_faults.major": int,
    "quant.cpu.wait": float,
}
"""What every step and the run have measured, on Linux and without a GPU."""


@dataclass(frozen=True)
class Step:
    """A step that must be there."""

    name: str  # Its name, which is its kind as well
    function: str  # Function that it is, without the package; "" for none
    # What its span has beside its operation's attributes
    attributes: Attributes = field(default_factory=dict)
    # Keys of figures that only this step has
    measured: dict[str, type] = field(default_factory=dict)
    within: tuple[Step, ...] = ()  # Steps directly within it

    def tree(self) -> Tree:
        return self.name, [step.tree() for step in self.within]


@dataclass(frozen=True)
class Operation:
    """A call of the program's: its steps, and the attributes that all of them have."""

    attributes: Attributes
    steps: tuple[Step, ...]
    costs: tuple[str, ...] = ()


def calibration(samples: int) -> Step:
    return Step(
        "Calibration",
        "onnx.calibration.interface.run_calibration",
        {
            "quant.calibration.item_count": samples,
            "quant.calibration.sample_count": samples,
            "quant.calibration.sample_total": samples,
        },
        {"quant.calibration.sample_rate": float},
    )


CACHING = Step("Model Caching", "onnx.utils.model_utils.cache_onnx_model_and_infer_shapes")
CHECKING = Step("Float Model Validation", "onnx.utils.model_utils.check_onnx_model")
RUNNING = Step("Float Model Validation", "onnx.utils.model_utils.run_onnx_model")
LOADING = Step("Dataset Loading", "onnx.calibration.data_readers.CachedDataReader.__init__")
PRE_PROCESS = Step("Pre-process", "onnx.preprocess.preproc.apply_pre_process")
STATIC = Step("Quantization (Static)", "onnx.quantizers.interface.run_static_quantization")
POST_PROCESS = Step("Post-process", "onnx.postprocess.postproc.apply_post_process")
FAST_FINETUNE = Step(
    "Fast Finetune",
    "onnx.algorithm.finetuning.fast_finetune.fast_finetune",
    {"quant.layer_count": 3},
)


def static(samples: int, post: Step = POST_PROCESS) -> tuple[Step, ...]:
    return (
        CACHING,
        CHECKING,
        LOADING,
        PRE_PROCESS,
        CACHING,
        RUNNING,
        calibration(samples),
        STATIC,
        post,
    )


BOTH_MODELS = ("float", "quantized")


def onnx_operations(models: str, out: str) -> list[Operation]:
    """Returns what ``programs/onnx_all.py`` does, given its arguments."""
    return [
        Operation(
            {
                "quant.input.path": f"{models}/conv.onnx",
                "quant.output.path": f"{out}/static.onnx",
                "quant.format": "QDQ",
                "quant.calibration.method": "Percentile",
                "quant.activation.type": "QUInt8",
                "quant.weight.type": "QInt8",
                "quant.per_channel": True,
                "quant.algorithms": ("cle",),
            },
            static(samples=3),
            BOTH_MODELS,
        ),
        Operation(
            {
                "quant.input.path": f"{models}/matmul.onnx",
                "quant.output.path": f"{out}/dynamic.onnx",
                "quant.weight.type": "QUInt8",
                "quant.per_channel": False,
            },
            (
                CACHING,
                Step(
                    "Quantization (Dynamic)",
                    "onnx.quantizers.interface.run_dynamic_quantization",
                    {"quant.activation.type": "QUInt8"},
                ),
            ),
            BOTH_MODELS,
        ),
        Operation(
            {
                "quant.config.name": "XINT8",
                "quant.format": "QDQ",
                "quant.calibration.method": "MinMSE",
                "quant.activation.type": "QUInt8",
                "quant.weight.type": "QInt8",
                "quant.per_channel": False,
                "quant.algorithms": ("cle",),
            },
            static(samples=4),
            BOTH_MODELS,
        ),
        Operation(
            {
                "quant.input.path": f"{models}/conv.onnx",
                "quant.output.path": f"{out}/adaround.onnx",
                "quant.format": "QDQ",
                "quant.calibration.method": "MinMSE",
                "quant.activation.type": "QInt8",
                "quant.weight.type": "QInt8",
                "quant.per_channel": False,
                "quant.algorithms": ("adaround",),
            },
            static(
                samples=2,
                post=Step(POST_PROCESS.name, POST_PROCESS.function, within=(FAST_FINETUNE,)),
            ),
            BOTH_MODELS,
        ),
        Operation(
            {
                "quant.input.path": f"{models}/matmul.onnx",
                "quant.output.path": f"{out}/nbits.onnx",
                "quant.format": "QDQ",
                "quant.calibration.method": "Percentile",
                "quant.activation.type": "QInt8",
                "quant.weight.type": "QInt8",
                "quant.per_channel": False,
                "quant.algorithms": (),
                "quant.bits": 4,
                "quant.block_size": 32,
            },
            (
                CACHING,
                CHECKING,
                LOADING,
                PRE_PROCESS,
                CACHING,
                Step(
                    "Quantization (MatMulNBits)",
                    "onnx.quantizers.interface.run_matmul_nbits_quantization",
                ),
                POST_PROCESS,
            ),
            BOTH_MODELS,
        ),
    ]


_TORCH = "torch.quantization.api.ModelQuantizer"
_WEIGHTS = Step("Calibration (Weights)", f"{_TORCH}._calibrate_all_params")
_FORWARD = Step("Calibration (Forward)", "")
_FREEZE = Step("Freeze Model", f"{_TORCH}.freeze")


def _quantization(calibration: Step) -> Step:
    return Step(
        "Model Quantization",
        f"{_TORCH}.quantize_model",
        within=(
            Step("Model Preparation", f"{_TORCH}._prepare_model"),
            Step("Advanced Algorithms", f"{_TORCH}._apply_advanced_quant_algo"),
            calibration,
        ),
    )


def torch_operations(checkpoint: str, out: str) -> list[Operation]:
    """Returns what ``programs/torch_all.py`` does, given its arguments."""
    int8 = {"quant.weight.type": "int8"}
    calibrated = Step(
        "Calibration",
        f"{_TORCH}._do_calibration",
        {
            "quant.calibration.item_count": 6,  # two in each
            "quant.calibration.sample_count": 3,
            "quant.calibration.sample_total": 3,
        },
        {"quant.calibration.sample_rate": float},
        (_WEIGHTS, _FORWARD),
    )
    weights_only = Step("Calibration", f"{_TORCH}._do_calibration", within=(_WEIGHTS,))
    return [
        Operation(
            {
                **int8,
                "quant.activation.type": "int8",
                "quant.calibration.method": "PerTensorMinMaxObserver",
            },
            (_quantization(calibrated),),
        ),
        Operation({}, (_FREEZE,)),
        Operation(
            {"quant.output.path": f"{out}/onnx"},
            (Step("Export ONNX", "torch.export.api.export_onnx"),),
        ),
        Operation(int8, (_quantization(weights_only),)),
        Operation({}, (_FREEZE,)),
        Operation(
            {"quant.output.path": f"{out}/safetensors"},
            (Step("Export HF Safetensors", "torch.export.api.export_safetensors"),),
        ),
        Operation(
            {**int8, "quant.input.path": checkpoint, "quant.output.path": f"{out}/files"},
            (
                Step(
                    "File-to-File Quantization",
                    "torch.quantization.file2file_quantization.quantize_model_per_safetensor",
                ),
            ),
        ),
    ]


def steps_of(operations: list[Operation]) -> list[tuple[Step, Attributes]]:
    """Returns the steps in the order they begin in, each with all attributes that its span must have."""
    found: list[tuple[Step, Attributes]] = []

    def visit(step: Step, operation: Operation) -> None:
        said = {**operation.attributes, **step.attributes}
        said |= {"quant.step.name": step.name, "quant.step.kind": step.name}
        if step.function:
            said["code.function.name"] = f"quark.{step.function}"
        found.append((step, said))
        for inner in step.within:
            visit(inner, operation)

    for operation in operations:
        for step in operation.steps:
            visit(step, operation)
    return found


def tree_of(operations: list[Operation]) -> list[Tree]:
    """Returns the spans as they must nest."""
    children: list[Tree] = []
    for operation in operations:
        children += [step.tree() for step in operation.steps]
        children += [("model cost", []) for _ in operation.costs]
    return [("quantization", children)]


def checkpoints_of(operations: list[Operation]) -> list[tuple[str, int | None]]:
    """Returns the names of the checkpoints, each with the index of its step."""
    names: list[tuple[str, int | None]] = [("Start", None)]
    counter = iter(range(1000))

    def visit(step: Step) -> None:
        index = next(counter)
        names.append((f"{step.name} Start", index))
        for inner in step.within:
            visit(inner)
        names.append((f"{step.name} End", index))

    for operation in operations:
        for step in operation.steps:
            visit(step)
    return [*names, ("End", None)]
