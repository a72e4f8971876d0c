"""``dataclass`` as Python has it, for the modules that every recorded program loads: its own takes four times as long.

Python compiles each method of each class. Here only ``__init__`` is; that a class is frozen is left to the type checker.
"""

from __future__ import annotations

import dataclasses
from dataclasses import field as field
from dataclasses import replace as replace
from operator import attrgetter
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from dataclasses import dataclass as dataclass
else:

    def dataclass(cls=None, **how):
        """Returns a class, or what makes one, with the options of Python's own."""
        if cls is None:
            return lambda it: dataclass(it, **how)
        frozen, eq, text = how.pop("frozen", False), how.pop("eq", True), how.pop("repr", True)
        built, given = dataclasses.dataclass(cls, eq=False, repr=False, **how), vars(cls)
        if eq and "__eq__" not in given:
            _compare(built, frozen)
        if text and "__repr__" not in given:
            built.__repr__ = _text
        return built


def _compare(cls: Any, is_hashable: bool) -> None:
    values = attrgetter(*[each.name for each in dataclasses.fields(cls) if each.compare])
    cls.__eq__ = lambda self, other: (
        values(self) == values(other) if other.__class__ is self.__class__ else NotImplemented
    )
    if "__hash__" not in vars(cls):
        cls.__hash__ = (lambda self: hash(values(self))) if is_hashable else None


def _text(self: Any) -> str:
    shown = [each.name for each in dataclasses.fields(self) if each.repr]
    return f"{type(self).__qualname__}({', '.join(f'{name}={getattr(self, name)!r}' for name in shown)})"
