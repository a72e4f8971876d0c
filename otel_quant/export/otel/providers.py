"""The providers that a program gave to the instrumentor; the global ones where it gave none."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final


@dataclass(frozen=True)
class Providers:
    """Providers to use instead of the global ones."""

    tracer: Any = None  # Of spans; None for the global one
    meter: Any = None  # Of metrics; None for the global one
    logger: Any = None  # Of log records; None for the global one


class ProvidersInUse:
    """The providers of this process."""

    def __init__(self) -> None:
        self.current = Providers()
        self.changed: Callable[[], None] = lambda: None

    def use(self, providers: Providers) -> None:
        """Uses these from now on. A run that is under way ends."""
        if providers != self.current:
            self.current = providers
            self.changed()


PROVIDERS: Final = ProvidersInUse()
"""Those of this process."""
