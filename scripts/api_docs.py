"""Makes docs/api.md from the docstrings of what the package offers to programs."""

from __future__ import annotations

import importlib
import inspect
import re
import textwrap
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final

PAGE = Path(__file__).resolve().parent.parent / "docs" / "api.md"

MODULES: Final = ("otel_quant", "otel_quant.quark", "otel_quant.cost")
"""The modules whose `__all__` is the public API."""

_INTRO = """\
# Python API

<!-- Made by scripts/docs.py from the docstrings. Edit those. -->

Everything that a program may import. What may still change before 1.0 is in
[stability.md](stability.md); the command line is in the output of `otel-quant --help`.
"""

_STARS: Final[dict[object, str]] = {
    inspect.Parameter.VAR_POSITIONAL: "*",
    inspect.Parameter.VAR_KEYWORD: "**",
}
_SECTION = re.compile(r"(Args|Attributes|Returns|Yields|Raises):\Z")
_ENTRY = re.compile(r"(\w[\w.]*): (.*)")
_ROLE = re.compile(r":\w+:`([^`]+)`")
_LITERAL = re.compile(r"``([^`]+)``")


def document() -> str:
    """Returns the page."""
    return "\n".join([_INTRO, *_modules()])


def _modules() -> Iterator[str]:
    described: dict[int, str] = {}
    for module_name in MODULES:
        module = importlib.import_module(module_name)
        yield f"## `{module_name}`\n"
        yield prose(_documentation(module))
        for name in module.__all__:
            value = getattr(module, name)
            if name.startswith("__"):
                continue
            yield f"### `{name}`\n"
            first = described.setdefault(id(value), f"{module_name}.{name}")
            if first == f"{module_name}.{name}":
                yield from _described(name, value)
            else:
                yield f"The same as `{first}`.\n"


def _described(name: str, value: Any) -> Iterator[str]:
    """Yields the text on a function or a class, without its heading."""
    if not inspect.isclass(value):
        yield _code(_signature(name, value))
        yield prose(_documentation(value))
        return
    if _has_own_arguments(value):
        yield _code(_signature(name, value))
    yield prose(_documentation(value))
    if isinstance(vars(value).get("name"), str):
        yield f"Key in the file: `{vars(value)['name']}`.\n"
    constants = [(key, text) for key, text in vars(value).items() if key.isupper()]
    if constants:
        rows = "".join(f"| `{key}` | {text} |\n" for key, text in constants)
        yield f"| constant | value |\n|---|---|\n{rows}"
    for key, member in vars(value).items():
        if not key.startswith("_"):
            yield from _member(f"{name}.{key}", member)


def _member(name: str, member: Any) -> Iterator[str]:
    """Yields the text on a method or a property that has a docstring of its own."""
    if isinstance(member, property) and member.__doc__:
        yield f"#### `{name}`\n"
        getter = member.fget
        assert getter is not None
        yield _code(f"{name}: {_type(inspect.signature(getter).return_annotation)}")
        yield prose(_documentation(member))
    function = member.__func__ if isinstance(member, staticmethod | classmethod) else member
    if inspect.isfunction(function) and function.__doc__:
        yield f"#### `{name}()`\n"
        yield _code(_signature(name, function, bound=not isinstance(member, staticmethod)))
        yield prose(_documentation(function))


def _documentation(value: object) -> str:
    text = inspect.getdoc(value)
    assert text, f"{value!r} is public and has no docstring"
    return text


def _code(text: str) -> str:
    return f"```python\n{text}\n```\n"


def _has_own_arguments(kind: type) -> bool:
    return "__init__" in vars(kind) and bool(inspect.signature(kind).parameters)


def _signature(name: str, function: Callable[..., Any], *, bound: bool = False) -> str:
    """Returns a call as the source has it, on several lines where one is too long."""
    signature = inspect.signature(function)
    parts: list[str] = []
    previous: Any = None
    for parameter in list(signature.parameters.values())[bound:]:
        if parameter.kind is parameter.KEYWORD_ONLY and previous not in (
            parameter.KEYWORD_ONLY,
            parameter.VAR_POSITIONAL,
        ):
            parts.append("*")
        parts.append(_parameter(parameter))
        previous = parameter.kind
    arrow = ""
    if not inspect.isclass(function) and signature.return_annotation is not signature.empty:
        arrow = f" -> {_type(signature.return_annotation)}"
        if hasattr(function, "__wrapped__"):  # the only decorator in use is `contextmanager`
            arrow = arrow.replace("Iterator[", "AbstractContextManager[")
    line = f"{name}({', '.join(parts)}){arrow}"
    if len(line) <= 88:
        return line
    return "\n".join([f"{name}(", *(f"    {part}," for part in parts), f"){arrow}"])


def _parameter(parameter: inspect.Parameter) -> str:
    stars = _STARS.get(parameter.kind, "")
    text = f"{stars}{parameter.name}"
    if parameter.annotation is not parameter.empty:
        text += f": {_type(parameter.annotation)}"
    if parameter.default is not parameter.empty:
        # Of a value made anew for each object `inspect` shows a placeholder.
        default = repr(parameter.default)
        text += f" = {'...' if default.startswith('<') else default}"
    return text


def _type(annotation: Any) -> str:
    return annotation if isinstance(annotation, str) else inspect.formatannotation(annotation)


def prose(docstring: str) -> str:
    """Returns a Google docstring as Markdown."""
    parts: list[str] = []
    for block in re.split(r"\n\s*\n(?=\S)", docstring):
        head, _, body = block.partition("\n")
        section = _SECTION.match(head)
        if section:
            parts.append(_section(section[1], inspect.cleandoc(body)))
        else:
            parts.append(_paragraph(block))
    return "\n\n".join(parts) + "\n"


def _paragraph(block: str) -> str:
    """Returns a paragraph, with the indented code that follows it in a fence."""
    text, indented, code = block.partition("\n\n    ")
    if not indented:
        return _inline(block)
    return f"{_inline(text).replace('::', ':')}\n\n{_code(textwrap.dedent('    ' + code)).rstrip()}"


def _section(title: str, body: str) -> str:
    label = {"Args": "Arguments"}.get(title, title)
    if title in ("Returns", "Yields"):
        return f"**{label}:** {_inline(_joined(body))}"
    items: list[str] = []
    for line in body.splitlines():
        entry = _ENTRY.match(line)
        if entry:
            items.append(f"- `{entry[1]}`: {entry[2]}")
        else:
            items[-1] += f" {line.strip()}"
    return f"**{label}:**\n\n" + "\n".join(map(_inline, items))


def _joined(text: str) -> str:
    return " ".join(line.strip() for line in text.splitlines())


def _inline(text: str) -> str:
    return _LITERAL.sub(r"`\1`", _ROLE.sub(r"`\1`", text))
