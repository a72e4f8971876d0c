"""Starts the threads of otel-quant."""

from __future__ import annotations

import threading
from collections.abc import Callable


def start_thread(target: Callable[[], None], name: str) -> threading.Thread | None:
    """Starts a thread that does not keep the process alive."""
    thread = threading.Thread(target=target, name=name, daemon=True)
    try:
        thread.start()
    except RuntimeError:
        if threading.main_thread().is_alive():
            raise
        return None
    return thread
