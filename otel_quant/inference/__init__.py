"""Measures ONNX models as onnxruntime runs them: latency, memory, kernels, faults, error.

Each model runs in a process of its own (``child.py``), which does what the parent asks over a pipe
(``worker.py``). ``measure.py`` asks; the other files make of the answers what ``results.py`` has.
"""
