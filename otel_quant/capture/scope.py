"""``step``: makes a block or a function a step of the run."""

from __future__ import annotations

import functools
import inspect
from collections.abc import AsyncGenerator, Callable, Generator, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Final, TypeVar, cast

from otel_quant.base.fault_boundary import FAULTS
from otel_quant.capture.instruments.hooks import uncounted, wraps
from otel_quant.capture.recorder.ongoing import Entered, OpenStep
from otel_quant.capture.runtime import RUNTIME
from otel_quant.schema.dataclass import dataclass, field
from otel_quant.schema.readings import AttributeValue

F = TypeVar("F", bound=Callable[..., Any])
OPENING_A_STEP: Final = "opening a step"  # Origin of a failure, for :meth:`Faults.kept_in`

Begin = Callable[[tuple[Any, ...], Mapping[str, Any]], OpenStep | None]
"""Opens the step of one call, given its arguments; returns None if the call is not a step."""


class Activation:
    """Runs a block as an open step and closes the step."""

    __slots__ = ("_entered", "step")

    def __init__(self, step: OpenStep | None) -> None:
        self.step = step
        self._entered: Entered | None = None

    def __enter__(self) -> OpenStep | None:
        self.resume()
        return self.step

    def __exit__(self, kind: object, error: BaseException | None, traceback: object) -> None:
        self.suspend()
        self.finish(error)

    def resume(self) -> None:
        """Makes the step the current one: its code is about to run in the calling context."""
        if self.step is not None:
            self._entered = self.step.enter()

    def suspend(self) -> None:
        """Undoes :meth:`resume`: its code has stopped running in the calling context."""
        if self.step is not None and self._entered is not None:
            self.step.leave(self._entered)
            self._entered = None

    @contextmanager
    def resumed(self) -> Iterator[None]:
        """Runs a part of the step's code, such as one resumption of a generator."""
        self.resume()
        try:
            yield
        finally:
            self.suspend()

    def finish(self, error: BaseException | None = None) -> None:
        """Closes the step."""
        if self.step is not None:
            self.step.recorder.close(self.step, error if is_failure(error) else None)
            RUNTIME.note_output(self.step)
            RUNTIME.report_if_idle()


@dataclass(eq=False, repr=False)
class Scope:
    """A context manager and decorator that opens steps. Made by :func:`step`."""

    _kind: str
    _label: str | None
    _attributes: Mapping[str, AttributeValue] | None
    _activations: list[Activation] = field(default_factory=list)

    def __enter__(self) -> OpenStep | None:
        self._activations.append(Activation(self._open()))
        return self._activations[-1].__enter__()

    def __exit__(self, kind: object, error: BaseException | None, traceback: object) -> None:
        if self._activations:
            self._activations.pop().__exit__(kind, error, traceback)

    async def __aenter__(self) -> OpenStep | None:
        return self.__enter__()

    async def __aexit__(self, kind: object, error: BaseException | None, traceback: object) -> None:
        self.__exit__(kind, error, traceback)

    def __call__(self, function: F) -> F:
        """Makes every call of a function a step."""
        name = qualified_name(function)
        return as_step(function, lambda args, kwargs: self._open(name))

    def _open(self, function: str | None = None) -> OpenStep | None:
        return RUNTIME.recorder.open(
            self._kind, label=self._label, function=function, attributes=self._attributes
        )


def step(
    kind: str, label: str | None = None, *, attributes: Mapping[str, AttributeValue] | None = None
) -> Scope:
    """Makes a block or a function a step of the run.

    As a context manager (``with otel_quant.step("Model Loading"):``, also ``async
    with``) or as a decorator (``@otel_quant.step(ProfileStep.CALIBRATION)``) of a
    function, a coroutine function, a generator or an asynchronous generator. The step of a
    generator lasts from its first item to its last, and is the current step only while the
    generator's own code runs.

    Args:
        kind: A ``ProfileStep`` constant, or any name.
        label: Name of the step; the kind if None.
        attributes: Attributes for its span.

    Returns:
        The scope. As a decorator it works for any number of calls; as a context manager, for
        one block at a time.

    Raises:
        TypeError: It is used as ``@step``, without a name; or the attributes are not a mapping.
    """
    if callable(kind):
        name = getattr(kind, "__qualname__", kind)
        raise TypeError(f'step() is given {name}; expected a name: @step("Calibration")')
    if attributes is not None and not isinstance(attributes, Mapping):
        expected = "expected a mapping of names to values"
        raise TypeError(f"step() is given attributes={attributes!r}; {expected}")
    return Scope(kind, label, attributes)


def qualified_name(function: Callable[..., Any]) -> str:
    """Returns a function's name with its module, for `code.function.name`."""
    module = getattr(function, "__module__", None)
    name = getattr(function, "__qualname__", type(function).__qualname__)
    return f"{module}.{name}" if module else name


def as_step(function: F, begin: Begin) -> F:
    """Makes each call a step; the wrapper is of the same kind for ``inspect``, and can be pickled by name."""
    wrapper: Any
    if inspect.isasyncgenfunction(function):

        @wraps(function)
        async def wrapper(*args: Any, **kwargs: Any) -> AsyncGenerator[Any, Any]:
            generator = function(*args, **kwargs)
            activation = begun(begin, args, kwargs)
            resume: Callable[[], Any] = functools.partial(anext, generator)
            try:
                while True:
                    with activation.resumed():
                        item = await resume()
                    try:
                        sent = yield item
                    except GeneratorExit:
                        with activation.resumed():
                            await generator.aclose()
                        raise
                    except BaseException as thrown:  # noqa: BLE001 - passed on, not swallowed
                        resume = functools.partial(generator.athrow, thrown)
                    else:
                        resume = functools.partial(generator.asend, sent)
            except StopAsyncIteration:
                activation.finish()
            except BaseException as error:
                activation.finish(error)
                raise

    elif inspect.isgeneratorfunction(function):

        @wraps(function)
        def wrapper(*args: Any, **kwargs: Any) -> Generator[Any, Any, Any]:
            return (yield from _Driven(function(*args, **kwargs), begun(begin, args, kwargs)))

    elif inspect.iscoroutinefunction(function):

        @wraps(function)
        async def wrapper(*args: Any, **kwargs: Any) -> Any:
            with begun(begin, args, kwargs):
                return await function(*args, **kwargs)

    else:

        @wraps(function)
        def wrapper(*args: Any, **kwargs: Any) -> Any:
            with begun(begin, args, kwargs):
                return function(*args, **kwargs)

    return cast(F, wrapper)


def begun(begin: Callable[..., OpenStep | None], *given: Any) -> Activation:
    """Opens a step, if there is one to open."""
    with FAULTS.kept_in(OPENING_A_STEP):
        return Activation(begin(*given))
    return Activation(None)


class _Driven(Generator[Any, Any, Any]):
    """A generator whose step ends with it, and is the current one while its code runs."""

    def __init__(self, generator: Generator[Any, Any, Any], activation: Activation) -> None:
        self._generator, self._activation = generator, activation

    @uncounted
    def send(self, value: Any) -> Any:
        return self._resumed(self._generator.send, value)

    @uncounted
    def throw(self, *error: Any) -> Any:
        return self._resumed(self._generator.throw, *error)

    @uncounted
    def _resumed(self, resume: Callable[..., Any], *given: Any) -> Any:
        try:
            with self._activation.resumed():
                return resume(*given)
        except BaseException as error:
            self._activation.finish(None if isinstance(error, StopIteration) else error)
            raise


def is_failure(error: BaseException | None) -> bool:
    """Returns False for an early ``close`` of a generator and for ``sys.exit(0)``."""
    is_good_exit = isinstance(error, SystemExit) and error.code in (None, 0)
    return not (is_good_exit or isinstance(error, GeneratorExit | None))
