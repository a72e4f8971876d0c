"""``otel-quant compare``: runs side by side, and the gate that decides whether one is worse."""

from __future__ import annotations

import argparse
import os
import sys
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final

from otel_quant.cli import command as cmd
from otel_quant.schema.units import counted
from otel_quant.views.text import printable, terminal_width

if TYPE_CHECKING:
    from collections.abc import Sequence

    from otel_quant.recordings.gate import GateLimit, GateVerdict
    from otel_quant.recordings.side_by_side import Comparison, Side

_NOT_COMPARABLE: Final = 3
_SUMMARY: Final = "GITHUB_STEP_SUMMARY"


def _run(options: argparse.Namespace) -> int:
    from otel_quant.recordings.gate import judge
    from otel_quant.recordings.side_by_side import side_by_side
    from otel_quant.views.gate import verdict_text

    names = _names(options)
    limits = _limits(options)
    if options.junit and not limits:
        what = "--junit: there is no limit to report on; --fail-over gives one"
        raise cmd.UserError(what, cmd.MISUSED)
    comparison = side_by_side(_sides(names))
    verdict = judge(comparison, limits, force=options.force) if limits else None
    _write_all(options, comparison, verdict)
    if verdict is None:
        return 0
    if verdict.exit_code:
        print(f"otel-quant: {printable(verdict_text(comparison, verdict))}", file=sys.stderr)
    return verdict.exit_code


def _names(options: argparse.Namespace) -> list[list[str]]:
    """Returns the paths of each side, the base first."""
    if options.base or options.new:
        if options.runs or not (options.base and options.new):
            raise cmd.UserError(
                "--base and --new belong together, without other runs; expected --base RUN... --new RUN...",
                cmd.MISUSED,
            )
        return [options.base, options.new]
    if len(options.runs) < 2:
        raise cmd.UserError(
            f"{counted(len(options.runs), 'run')} given; expected the base and one or more to compare with it",
            cmd.MISUSED,
        )
    return [[name] for name in options.runs]


def _limits(options: argparse.Namespace) -> list[GateLimit]:
    from otel_quant.recordings.gate import LimitError, find, load, parse

    path = Path(options.config) if options.config else find(Path())
    with cmd.user_errors(LimitError, expected="expected a file of limits"):
        limits = [] if path is None else load(path)
        return [*limits, *map(parse, options.fail_over)]


def _sides(names: Sequence[Sequence[str]]) -> list[Side]:
    from otel_quant.recordings.compared_runs import compared_runs
    from otel_quant.recordings.side_by_side import Side

    read = partial(cmd.read_recording, prefix="not comparable: ", exit_code=_NOT_COMPARABLE)
    found = compared_runs(names, read)
    new = [f"new {number}" if len(names) > 2 else "new" for number in range(1, len(names))]
    sides = zip(("base", *new), found, _titles(names), strict=True)
    return [Side(name, tuple(runs), title) for name, runs, title in sides]


def _titles(names: Sequence[Sequence[str]]) -> list[str]:
    """Returns the ends of the runs' paths that tell them apart; empty ones where a side has several runs."""
    none = [""] * len(names)
    if any(len(side) > 1 for side in names):
        return none
    paths = [Path(name).absolute().parts for (name,) in names]
    deepest = max(map(len, paths))
    ends = ([str(Path(*path[-most:])) for path in paths] for most in range(1, deepest + 1))
    return next((each for each in ends if len({*each}) == len(each)), none)


def _write_all(
    options: argparse.Namespace, comparison: Comparison, verdict: GateVerdict | None
) -> None:
    from otel_quant.views.compare import document
    from otel_quant.views.gate import as_action_benchmark, as_bencher, as_junit
    from otel_quant.views.writers import written

    shown = document(comparison, verdict, with_curves=options.format == "html")
    width = terminal_width(sys.stdout) if options.output is None else None
    text = "".join(written(shown, options.format, width))
    if options.output is None:
        sys.stdout.write(text)
    else:
        _write(options.output, text)
    if options.junit and verdict is not None:
        _write(options.junit, as_junit(comparison, verdict))
    if options.action_benchmark:
        _write(options.action_benchmark, as_action_benchmark(comparison))
    if options.bencher:
        _write(options.bencher, as_bencher(comparison))
    if summary := os.environ.get(_SUMMARY):
        markdown = written(document(comparison, verdict), "markdown")
        _write(summary, "".join(markdown), mode="a")


def _write(name: str, text: str, mode: str = "w") -> None:
    with (
        cmd.user_errors(ValueError, path=name, expected="expected a file that can be written"),
        Path(name).open(mode, encoding="utf-8", errors="backslashreplace") as file,
    ):
        file.write(text)


COMMAND: Final = cmd.Command(
    brief="compare runs step by step, and fail where one is worse",
    description="Compares recordings and profiles step by step: time, memory, GPU memory, disk, caches, CPU, samples per second and the cost of the models, and what differs between the runs. With limits it is a gate. Exits with 0 within the limits, 1 if a run is worse or has failed, 2 for an invalid command line or file of limits, 3 if the runs cannot be compared.",
    examples=("runs/first runs/second", "runs/first runs/second --fail-over memory.peak=10%"),
    arguments=(
        cmd.option("runs", nargs="*", metavar="RUN", help="the base, and one or more that are compared with it: a recording or a quark_profile.yaml each"),
        cmd.option("--base", nargs="+", metavar="RUN", help="several runs of the base"),
        cmd.option("--new", nargs="+", metavar="RUN", help="several runs to compare with it"),
        cmd.add_format,
        cmd.option("-o", "--output", metavar="FILE", help="write there, not to standard output"),
        cmd.titled("gate",
            cmd.option("--fail-over", action="append", default=[], metavar="LIMIT", help="how much worse a figure may be, in every step and in total, or in one step: memory.peak=10%%, duration=20%%, Calibration:memory.peak=500MiB; or what it may be at most: 'memory.peak<=12GiB'; may be repeated"),
            cmd.option("--config", metavar="FILE", help="a file of limits (default: otel-quant.toml here or in a folder above, within the repository)"),
            cmd.option("--force", action="store_true", help="compare runs of unlike machines, limits, versions or scripts all the same"),
            cmd.option("--junit", metavar="FILE", help="write JUnit XML"),
            cmd.option("--action-benchmark", metavar="FILE", help="write JSON for github-action-benchmark (customSmallerIsBetter)"),
            cmd.option("--bencher", metavar="FILE", help="write JSON in Bencher's metric format"),
        ),
    ),
    run=_run,
)  # fmt: skip
