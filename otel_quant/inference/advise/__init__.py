"""Which layers of a quantized ONNX model to leave in float, and what that gives: ``otel-quant advise``."""
