"""Reads a model's structure: everything in an ONNX file but its weights."""
