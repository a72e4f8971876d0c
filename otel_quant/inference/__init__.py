"""Inference, for ``otel-quant inference`` and ``bench``: latency, memory, kernels, findings, error.

``measure.py`` has models run in turn, in rounds (``rounds.py``), each in processes of its own
(``model_process.py``, ``child.py``); ``torch_models.py`` does the same in the process that has made them.
``results.py`` is what comes of it.
"""
