"""Quantized ONNX models rewritten so that they run in integers, and the proof that it pays: ``otel-quant fix``."""
