"""What instrumentation costs a whole quantization with AMD Quark.

The same program (:mod:`quantization`, a ResNet to INT8) runs in turns, each time in a new
process that is bound to one core, so that no thread of ours finds an idle one:

- alone;
- under ``opentelemetry-instrument`` with otel_quant disabled;
- under ``opentelemetry-instrument`` with everything on: traces, metrics and logs over
  OTLP to a receiver in this process, the local file, the sampler, the models' cost;
- the same without the stacks of Python (``OTEL_QUANT_STACKS=false``);
- with Quark's own profiler (``QUARK_PROFILING=1``);
- with ``--peer FOLDER``, under the ``opentelemetry-instrument`` of another environment, which has another
  version of otel-quant and the same of everything else.

Two processes of seconds differ by more than a hundredth on any shared machine. So
otel-quant's own CPU time is added up as well, in runs of their own: see
:mod:`accounting`. That share is what the budget is held against.

Run ``python benchmarks/whole_run.py --rounds 7`` for figures worth quoting, in an
environment where otel-quant is installed. A part of what we cost does not depend on how
long a run is, and the default is a run of a few seconds: ``--model resnet50`` is a
longer one, of some ten seconds of CPU. Budget: 1 %.
"""

from __future__ import annotations

import argparse
import functools
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from measuring import compiled_into, forgetful_server, median_ratio, print_table, take_turns
from quantization import write_model

HERE: Final = Path(__file__).parent
INSTRUMENT: Final = str(Path(sys.executable).with_name("opentelemetry-instrument"))
DISABLED: Final = {"OTEL_PYTHON_DISABLED_INSTRUMENTATIONS": "otel_quant"}


def run(
    command: list[str], environment: Mapping[str, str], core: int
) -> tuple[float, float, float]:
    """Runs a command; returns seconds of CPU time, of wall-clock time, and what it measured for quantizing."""
    began = time.perf_counter()
    with subprocess.Popen(
        command,
        env={**os.environ, **environment},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        preexec_fn=lambda: os.sched_setaffinity(0, {core}),  # no threads fork
    ) as process:
        assert process.stdout is not None
        output = process.stdout.read()
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode != 0:
        sys.exit(f"{' '.join(command)} ended with {process.returncode}:\n{output}")
    elapsed = time.perf_counter() - began
    quantized = output.rpartition("quantized in ")[2].split()[0]
    return usage.ru_utime + usage.ru_stime, elapsed, float(quantized)


def main() -> None:
    """Runs the benchmark."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=1, help="runs of each kind")
    parser.add_argument(
        "--model",
        choices=("small", "resnet50"),
        default="small",
        help="resnet50 takes twice as long",
    )
    parser.add_argument(
        "--sums", action="store_true", help="only add up otel-quant's own time, compare nothing"
    )
    parser.add_argument("--peer", type=Path, help="folder `bin` of another environment")
    parser.add_argument("--samples", type=int, default=16, help="calibration images of a run")
    arguments = parser.parse_args()
    otlp = {
        **{f"OTEL_{signal}_EXPORTER": "otlp" for signal in ("TRACES", "METRICS", "LOGS")},
        "OTEL_EXPORTER_OTLP_PROTOCOL": "http/protobuf",
        "OTEL_EXPORTER_OTLP_ENDPOINT": f"http://127.0.0.1:{forgetful_server()}",
    }
    core = max(os.sched_getaffinity(0))
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        size = write_model(folder / "model.onnx", arguments.model)
        os.environ |= compiled_into(folder / "compiled")
        os.chdir(folder)  # Quark's profiler writes to the working directory
        program = [
            str(HERE / "quantization.py"),
            *("model.onnx", "quantized.onnx", str(size), str(arguments.samples)),
        ]
        plain = [sys.executable, *program]
        everything = {**otlp, "OTEL_QUANT_PROFILE": "ours.yaml"}
        accounted = [INSTRUMENT, sys.executable, str(HERE / "accounting.py"), "sums.json", *program]
        kinds: dict[str, tuple[list[str], Mapping[str, str]]] = {
            "alone": (plain, {}),
            "opentelemetry-instrument": ([INSTRUMENT, *plain], {**otlp, **DISABLED}),
            "... and otel_quant": ([INSTRUMENT, *plain], everything),
            "... without stacks": (
                [INSTRUMENT, *plain],
                {**everything, "OTEL_QUANT_STACKS": "false"},
            ),
            "Quark's own profiler": (plain, {"QUARK_PROFILING": "1"}),
        }
        if arguments.peer is not None:
            other = [str(arguments.peer / name) for name in ("opentelemetry-instrument", "python")]
            # Where both build Quark's extensions in one folder, each turn builds them again.
            its_own = {"TORCH_EXTENSIONS_DIR": str(folder / "peer_extensions")}
            kinds["... and the peer's otel_quant"] = ([*other, *program], everything | its_own)
        sums: list[Any] = []

        def account() -> tuple[float, float, float]:
            figures = run(accounted, everything, core)
            sums.append(json.loads(Path("sums.json").read_text()))
            return figures

        account()  # compiles modules and fills the page cache
        sums.clear()
        if arguments.peer is not None:
            # Its environment has modules of its own.
            run(*kinds["... and the peer's otel_quant"], core)
        candidates: dict[str, Callable[[], tuple[float, float, float]]] = {
            name: functools.partial(run, *kind, core)
            for name, kind in kinds.items()
            if not arguments.sums
        }
        candidates["accounted"] = account
        taken = take_turns(arguments.rounds, candidates)
        os.chdir(HERE)
    del taken["accounted"]
    show_sums(sums)
    if taken:
        show_runs(taken)


def show_sums(sums: Sequence[Mapping[str, Any]]) -> None:
    """Prints what otel-quant's parts took, and their share of the process's CPU time."""
    rows = []
    for part in sorted({part for figures in sums for part in figures["cpu"]}):
        cpu, wall = (
            statistics.median(figures[clock].get(part, 0.0) for figures in sums)
            for clock in ("cpu", "wall")
        )
        rows.append((part, f"{cpu * 1e3:.1f}", f"{wall * 1e3:.1f}"))
    process = statistics.median(figures["process"] for figures in sums)
    print(f"otel-quant in a process of {process:.1f} s of CPU, in milliseconds")
    print_table(("", "CPU", "wall, main thread"), rows)
    share = statistics.median(sum(figures["cpu"].values()) / figures["process"] for figures in sums)
    print(f"\nratio: {share:.4f} (otel-quant's CPU time / the process's; budget: 0.01)")


def show_runs(taken: Mapping[str, Sequence[tuple[float, float, float]]]) -> None:
    """Prints how the kinds of run compare."""
    columns = {name: list(zip(*figures, strict=True)) for name, figures in taken.items()}
    alone = columns["alone"]
    rows = []
    for name, figures in columns.items():
        medians = (f"{statistics.median(figure):.2f}" for figure in figures)
        ratio = median_ratio(figures[0], alone[0])
        rows.append((name, *medians, f"{ratio:.3f}"))
    print(f"\na whole process in seconds, median of {len(taken['alone'])}")
    print_table(("", "CPU", "wall", "quantizing", "CPU / alone"), rows)
    ours, bare = columns["... and otel_quant"], columns["opentelemetry-instrument"]
    ratio = median_ratio(ours[0], bare[0])
    print(f"\nratio: {ratio:.3f} (CPU time with otel_quant / bare opentelemetry-instrument)")


if __name__ == "__main__":
    main()
