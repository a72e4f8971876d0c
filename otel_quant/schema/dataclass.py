"""``dataclass`` as Python has it, for what every recorded program loads. Python compiles each method, which takes four times as long.

Here only ``__init__`` is compiled, and the type checker alone holds that a class is frozen.
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
            values = attrgetter(*[each.name for each in dataclasses.fields(built) if each.compare])
            built.__eq__ = lambda self, other: (
                values(self) == values(other) if type(other) is type(self) else NotImplemented
            )
            if "__hash__" not in given:
                built.__hash__ = (lambda self: hash(values(self))) if frozen else None
        if text and "__repr__" not in given:
            built.__repr__ = _text
        return built


def _text(self: Any) -> str:
    shown = [f"{f.name}={getattr(self, f.name)!r}" for f in dataclasses.fields(self) if f.repr]
    return f"{type(self).__qualname__}({', '.join(shown)})"
