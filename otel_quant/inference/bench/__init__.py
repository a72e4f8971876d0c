"""Variants of a model side by side, each in a process of its own.

``torch_process.py`` is the process of a variant of torch; ONNX files run in that of
``otel-quant inference``. ``entries.py`` is the parent's side of both, ``measure.py`` has them run in
turn, and ``results.py`` has what comes of it.
"""
