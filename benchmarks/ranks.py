"""Whether the rank that failed first is named, and the one that kept others waiting: jobs of four ranks with injected faults.

Each job has two nodes on this machine, which are recorded apart, with gloo between them (``rank_program.py``); then
``otel-quant show`` is read. Four kinds of failures, slow readers and slow ranks, and jobs of equal ranks, of which nothing is to be said.

Run ``python benchmarks/ranks.py`` (``--only KIND``, ``--of N`` of each, ``--write`` to put the table into docs/performance.md);
it wants ``pip install torch``.
"""

from __future__ import annotations

import argparse
import json
import os
import socket
import subprocess
import sys
import tempfile
from collections import Counter
from pathlib import Path
from typing import Final, NamedTuple

from measuring import print_table, write_table

PROGRAM: Final = Path(__file__).with_name("rank_program.py")
KINDS: Final = {
    "kill": 10, "exception": 10, "memory": 10, "hang": 10, "reader": 10, "rank": 10, "equal": 20,
}  # fmt: skip
SHOWN_AS: Final = {
    "kill": "killed by a signal", "exception": "an exception", "memory": "no memory", "hang": "a hang",
    "reader": "a slow reader", "rank": "a slow rank", "equal": "equal ranks",
}  # fmt: skip
FAILURES: Final = ("kill", "exception", "memory", "hang")
CAUSES: Final = {
    "kill": ("was killed by", "SIGKILL", "SIGSEGV", "SIGABRT", "SIGBUS"),
    "exception": ("failed with", "ValueError: no scale", "ConnectionResetError: [Errno 104]", "KeyError: ", "SystemExit: no such shard"),
    "memory": ("failed with", "MemoryError", "MemoryError", "allocate memory", "allocate memory"),
    "hang": ("did not answer", "last seen at hang ("),
    "reader": ("kept the others waiting", "at Reader.get_next (", "at Reader.read_file ("),
    "rank": ("kept the others waiting", "at calibrate ("),
}  # fmt: skip
"""What is to be in the answer: how it is put, and the cause of each variant."""

RANKS: Final = 4
LONGEST: Final = 120  # Seconds
RIGHT, MISSED, FALSE = "right", "missed", "false"
NAMED: Final = ("failed first", "did not answer", "kept the others waiting")
HEAD: Final = ("fault", "jobs", "rank: right / missed / false", "cause: right / missed / false")
MARK: Final = "| fault | jobs |"


class Answer(NamedTuple):
    """What was answered, and what that is worth."""

    text: str
    rank: str
    cause: str


def answer_of(kind: str, variant: int, keep: Path | None) -> Answer:
    """Returns what was answered about a job, which is run unless its recordings were kept."""
    with tempfile.TemporaryDirectory() as temporary:
        top = (Path(temporary) if keep is None else keep) / f"{kind}-{variant}"
        if not top.exists():
            run_job(top, kind, variant, temporary)
        shown = subprocess.run(ours("show", str(top), "--brief"), capture_output=True, text=True)
    brief = json.loads(shown.stdout) if shown.stdout else {}
    return score(kind, variant, " ".join(brief.get("evidence", ())))


def run_job(top: Path, kind: str, variant: int, temporary: str) -> None:
    """Runs a job, of which each node has a recording below a folder."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    variables = {
        **os.environ, "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), "OMP_NUM_THREADS": "1",
        "TORCHELASTIC_RUN_ID": f"job-{port}", "TMPDIR": temporary,
    }  # fmt: skip
    top.mkdir(parents=True)
    nodes = []
    for node in range(2):
        record = ["run", "--quiet", "--no-report", "--out", str(top / f"node-{node}"), "--"]
        fault = [str(node), kind, str(variant), str(variant % RANKS)]
        command = [*ours(*record), sys.executable, str(PROGRAM), *fault]
        with (Path(temporary) / f"log-{node}").open("wb") as log:
            started = subprocess.Popen(
                command, cwd=temporary, env=variables, stdout=log, stderr=log
            )
        nodes.append(started)
    for each in nodes:
        each.wait(LONGEST)


def ours(*arguments: str) -> list[str]:
    """Returns a command of otel-quant."""
    return [sys.executable, "-m", "otel_quant", *arguments]


def score(kind: str, variant: int, text: str) -> Answer:
    """Returns what an answer is worth."""
    is_named = any(each in text for each in NAMED)
    if kind == "equal":
        return Answer(text, FALSE if is_named else RIGHT, "")
    if not is_named:
        return Answer(text, MISSED, MISSED)
    rank = RIGHT if text.startswith(f"Rank {variant % RANKS} (") else FALSE
    how, *others = CAUSES[kind]
    cause = others[variant % len(others)]
    return Answer(text, rank, FALSE if how not in text else RIGHT if cause in text else MISSED)


def table(answers: dict[tuple[str, int], Answer]) -> list[list[str]]:
    """Returns a row for each kind of fault, and one for all failures."""
    rows = []
    kinds = {SHOWN_AS[kind]: (kind,) for kind in KINDS if any(each[0] == kind for each in answers)}
    for name, some in {**kinds, "**all failures**": FAILURES}.items():
        of = [answer for (kind, _), answer in answers.items() if kind in some]
        cells = []
        for values in ([each.rank for each in of], [each.cause for each in of if each.cause]):
            counts = Counter(values)
            cells.append(
                " / ".join(str(counts[each]) for each in (RIGHT, MISSED, FALSE)) if values else ""
            )
        rows.append([name, str(len(of)), *cells])
    return rows


def main() -> None:
    """Runs the benchmark."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", action="append", choices=KINDS, help="these kinds alone")
    parser.add_argument("--of", type=int, help="so many jobs of each kind, instead of 10 or 20")
    parser.add_argument(
        "--keep",
        type=Path,
        help="a folder in which the recordings stay; those that are there are read again",
    )
    parser.add_argument(
        "--write", action="store_true", help="put the table into docs/performance.md"
    )
    options = parser.parse_args()
    answers = {}
    for kind in options.only or KINDS:
        for variant in range(options.of or KINDS[kind]):
            answer = answers[kind, variant] = answer_of(kind, variant, options.keep)
            wrong = {RIGHT} != {answer.rank, answer.cause or RIGHT}
            print(
                f"{kind} {variant}: {answer.rank} {answer.cause}{f': {answer.text}' * wrong}",
                flush=True,
            )
    rows = table(answers)
    print_table(HEAD, rows)
    if options.write:
        write_table(MARK, HEAD, rows)
    right = sum(each.rank == RIGHT for each in answers.values())
    print(f"ratio: {right / len(answers):.2f} of {len(answers)} jobs answered right")


if __name__ == "__main__":
    main()
