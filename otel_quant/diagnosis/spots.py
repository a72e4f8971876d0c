"""Where a step was, for people: the innermost line of the program's own code, and what that had called."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Sequence
from operator import attrgetter
from typing import Final, NamedTuple, TypeAlias

from otel_quant.schema.code_lines import RECORDER, Amounts, Place, Spot, total_of

Lines: TypeAlias = Sequence[Place]
"""A stack, outermost line first."""

Stack: TypeAlias = tuple[Lines, Amounts]

_IMPORT, _IMPORTLIB = "<frozen importlib._bootstrap>", "importlib/__init__.py"

_LOADS: Final = frozenset({
    "load_model", "load_checkpoint", "load_state_dict", "from_pretrained", "_create_inference_session",
})  # fmt: skip
"""Functions that load a model, of libraries and as programs call their own."""

EVENTS: Final = "an event of its loop"
"""Of asyncio, whose tasks go on while the loop's thread mostly waits."""

NETWORK: Final = "the network"
CHILD: Final = "a child process"
PIPE: Final = "a pipe"
SLEEP: Final = "time"
DISK: Final = "the disk"
FUTEX: Final = "another thread"
LOCK: Final = "a lock"
PROCESS: Final = "another process"
FOR_THREADS: Final = (LOCK, "a signal of another thread", "a queue", "a result of another thread")

_WAITS: Final = (
    (("asyncio/",), EVENTS),
    (("subprocess.py", "multiprocessing/popen_"), CHILD),
    (("queue.py",), "a queue"),
    (("multiprocessing/queues.py", "multiprocessing/connection.py"), PROCESS),
    (("socket.py", "ssl.py", "selectors.py"), NETWORK),
    (("concurrent/futures/",), "a result of another thread"),
    (("threading.py",), "a signal of another thread"),
)
"""What a thread waits for that is blocked below a line of these files of Python's own; the outermost counts."""


_KERNEL: Final = (
    (("do_wait",), CHILD),
    (("hrtimer_nanosleep", "do_nanosleep"), SLEEP),
    (("pipe_read", "anon_pipe_read", "unix_stream"), PIPE),
    (("futex_",), FUTEX),
    (("wait_woken", "sk_wait_data", "inet_", "tcp_", "do_sys_poll", "do_select", "poll_", "ep_poll"), NETWORK),
    (("folio_wait", "wait_on_", "submit_bio", "__sync_dirty", "jbd2_", "fsync_", "io_schedule", "bit_wait"), DISK),
)  # fmt: skip
"""The same below a function of Linux in which it is, for C code that Python calls."""


def kernel_waits_for(function: str) -> str:
    """Returns what a thread waits for in a function of Linux; empty if nobody can tell."""
    return next((what for names, what in _KERNEL if function.startswith(names)), "")


def spot_of(lines: Lines) -> Spot:
    """Returns where a stack is."""
    below = len(lines)
    while below and not lines[below - 1].is_own:
        below -= 1
    python = [line.file for line in lines[below:] if line.library == "python"]
    waits = (what for file in python for files, what in _WAITS if file.startswith(files))
    return Spot(lines[below - 1] if below else None, lines[-1], next(waits, ""))


def own_within(lines: Lines, function: str) -> Place | None:
    """Returns the program's innermost line within a step; None if only what called it is the program's.

    `function` is the library's function that is the step; empty for a step of the program's own.
    """
    if function:
        names = (line.file.removesuffix(".py").replace("/", ".") for line in lines)
        within = (at for at, name in enumerate(names) if function.startswith(f"{name}."))
        lines = lines[next(within, len(lines)) :]
    return next((line for line in reversed(lines) if line.is_own), None)


def line_within(lines: Lines, function: str) -> Place:
    """Returns the program's innermost line within a step, or else the innermost of all."""
    return own_within(lines, function) or lines[-1]


TIME: Final = attrgetter("time")
GROWN: Final = attrgetter("grown")


def top_spot(
    stacks: Iterable[Stack],
    measure: Callable[[Amounts], int],
    line_of: Callable[[Lines], Place | None],
    *,
    names_leaf: bool = True,
) -> tuple[Spot, Amounts] | None:
    """Returns where most is of what stacks with a line have, and how much was seen at that line; of a library at all lines of its function.

    What a line of the program has called is named too, unless that says nothing.
    """
    by_line: dict[Place, list[Stack]] = {}
    for lines, seen in stacks:
        if (line := line_of(lines)) is not None:
            at = line if line.is_own else line._replace(line=0)
            by_line.setdefault(at, []).append((lines, seen))
    if len(by_line) > 1:
        by_line.pop(RECORDER, None)  # nobody can change them
    if not by_line:
        return None
    most = max(by_line, key=lambda line: sum(measure(seen) for _, seen in by_line[line]))
    whole = total_of(seen for _, seen in by_line[most])
    if not (most.is_own and names_leaf):
        lines = by_line[most][0][0]
        same = {line_of(lines) for lines, _ in by_line[most]}
        line = line_of(lines) if len(same) == 1 else most
        above = [at for at, each in enumerate(lines) if each[:2] == most[:2]]
        return spot_of(lines[: above[-1] + 1])._replace(leaf=line or most), whole
    by_leaf: dict[str, int] = {}
    for lines, seen in by_line[most]:
        leaf = lines[-1].function
        by_leaf[leaf] = by_leaf.get(leaf, 0) + measure(seen)
    leaf = max(by_leaf, key=by_leaf.__getitem__)
    lines = next(lines for lines, _ in by_line[most] if lines[-1].function == leaf)
    is_all = by_leaf[leaf] >= _ALL * measure(whole)
    return spot_of(lines)._replace(is_all=is_all), whole


_ALL: Final = 0.9


def importing(lines: Lines) -> Place | None:
    """Returns the line that imports a module, by a statement or a call of ``importlib``."""
    above = itertools.takewhile(lambda line: line.file != _IMPORT, lines)
    before = [line for line in above if line.file != _IMPORTLIB]
    return before[-1] if before and _IMPORT in (line.file for line in lines) else None


def is_loading(lines: Lines) -> bool:
    """Whether a model is loaded."""
    names = {line.function.rpartition(".")[2] for line in lines if line.library != "python"}
    return bool(names & _LOADS)


class Grown(NamedTuple):
    """What has taken the memory by which a step grew."""

    bytes: int  # What was seen of it
    spot: Spot  # Where most of it was
    share: float  # Its share of the growth
    own: float  # Share at the program's own lines within the step
    loaded: float  # Share while modules or a model were loaded
    is_own: bool  # The program's own code has taken it

    @property
    def is_loaded(self) -> bool:
        """Whether most of it are modules or a model."""
        return self.loaded >= _MOST

    @property
    def is_librarys(self) -> bool:
        """Whether the library has taken most, other than by what it loaded."""
        return not self.is_own and 1 - self.own - self.loaded > _MOST


_MOST: Final = 0.5

_CLEAR: Final = 0.7  # Share of a function's growth that its line has: else another one may have been seen for it

_IN_TURNS: Final = 1.3
"""How often its part of the time a function's part of the growth may be for it to grow by its time, as others beside it
do: they take turns between two samples, and what calls all of them is named."""

_MAINLY: Final = 0.8  # Share of the time from which on a function has no others beside it

_KEEPS_NOTHING: Final = "MinMax"
"""A calibration method that keeps two values of an activation: what grows with the samples is the program's."""

_SEEN: Final = 0.2
"""Share of the growth that is seen at the program's lines at least if it is all theirs: samples are late."""


def grown_in(stacks: Sequence[Stack], function: str, method: str = "") -> Grown | None:
    """Returns what has taken memory in a step, by a calibration method if any; None if it was not seen to grow."""
    whole = total_of(seen for _, seen in stacks).grown
    if not whole:
        return None
    own, others, loaded = list[Stack](), list[Stack](), 0
    for lines, seen in stacks:
        is_own = own_within(lines, function) is not None
        loads = bool(importing(lines)) or (is_loading(lines) and not (function and is_own))
        if loads:
            loaded += seen.grown
        if is_own and not loads:
            own.append((lines, seen))
        else:
            others.append((lines, seen))
    share = total_of(seen for _, seen in own).grown / whole
    is_own = share >= (_SEEN if method.endswith(_KEEPS_NOTHING) else _MOST)
    top = top_spot(own if is_own else others, GROWN, lambda lines: line_within(lines, function))
    assert top is not None
    spot, grown = top[0], top[1].grown
    if is_own and spot.own is not None:
        place = spot.own._replace(line=0)
        of_function = [seen for lines, seen in own if line_within(lines, function)[:2] == place[:2]]
        within, every = total_of(of_function), total_of(seen for _, seen in own)
        in_turns = within.grown * every.time < _IN_TURNS * every.grown * within.time
        outer = _common(own, function) if within.time < _MAINLY * every.time and in_turns else None
        if outer is not None:
            spot, grown = Spot(outer, outer), every.grown
        elif grown < _CLEAR * within.grown:
            spot, grown = Spot(place, place), within.grown
    return Grown(whole, spot, grown / whole, share, loaded / whole, is_own)


def _common(stacks: Sequence[Stack], function: str) -> Place | None:
    """Returns the program's innermost function within a step that all stacks have, with its line if that is the same."""
    at = zip(*(lines for lines, _ in stacks), strict=False)
    same = itertools.takewhile(lambda each: len({line[:2] for line in each}) == 1, at)
    found = own_within([each[0] for each in same], function)
    is_line = all(found in lines for lines, _ in stacks)
    return found if found is None or is_line else found._replace(line=0)
