"""OpenTelemetry instrumentation for model quantization."""
