"""Starts the threads of otel-quant."""

from __future__ import annotations

import threading
from collections.abc import Callable


def start_thread(target: Callable[[], None], name: str) -> threading.Thread | None:
    """Starts a thread that does not keep the process alive.

    Args:
        target: What it runs.
        name: Its name.

    Returns:
        The thread; None at the exit of the interpreter, where Python 3.12 and later start none.

    Raises:
        RuntimeError: The system has no more threads to give.
    """
    thread = threading.Thread(target=target, name=name, daemon=True)
    try:
        thread.start()
    except RuntimeError:
        if threading.main_thread().is_alive():
            raise
        return None
    return thread
