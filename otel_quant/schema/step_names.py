"""The names of the steps of a quantization run.

The 26 names are those of AMD Quark's ``ProfileStep``, so that the profiles of both tools use the
same names.
"""

from __future__ import annotations

from typing import Final


class ProfileStep:
    """Names of steps.

    Every constant is a plain string, so a step of your own needs no subclass: use
    ``USER_DEFINED`` with a message, or pass any other string.
    """

    # Start and end of a run, and general steps.
    START: Final = "Start"
    END: Final = "End"
    USER_DEFINED: Final = "User-Defined"
    MODEL_LOADED: Final = "Model Loaded"

    # PyTorch.
    FILE_TO_FILE_QUANTIZATION: Final = "File-to-File Quantization"
    MODEL_LOADING: Final = "Model Loading"
    DATASET_LOADING: Final = "Dataset Loading"
    MODEL_QUANTIZATION: Final = "Model Quantization"
    MODEL_EVALUATION: Final = "Model Evaluation"
    ADVANCED_ALGORITHMS: Final = "Advanced Algorithms"
    CALIBRATION_WEIGHTS: Final = "Calibration (Weights)"
    CALIBRATION_FORWARD: Final = "Calibration (Forward)"
    FREEZE_MODEL: Final = "Freeze Model"
    MODEL_PREPARATION: Final = "Model Preparation"

    # Exports.
    EXPORT_HF_SAFETENSORS: Final = "Export HF Safetensors"
    EXPORT_ONNX: Final = "Export ONNX"
    EXPORT_GGUF: Final = "Export GGUF"

    # ONNX.
    PRE_PROCESS: Final = "Pre-process"
    CALIBRATION: Final = "Calibration"
    QUANTIZATION_MATMUL_NBITS: Final = "Quantization (MatMulNBits)"
    QUANTIZATION_STATIC: Final = "Quantization (Static)"
    QUANTIZATION_DYNAMIC: Final = "Quantization (Dynamic)"
    POST_PROCESS: Final = "Post-process"
    FAST_FINETUNE: Final = "Fast Finetune"
    MODEL_CACHING: Final = "Model Caching"
    FLOAT_MODEL_VALIDATION: Final = "Float Model Validation"


ALL_STEPS: Final[frozenset[str]] = frozenset(
    value for name, value in vars(ProfileStep).items() if name.isupper() and isinstance(value, str)
)
"""Every name above; any other name is the user's own."""
