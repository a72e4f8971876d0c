"""Whether verdicts on steps are right, their lines and their remedies too: planted programs, and others that nearly are.

Each program (``verdict_programs.py``) runs under ``otel-quant run``, one after the other but for those that are idle, ahead
of other programs of the machine where that is allowed; then ``otel-quant show`` is read. What is not named is *missed*,
what is named wrongly is *false*.

Run ``python benchmarks/verdicts.py`` (``--blind`` for those with which no verdict was mended, ``--only WORD`` for the programs
and verdicts with that word, ``--write`` to put the table into docs/performance.md); it wants ``pip install onnxruntime torch transformers`` and g++, and for control groups root.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Final, NamedTuple

import blind_programs
import verdict_programs
from measuring import print_table, write_table
from planted import PLANTED, Planted

from otel_quant.diagnosis.bounds import (
    MEMORY_GROWTH,
    NOTHING_STANDS_OUT,
    OTHER_PROGRAMS,
    VERDICTS,
    words_of,
)

BLIND: Final = Path(blind_programs.__file__)
FILES: Final = "|".join(f"{each.__name__}.py" for each in (verdict_programs, blind_programs))
MARK: Final = "| verdict | planted:"
"""Begins the table in docs/performance.md."""

BLIND_MARK: Final = "| verdict, blind | planted:"
"""Begins that of programs with which no verdict was mended."""

FIRST: Final = "-20"
"""Niceness of all that is started, where that is allowed: that others use the machine is not what was planted."""

SHARES: Final = "262144"
"""The same of a control group, to which that niceness does not reach."""

SPIN: Final = "while True: pass"
BESIDE: Final = {
    "busy": [[sys.executable, "-c", SPIN]] * 8,
    "busy on the first processor": [["taskset", "-c", "0", sys.executable, "-c", SPIN]] * 3,
    "polite": [["nice", "-n", "19", sys.executable, "-c", SPIN]] * 3,
}
"""What else runs."""

GROUPS: Final = Path("/sys/fs/cgroup")
NAMES: Final = {words_of(name): name for name in (NOTHING_STANDS_OUT, *(v.name for v in VERDICTS))}
RIGHT, MISSED, FALSE = "right", "missed", "false"


class Answer(NamedTuple):
    """What was answered about a program, and what that is worth."""

    verdict: str  # Empty if there is none
    text: str
    remedy: str

    def score(self, program: Planted) -> tuple[str, str, str]:
        """Returns what the verdict, the line and the remedy are worth; empty for a line that was not planted."""
        if self.verdict in program.accepted:
            verdict = RIGHT
        else:
            verdict = MISSED if self.verdict in ("", NOTHING_STANDS_OUT) else FALSE
        named = {*re.findall(rf"(?:{FILES}):\d+", self.text)}
        line = RIGHT if named & program.lines else FALSE if named else MISSED
        if program.remedy and not self.remedy:
            remedy = MISSED
        else:
            is_right = program.remedy in self.remedy if program.remedy else not self.remedy
            remedy = RIGHT if is_right else FALSE
        return verdict, line if program.lines and self.verdict else "", remedy


@contextlib.contextmanager
def control_group(limits: dict[str, float]) -> Iterator[list[str]]:
    """Makes a control group with limits; gives the beginning of a command that runs in it."""
    files = {
        "cpu": ("cpu.cfs_quota_us", 100_000),  # of the usual period
        "memory": ("memory.limit_in_bytes", 1),
    }
    made = []
    for kind, limit in limits.items():
        group = GROUPS / kind / f"otel-quant-{os.getpid()}"
        group.mkdir()
        made.append(group)
        name, unit = files[kind]
        (group / name).write_text(str(round(limit * unit)))
        with contextlib.suppress(OSError):
            (group / "cpu.shares").write_text(SHARES)
    enter = "; ".join(f"echo $$ > {group}/cgroup.procs" for group in made)
    yield ["sh", "-c", f'{enter}; exec "$@"', "sh"] if made else []
    for group in made:
        group.rmdir()


def run(name: str, program: Planted, keep: Path | None) -> Answer:
    """Runs a program, and returns what was answered."""
    with (
        tempfile.TemporaryDirectory() as temporary,
        control_group(dict(program.group)) as group,
        contextlib.ExitStack() as beside,
    ):
        folder = Path(temporary)
        for command in BESIDE.get(program.beside, ()):
            other = subprocess.Popen(command)
            beside.callback(other.wait)
            beside.callback(other.kill)
        record = ["run", "--quiet", "--no-report", "--out", str(folder / "R"), "--"]
        command = [*group, *ours(*record), sys.executable, str(program.file), name]
        path = os.pathsep.join((sys.path[0], os.environ.get("PYTHONPATH", "")))
        variables = {**os.environ, "PYTHONPATH": path}
        ended = subprocess.run(command, cwd=folder, capture_output=True, text=True, env=variables)
        if ended.returncode:
            print(f"{name} failed: {(ended.stderr.strip().splitlines() or [''])[-1]}")
        if keep is not None:
            shutil.copytree(folder / "R", keep / name, dirs_exist_ok=True)
        shown = subprocess.run(ours("show", str(folder / "R")), capture_output=True, text=True)
    is_start = program.opens and "startup" in (program.accepted[0], program.near)
    return answer_in(shown.stdout, is_start=is_start)


def ours(*arguments: str) -> list[str]:
    """Returns a command of otel-quant."""
    return [sys.executable, "-m", "otel_quant", *arguments]


def answer_in(shown: str, *, is_start: bool) -> Answer:
    """Returns the first answer about a step, or that about the time before the first; else that about the run."""
    of_run = Answer("", "", "")
    for line in shown.split("\n\n", 1)[0].splitlines():
        if line.endswith("its main thread waited for a processor: a busy machine."):
            of_run = Answer(OTHER_PROGRAMS, line, "")
        if line.startswith("Memory kept growing in "):
            return Answer(MEMORY_GROWTH, *line.partition(" To try: ")[::2])
        who, _, rest = line.partition(": ")
        is_outside = who.endswith(("the first step", "between steps", "the last step"))
        verdict = next((name for words, name in NAMES.items() if rest.startswith(f"{words}: ")), "")
        if verdict and is_outside == is_start:
            text, _, remedy = rest.partition(" To try: ")
            return Answer(verdict, text, remedy)
    return of_run


def table(scores: dict[str, tuple[str, str, str]]) -> list[list[str]]:
    """Returns a row for each verdict: right, missed and false of its planted programs, and of those that are nearly so."""
    rows = []
    for verdict in (*(each.name for each in VERDICTS), NOTHING_STANDS_OUT):
        planted = [name for name in scores if PLANTED[name].accepted[0] == verdict]
        near = [name for name in scores if PLANTED[name].near == verdict]
        if not planted and not near:
            continue
        cells = []
        for names, at in ((planted, 0), (near, 0), (planted, 1), (planted, 2)):
            counts = Counter(scores[name][at] for name in names)
            if at == 0 and names is near:  # taken for it, or not
                wrong = sum(scores[name][0] == FALSE for name in names)
                cells.append(f"{len(names) - wrong} / {wrong}")
                continue
            cells.append(" / ".join(str(counts[each]) for each in (RIGHT, MISSED, FALSE)))
        rows.append([f"`{verdict}`", *cells])
    every = []
    for at in range(3):
        counts = Counter(each[at] for each in scores.values())
        every.append(" / ".join(str(counts[each]) for each in (RIGHT, MISSED, FALSE)))
    rows.append([f"**all {len(scores)} programs**", every[0], "", *every[1:]])
    return rows


HEAD: Final = ("planted: right / missed / false", "nearly: right / false", "line", "remedy")


def main() -> None:
    """Runs the benchmark."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", action="append", help="programs and verdicts with this word")
    parser.add_argument("--blind", action="store_true", help="those of blind_programs.py")
    parser.add_argument("--write", action="store_true", help="put the table into the page")
    parser.add_argument("--keep", type=Path, help="folder for the recordings")
    options = parser.parse_args()
    with contextlib.suppress(OSError):  # the kernel shares processors among sessions first
        os.setsid()
    with contextlib.suppress(OSError):
        Path("/proc/self/autogroup").write_text(FIRST)
    chosen = {
        name: program
        for name, program in PLANTED.items()
        if (program.file == BLIND) == options.blind
        and any(
            word in (name, *program.accepted[:1], program.near) for word in options.only or [name]
        )
    }
    scores: dict[str, tuple[str, str, str]] = {}
    # Other programs of the machine have disturbed them twice, which is what was answered
    left_out: list[str] = []
    with ThreadPoolExecutor(16) as pool:
        idle = {
            name: pool.submit(run, name, program, options.keep)
            for name, program in chosen.items()
            if program.is_idle
        }
        for name, program in chosen.items():
            if program.group and not os.access(GROUPS, os.W_OK):
                continue  # only root makes control groups
            answer = idle[name].result() if name in idle else run(name, program, options.keep)
            if answer.verdict == OTHER_PROGRAMS and OTHER_PROGRAMS not in program.accepted:
                answer = run(name, program, options.keep)
                if answer.verdict == OTHER_PROGRAMS:
                    left_out.append(name)
                    continue
            scores[name] = answer.score(program)
            if {*scores[name]} & {MISSED, FALSE}:
                want = f"{' or '.join(program.accepted)}, line {sorted(program.lines)}, {program.remedy or 'no remedy'}"
                print(f"{name}: {scores[name]}: {answer.verdict or 'none'}: {answer.text} To try: {answer.remedy}\n    wanted {want}", flush=True)  # fmt: skip
    rows = table(scores)
    mark = BLIND_MARK if options.blind else MARK
    head = mark.split("|")[1].strip(), *HEAD
    print_table(head, rows)
    disturbed = f"left out, because other programs kept the processors busy: {', '.join(left_out) or 'none'}"
    print(disturbed)
    counts = Counter(each[0] for each in scores.values())
    print(f"ratio: verdicts missed {counts[MISSED] / len(scores):.2f} (budget: 0.1), false {counts[FALSE] / len(scores):.2f} (budget: 0)")  # fmt: skip
    if options.write:
        write_table(mark, head, [*rows, [disturbed, *[""] * 4]])


if __name__ == "__main__":
    main()
