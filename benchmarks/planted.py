"""The form of planted programs: what each is, and which answers about it are right."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final, NamedTuple

from otel_quant import step

Body = Callable[[], Any]


class Planted(NamedTuple):
    """A program of which it is known what bounds it."""

    accepted: tuple[str, ...]  # The verdicts that are right, the best first
    near: str  # Another verdict, for which it could be taken; empty if there is none
    body: Body
    remedy: str = ""  # What has to be in the remedy; if empty, none may be printed
    opens: bool = False  # Whether it opens its steps itself
    is_idle: bool = False  # Whether it uses next to no processor for long: others may run beside it
    group: Mapping[str, float] = {}  # Limits of its control group: processors, bytes of memory
    beside: str = ""  # What runs beside it meanwhile
    needs: str = ""  # Modules that are imported before its step

    @property
    def lines(self) -> set[str]:
        """Returns the lines one of which is to be named, as FILE:NUMBER."""
        return marked_in(self.body)

    @property
    def file(self) -> Path:
        """The file of the program."""
        return Path(inspect.getfile(self.body))


def marked_in(body: Body) -> set[str]:
    """Returns the lines that end with the comment "here", and those in functions that they call."""
    source, first = inspect.getsourcelines(body)
    file = Path(inspect.getfile(body)).name
    found: set[str] = set()
    for number, line in enumerate(source, first):
        if line.rstrip().endswith("# here"):
            called = (body.__globals__.get(name) for name in re.findall(r"(\w+)\(", line))
            found |= {f"{file}:{number}"}.union(
                *(marked_in(each) for each in called if inspect.isfunction(each))
            )
    return found


PLANTED: Final[dict[str, Planted]] = {}


def planted(*accepted: str, near: str = "", **more: Any) -> Callable[[Body], Body]:
    """Adds a program."""

    def add(body: Body) -> Body:
        PLANTED[body.__name__] = Planted(accepted, near, body, **more)
        return body

    return add


def run_one(name: str) -> None:
    """Runs a program, in a step if it opens none itself."""
    program = PLANTED[name]
    for module in program.needs.split():
        __import__(module)
    if program.opens:
        program.body()
    else:
        with step(name):
            program.body()
