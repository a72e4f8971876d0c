"""Tables of hooks, and how they are set on libraries as they are imported, and removed.

A table consists of names, known before the library is imported; nothing is imported to be hooked. The table is
loaded when the library's package is imported, just before that runs. A hook waits for the module that defines
its target and is set when that module has run, which is before its package imports the name from it. A library
that has been imported before (a notebook that calls ``instrument()`` late) is hooked at once, and every module
that has the old function under some name gets the new one.
"""

from __future__ import annotations

import functools
import importlib
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any, Final

import wrapt

from otel_quant.base.fault_boundary import FAULTS
from otel_quant.base.log import LOG
from otel_quant.capture.instruments import PACKAGES, found_by_others
from otel_quant.capture.instruments.shared.calls import wraps

AttributeSources = tuple[tuple[str, str], ...]
"""Pairs: a path to a value in the arguments of a call, the attribute that it is written to.

A path is ``parameter.name.name``, each name an attribute of an object or a key of a mapping.
Of several paths for one attribute the first that leads to a value counts.
"""

Function = Callable[..., Any]


@dataclass(frozen=True, slots=True)
class Hook:
    """One function of a library that is to be wrapped.

    Functions are named as ``module:function`` below this package, so that nothing of them is loaded before
    the library is. Those that are told of a call get its arguments by name, defaults included.
    """

    module: str  # Module that *defines* the function; importing that module sets the hook
    target: str  # Its name there: ``function`` or ``Class.method``
    wrapper: str  # What makes the wrapper, called with the function, the hook and the library
    step: str = ""  # ``ProfileStep`` that a call is, for wrappers that open one
    # Where attributes come from beside the arguments that ``shared/steps.py`` lists
    sources: AttributeSources = ()
    # Whether the step is one that the library's own profiler does not report
    filled_in: bool = False
    # Function that returns which ``ProfileStep`` a call is, None for none
    choose: str = ""
    # Function that returns attributes of a call, for the steps within too
    describe: str = ""
    # Function of a call and its result that returns the models that were read and written
    models: str = ""
    # Function of a call and its result, called after it
    after: str = ""
    runs: str = ""  # Parameter that is a function, which is step Calibration
    counts: str = ""  # Parameter that is a data loader, each item of which is a sample
    needs: str = ""  # Keyword without which a call is left alone
    parameters: tuple[
        str, ...
    ] = ()  # The first parameters of a function whose decorators hide them


@dataclass(frozen=True, slots=True)
class Library:
    """A quantization library."""

    name: str  # What users call it in ``OTEL_QUANT_LIBRARIES``
    distribution: str  # Its name on the package index, for ``quant.library.name``
    hooks: tuple[Hook, ...]  # What is wrapped
    # Names of its other builds on the package index, where the imported package does not say its
    # version
    other_distributions: tuple[str, ...] = ()
    versions_seen: str = ""  # Versions that real quantizations have been run with
    # Names of libraries that it is built on. Within its steps and entry points theirs are not
    # reported: they are how it does its work.
    built_on: frozenset[str] = field(default_factory=frozenset)
    # Whether its steps have steps of its own within. Else what a step calls is how the step does
    # its work.
    nests: bool = False
    # Whether many programs import it that never quantize. Nothing of ours is loaded for it until
    # a hooked function is called.
    is_common: bool = False


STEP: Final = "shared.steps:step"
ENTRY_POINT: Final = "shared.steps:entry_point"
OBSERVED: Final = "shared.steps:observed"
SAMPLES: Final = "shared.samples:samples"
LAYER: Final = "shared.samples:layer"


def library(name: str) -> Library:
    """Returns the table of a library."""
    found: Library = load("tables:LIBRARIES")[name]
    return found


def libraries() -> Iterator[Library]:
    """Yields the tables of all."""
    return map(library, PACKAGES)


_MISSING = object()


class Hooks:
    """The hooks that are set in this process."""

    def __init__(self) -> None:
        self.active = False  # Whether calls are to be reported: some wrappers outlive `remove`
        self._registered: set[tuple[str, str]] = set()
        # (holder, name, what was there, what is there now), in the order of setting.
        self._patches: list[tuple[Any, str, Any, Any]] = []
        self._libraries: dict[tuple[str, str], Library] = {}
        # By package, the name of the library whose table is loaded when it is imported.
        self._waiting: dict[str, str] = {}

    @property
    def libraries(self) -> frozenset[Library]:
        """Those whose packages have been imported."""
        return frozenset(self._libraries.values())

    def set(self, libraries: Iterable[Library], names: Iterable[str] = ()) -> None:
        """Sets the hooks of libraries, given by table or by name, now or when they are imported."""
        self.active = True
        for each in libraries:
            self._set(each)
        for name in names:
            if PACKAGES[name] in sys.modules:
                self._set(library(name))
            else:
                self._waiting[PACKAGES[name]] = name
        if self._waiting and self not in sys.meta_path:
            sys.meta_path.insert(0, self)

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """Loads the tables for a package that is about to be imported; called by Python."""
        name = self._waiting.pop(fullname, None)
        if name is None:
            return None
        with FAULTS.kept_in(f"hooks of {name}"):
            self._set(library(name))
        return found_by_others(self, fullname, path, target)

    def _set(self, library: Library) -> None:
        for hook in library.hooks:
            key = (hook.module, hook.target)
            self._libraries[key] = library
            if key in self._registered:
                # wrapt keeps its list for good: what was registered once will fire
                # when the module is imported; if it has been, that is now.
                if hook.module in sys.modules:
                    self._fire(hook, sys.modules[hook.module], late=True)
                continue
            self._registered.add(key)
            fire = functools.partial(self._fire, hook, late=hook.module in sys.modules)
            wrapt.register_post_import_hook(fire, hook.module)

    def remove(self) -> None:
        """Puts back what was there before, under every name that a module has for it."""
        self.active = False
        self._libraries.clear()
        self._waiting.clear()
        if self in sys.meta_path:
            sys.meta_path.remove(self)
        for holder, name, before, after in reversed(self._patches):
            if vars(holder).get(name, _MISSING) is after:  # else someone wrapped it since
                setattr(holder, name, before)
        functions = {
            id(after): before
            for holder, _, before, after in self._patches
            if isinstance(holder, ModuleType)
        }
        for module in _modules():
            for name, value in list(vars(module).items()):
                if id(value) in functions:
                    setattr(module, name, functions[id(value)])
        self._patches.clear()

    def _fire(self, hook: Hook, module: ModuleType, late: bool) -> None:
        owner = self._libraries.get((hook.module, hook.target))
        if not self.active or owner is None:
            return
        with FAULTS.kept_in(f"hook {hook.module}.{hook.target}"):
            *path, name = hook.target.split(".")
            holder: Any = module
            for part in path:
                holder = getattr(holder, part, None)
            # vars(), not getattr: an inherited method is wrapped where it is defined,
            # and a static method must stay one.
            before = vars(holder).get(name, _MISSING) if holder is not None else _MISSING
            if before is _MISSING:
                LOG.debug(
                    "%s has no %s in this version; that hook is left out", hook.module, hook.target
                )
                return
            if any(
                patched is holder and attribute == name and after is before
                for patched, attribute, _, after in self._patches
            ):
                return  # it is ours
            after = _wrapped(before, hook, owner)
            places = [(holder, name)]
            if late and not path:  # by other names in other modules
                places += [
                    (other, alias)
                    for other in _modules()
                    for alias, value in list(vars(other).items())
                    if value is before and other is not module
                ]
            for place, attribute in places:
                setattr(place, attribute, after)
                self._patches.append((place, attribute, before, after))


def _modules() -> list[ModuleType]:
    return [module for module in list(sys.modules.values()) if isinstance(module, ModuleType)]


def load(reference: str) -> Any:
    """Returns what a table names, importing its module."""
    module, _, name = reference.partition(":")
    return getattr(importlib.import_module(f"otel_quant.capture.instruments.{module}"), name)


def _wrapped(before: Any, hook: Hook, library: Library) -> Any:
    wrap = _wrapped_at_first_call if library.is_common else _wrapped_now
    if isinstance(before, staticmethod | classmethod):
        return type(before)(wrap(before.__func__, hook, library))
    return wrap(before, hook, library)


def _wrapped_now(before: Function, hook: Hook, library: Library) -> Function:
    wrapper: Function = load(hook.wrapper)(before, hook, library)
    if wrapper is not before:
        wrapper.__wrapped__ = before  # type: ignore[attr-defined] # as functools.wraps does
    return wrapper


def _wrapped_at_first_call(before: Function, hook: Hook, library: Library) -> Function:
    wrapped: Function | None = None

    @wraps(before)
    def wrapper(*args: Any, **kwargs: Any) -> Any:
        nonlocal wrapped
        if hook.needs and kwargs.get(hook.needs) is None:
            return before(*args, **kwargs)
        if wrapped is None:
            wrapped = before
            with FAULTS.kept_in(f"hook {hook.module}.{hook.target}"):
                wrapped = _wrapped_now(before, hook, library)
        return wrapped(*args, **kwargs)

    return wrapper


HOOKS: Final = Hooks()
"""The process's own."""
