"""Tables of hooks, and how they are set on libraries as they are imported, and removed.

A table consists of names, known before the library is imported; nothing is imported to be hooked. The table is
loaded when the library's package is imported, just before that runs. A hook waits for the module that defines
its target and is set when that module has run, which is before its package imports the name from it. A library
that has been imported before (a notebook that calls ``instrument()`` late) is hooked at once, and every module
that has the old function under some name gets the new one.

Loaded in every instrumented program that starts processes: it imports little.
"""

from __future__ import annotations

import functools
import importlib
import inspect
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import FunctionType, ModuleType
from typing import Any, Final, Literal, TypeVar, cast

import wrapt

from otel_quant.base.fault_boundary import FAULTS
from otel_quant.base.log import LOG
from otel_quant.capture.instruments import HELD, PACKAGES, WithoutImportLock, found_by_others
from otel_quant.schema.dataclass import dataclass, field

AttributeSources = tuple[tuple[str, str], ...]
"""Pairs: a path to a value in the arguments of a call, the attribute that it is written to.

A path is ``parameter.name.name``, each name an attribute of an object or a key of a mapping.
Of several paths for one attribute the first that leads to a value counts.
"""

Function = Callable[..., Any]


@dataclass(frozen=True, slots=True)
class Hook:
    """One function of a library that is to be wrapped, and ``module:function`` names below this package."""

    module: str  # Module that *defines* the function; importing that module sets the hook
    target: str  # Its name there: ``function`` or ``Class.method``
    wrapper: str  # What makes the wrapper, called with the function, the hook and the library
    step: str = ""  # ``ProfileStep`` that a call is, for wrappers that open one
    # Where attributes come from beside the arguments with the usual names
    sources: AttributeSources = ()
    filled_in: bool = False  # Whether the library's own profiler does not report the step
    choose: str = ""  # Function that returns which ``ProfileStep`` a call is, None for none
    describe: str = ""  # Function that returns attributes of a call, for the steps within too
    # Where in the arguments the configuration is: paths, or ``*`` for all that is neither a model nor data
    config: tuple[str, ...] = ()
    # Function of a call and its result that returns the models that were read and written
    models: str = ""
    # Function of a call and the library, called before it, in its step; what that returns is called at its end
    before: str = ""
    # Function of a call and its result, called after it; it may yield what the library has computed of layers
    after: str = ""
    runs: str = ""  # Parameter that is a function, which is step Calibration
    # Parameter that is a data loader, each item of which is a sample; RETURNED if the function returns it; of a
    # progress bar what an item is: ``layer`` or ``sample``
    counts: str = ""
    leaves: str = ""  # Parameter with the names of nodes that stay in float
    needs: str = ""  # Keyword without which a call is left alone
    parameters: tuple[str, ...] = ()  # The first of a function whose decorators hide them


@dataclass(frozen=True, slots=True)
class Library:
    """A quantization library."""

    name: str  # What users call it in ``OTEL_QUANT_LIBRARIES``
    distribution: str  # Its name on the package index, for ``quant.library.name``
    hooks: tuple[Hook, ...]  # What is wrapped
    # Names of libraries that it is built on. Within its steps and entry points theirs are not
    # reported: they are how it does its work.
    built_on: frozenset[str] = field(default_factory=frozenset)
    # Whether its steps have steps of its own within. Else what a step calls is how the step does
    # its work.
    nests: bool = False
    # Whether many programs import it that never quantize. Nothing of ours is loaded for it until
    # a hooked function is called.
    is_common: bool = False


STEP: Final = "steps:step"
ENTRY_POINT: Final = "steps:entry_point"
OBSERVED: Final = "steps:observed"
LAYER: Final = "samples:layer"
LAYERS: Final = "series:layers"
OBSERVERS: Final = "observers:of_layers"
OF_CALIBRATOR: Final = "observers:of_calibrator"
BAR: Final = "samples:bar"
RETURNED: Final = "return"
WATCH: Final = "forward_passes:watch"
COUNT_PASSES: Final = "forward_passes:count_passes"
END_CALIBRATION: Final = "forward_passes:end_calibration"
NOTE_WEIGHTS: Final = "onnx_weights:note_weights"
NOTE_MODULES: Final = "libraries:note_modules"
NOTE_FAKE: Final = "libraries:note_fake"
# What a model has is known when its step ends
NOTES: Final = (NOTE_WEIGHTS, NOTE_MODULES, NOTE_FAKE)
ALL: Final = ("*",)  # Every argument of a call is its configuration, but for models, data and files


def library(name: str) -> Library:
    """Returns the table of a library."""
    found: Library = load("tables:LIBRARIES")[name]
    return found


# --- wrapped calls -------------------------------------------------------------------------

F = TypeVar("F", bound=Callable[..., Any])

# A library that warns with ``stacklevel=2`` means its caller: with a frame of ours in between, Python would apply its
# filters to a module of ours, and hide what it shows to ``__main__`` alone. :mod:`warnings` and :mod:`logging` leave
# out frames of Python's import system, which they know by two words in the name of the file. So the code of a
# wrapper names its file by way of a folder with that name, and a traceback still has a file that can be opened.
_CAPTURE: Final = str(Path(__file__).parents[1])
_BOOTSTRAP: Final = Path(_CAPTURE).parent / "program" / "importlib_bootstrap"
_BY_WAY: Final = str(_BOOTSTRAP / ".." / ".." / "capture")


def uncounted(function: F) -> F:
    """Has ``stacklevel`` skip the frames of a function."""
    changed = cast(FunctionType, function)
    code = changed.__code__
    if not code.co_filename.startswith(_BY_WAY):
        changed.__code__ = code.replace(co_filename=code.co_filename.replace(_CAPTURE, _BY_WAY))
    return function


def wraps(function: Callable[..., Any]) -> Callable[[F], F]:
    """Does what :func:`functools.wraps` does, and has ``stacklevel`` skip the wrapper."""

    def decorate(wrapper: F) -> F:
        functools.update_wrapper(uncounted(wrapper), function)
        return wrapper

    return decorate


_POSITIONAL: Final = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
Call = tuple[tuple[Any, ...], Mapping[str, Any]]  # Positional and keyword arguments of one call


class Arguments:
    """Reads the arguments of calls of one function; `parameters` are the first of one whose decorators hide them."""

    def __init__(self, function: Callable[..., Any], parameters: Sequence[str] = ()) -> None:
        self._signature: inspect.Signature | None
        try:
            self._signature = _first(parameters) if parameters else inspect.signature(function)
        except (TypeError, ValueError):
            self._signature = None  # written in C, without a signature
        declared = self._signature.parameters if self._signature else {}
        self._defaults = {name: parameter.default for name, parameter in declared.items()}
        self._positional = [each.name for each in declared.values() if each.kind in _POSITIONAL]

    def bound(
        self, args: tuple[Any, ...], kwargs: Mapping[str, Any], *, is_whole: bool = True
    ) -> dict[str, Any]:
        """Returns the arguments of a call by name, defaults included; of a partial function's if not whole."""
        if self._signature is None:
            return {}
        try:
            bind = self._signature.bind if is_whole else self._signature.bind_partial
            call = bind(*args, **kwargs)
        except TypeError:
            return {}
        call.apply_defaults()
        return dict(call.arguments)

    def replaced(
        self, args: tuple[Any, ...], kwargs: Mapping[str, Any], parameter: str,
        change: Callable[[Any], Any],
    ) -> Call:  # fmt: skip
        """Returns the arguments of a call with one of them changed."""
        if parameter in self._positional[: len(args)]:
            position = self._positional.index(parameter)
            return (*args[:position], change(args[position]), *args[position + 1 :]), kwargs
        passed = kwargs.get(parameter, self._defaults.get(parameter, inspect.Parameter.empty))
        changed = passed if passed is inspect.Parameter.empty else change(passed)
        return args, (kwargs if changed is passed else {**kwargs, parameter: changed})

    def replacing(
        self, function: Callable[..., Any], parameter: str, change: Callable[[Any], Any]
    ) -> Callable[..., Any]:
        """Returns the function, called with one argument changed."""
        if parameter not in self._defaults:
            return function
        origin = f"argument {parameter} of {getattr(function, '__qualname__', function)}"

        @wraps(function)
        def wrapper(*args: Any, **kwargs: Any) -> Any:
            call: Call = (args, kwargs)
            with FAULTS.kept_in(origin):
                call = self.replaced(args, kwargs, parameter, change)
            return function(*call[0], **call[1])

        return wrapper


def value_at(arguments: Mapping[str, Any], path: str) -> Any:
    """Returns what a path of :data:`AttributeSources` leads to, None if to nothing."""
    parameter, *names = path.split(".")
    value = arguments.get(parameter)
    for name in names:
        if isinstance(value, Mapping):
            value = value.get(name)
        elif value is not None:
            value = getattr(value, name, None)
    return value


def _first(parameters: Sequence[str]) -> inspect.Signature:
    kind = inspect.Parameter
    first = [kind(name, kind.POSITIONAL_OR_KEYWORD, default=None) for name in parameters]
    more = (kind("args", kind.VAR_POSITIONAL), kind("kwargs", kind.VAR_KEYWORD))
    return inspect.Signature([*first, *more])


Models = list[tuple[Literal["float", "quantized"], Any]]
"""Role and model (a path or an ``onnx.ModelProto``) of each model of an operation."""

# --- setting and removing ------------------------------------------------------------------

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
            packages = PACKAGES[name].split()
            if not sys.modules.keys().isdisjoint(packages):
                self._set(library(name))
            else:
                self._waiting |= dict.fromkeys(packages, name)
        if self._waiting and self not in sys.meta_path:
            sys.meta_path.insert(0, self)

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """Loads the tables for a package that is about to be imported; called by Python."""
        name = self._waiting.pop(fullname, None)
        if name is None:
            return None
        with WithoutImportLock(), FAULTS.kept_in(f"hooks of {name}"):
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
        for kept in (self._libraries, self._waiting, HELD):
            kept.clear()
        if self in sys.meta_path:
            sys.meta_path.remove(self)
        for holder, name, before, after in reversed(self._patches):
            if vars(holder).get(name, _MISSING) is after:  # else someone wrapped it since
                setattr(holder, name, before)
        of_modules = (each for each in self._patches if isinstance(each[0], ModuleType))
        functions = {id(after): before for _, _, before, after in of_modules}
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
            before = getattr(holder, "__dict__", {}).get(name, _MISSING)
            if before is _MISSING:
                what = "%s has no %s in this version; that hook is left out"
                LOG.debug(what, hook.module, hook.target)
                return
            if any(after is before for *_, after in self._patches):
                return  # it is ours
            # A decorator's code is that of other functions too.
            code = getattr(before, "__code__", None)
            if late and hook.step and code is not None and code.co_qualname == hook.target:
                HELD[code] = f"{hook.module}.{hook.target}"
            after = _wrapped(before, hook, owner)
            places = [(holder, name)]
            # By other names in other modules; a class is a progress bar, which others use too.
            if late and not path and not isinstance(before, type):
                places += [
                    (other, alias)
                    for other in _modules()
                    for alias, value in list(vars(other).items())
                    if value is before and (other is not module or alias != name)
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


HOOKS: Final = Hooks()  # The process's own
