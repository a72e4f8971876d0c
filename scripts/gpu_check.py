"""What otel-quant shows on a machine with an NVIDIA GPU, beside what is true: eight minutes, one page.

python3 scripts/gpu_check.py                        makes an environment of its own (.venv-gpu) and checks there
python3 scripts/gpu_check.py --here                 checks with this Python, which has torch
python3 scripts/gpu_check.py --here --packages DIR  the same, with what this Python lacks from the wheels in DIR
python3 scripts/gpu_check.py --out PAGE             where the page goes (default: out/gpu-check.md)
python3 scripts/gpu_check.py --only WORD            the checks whose name has this word
python3 scripts/gpu_check.py --tables PAGE          checks nothing, and shows the tables of docs/gpu.md from a page

Needs no network but the package index, and with --here none. What this machine or environment lacks is not run, and
the page lists it. The exit code is 1 if something is not as expected.
"""

from __future__ import annotations

import argparse
import contextlib
import functools
import io
import json
import os
import platform
import re
import shutil
import subprocess
import sys
import tempfile
import threading
import time
import tomllib
import zipfile
from collections.abc import Callable, Iterator
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path
from typing import Any, Final, NamedTuple

ROOT: Final = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))
PROGRAMS: Final = ROOT / "scripts" / "gpu_programs.py"
MIB: Final = 1 << 20
PEAK: Final = "gpu_process_memory_peak_mb"
NEAR: Final = 16 * MIB
"""Bytes by which two readings of memory may differ: a context's buffers."""

NOT_LISTED: Final = "the driver does not tell what this program has"

LONGEST: Final = 180
"""Seconds that a program may take: one that hangs is a row, and the others are to be seen."""

FAILURES: Final = (
    OSError, ValueError, LookupError, RuntimeError, ImportError, TypeError, subprocess.SubprocessError,
)  # fmt: skip
GOOD, BAD, NOT_RUN = "holds", "does NOT hold", "not run"

TORCH_MODEL: Final = """
import copy, torch
def models():
    model = torch.nn.Sequential(torch.nn.Linear(512, 512), torch.nn.ReLU(), torch.nn.Linear(512, 512)).cuda()
    return {"float": model, "again": copy.deepcopy(model)}, (torch.randn(64, 512, device="cuda"),)
"""


class Row(NamedTuple):
    """What was looked at, what is true, what we say, and whether that holds."""

    what: str
    truth: str
    ours: str
    verdict: str


class Recorded(NamedTuple):
    """A program's run: what it printed, what was recorded, and what an outside observer saw."""

    truth: Any
    folder: Path
    steps: dict[str, dict[str, Any]]  # Attributes of each step, with those of the first device
    observed: int  # Bytes: highest memory of the device, read every 2 ms from outside
    joules: float | None  # What the device used meanwhile, if it counts that
    seconds: float  # How long it took, with the start of otel-quant and its end


def main() -> int:
    """Checks, and writes the page."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--here", action="store_true", help="use this Python")
    parser.add_argument("--packages", type=Path, help="a folder with wheels")
    parser.add_argument("--only", default="", help="a part of the names of the checks to run")
    parser.add_argument("--out", type=Path, default=Path("out", "gpu-check.md"))
    parser.add_argument("--tables", type=Path, help="a page that was written before")
    options = parser.parse_args()
    if options.tables is not None:
        print(tables(options.tables.read_text("utf-8")))
        return 0
    if not options.here:
        from scripts.workspace import environment

        # onnxruntime-gpu instead of onnxruntime: both together are one package, of the last that came.
        programs = environment(
            "otlp-files,onnx,nvidia,torch", name=".venv-gpu", pins=("onnxruntime-gpu",),
            constrained=False,
        )  # fmt: skip
        return subprocess.run([programs / "python", *sys.argv, "--here"]).returncode
    began = time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        site = Path(folder, "site")
        left_out = unpack(options.packages, site) if options.packages is not None else []
        of_user = filter(None, os.environ.get("PYTHONPATH", "").split(os.pathsep))
        os.environ["PYTHONPATH"] = os.pathsep.join((str(site), str(ROOT), *of_user))
        sys.path.insert(0, str(site))
        register(site)
        if lacking := sorted(missing(wanted_by("otel-quant"))):
            others = f"; for another Python: {', '.join(left_out)}" if left_out else ""
            sys.exit(f"not installed, nor in --packages: {', '.join(lacking)}{others}")
        page, is_good = checked(Path(folder), options.only, began)
    options.out.parent.mkdir(parents=True, exist_ok=True)
    options.out.write_text(page, "utf-8")
    print(page)
    print(page.splitlines()[2])  # again, as who sees only the end looks for it
    return int(not is_good)


def unpack(packages: Path, site: Path) -> list[str]:
    """Unpacks wheels for this check alone, without pip, which not every Python has; returns those for another Python."""
    minor, left_out = f"3{sys.version_info.minor}", []
    for wheel in sorted(packages.glob("*.whl")):
        python, abi, _ = wheel.stem.split("-")[-3:]
        if abi == "abi3" or {f"cp{minor}", f"py{minor}", "py3"} & {*python.split(".")}:
            with zipfile.ZipFile(wheel) as file:
                file.extractall(site)
        else:
            left_out.append(wheel.name)
    return left_out


def register(site: Path) -> None:
    """Has this checkout found by its name, with its entry points, as if it were installed."""
    described = site / "otel_quant-0.dist-info"
    described.mkdir(parents=True)
    (described / "METADATA").write_text("Metadata-Version: 2.1\nName: otel-quant\nVersion: 0\n")
    points = [
        f"[{group}]\n" + "".join(f"{name} = {value}\n" for name, value in each.items())
        for group, each in project()["entry-points"].items()
    ]
    (described / "entry_points.txt").write_text("\n".join(points))


def project() -> Any:
    """Returns what this checkout says of itself."""
    return tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]


def wanted_by(name: str) -> list[str]:
    """Returns what a package needs always; of this one its checkout tells, which need not be installed."""
    if name == "otel-quant":
        needed = [*project()["dependencies"], "nvidia-ml-py"]
    else:
        needed = [each for each in distribution(name).requires or () if ";" not in each]
    return [re.split(r"[^\w.-]", each, maxsplit=1)[0] for each in needed]


def missing(names: list[str]) -> set[str]:
    """Returns what is not installed, of some packages and of what they need."""
    found: set[str] = set()
    for name in names:
        try:
            found |= missing(wanted_by(name))
        except PackageNotFoundError:
            found.add(name)
    return found


def checked(folder: Path, only: str, began: float) -> tuple[str, bool]:
    """Returns the page, and whether all holds."""
    rows: list[Row] = []
    took: dict[str, float] = {}  # Seconds
    for check, wants in CHECKS.items():
        if only not in check.__name__:
            continue
        try:
            if why := wants():
                rows.append(Row((check.__doc__ or "").strip(".\n"), "", why, NOT_RUN))
            else:
                rows += check(folder)
        except FAILURES as error:  # the others are to be seen
            rows.append(Row(check.__name__, "", f"{type(error).__name__}: {error}", BAD))
        took[check.__name__] = time.monotonic() - began - sum(took.values())
    return document(rows, took), all(row.verdict != BAD for row in rows)


def document(rows: list[Row], took: dict[str, float]) -> str:
    """Returns the page."""
    from otel_quant import __version__

    names = ", ".join(reading.name or "unnamed" for reading in read_gpus()) or "none"
    ran = [row for row in rows if row.verdict != NOT_RUN]
    held = sum(row.verdict == GOOD for row in ran)
    lines = ["| " + " | ".join(cell.replace("|", "/") for cell in row) + " |" for row in rows]
    return "\n".join([
        "# otel-quant on a GPU", "",
        f"**{held} of {len(ran)} rows hold; {len(rows) - len(ran)} not run.** otel-quant {__version__}, "
        f"Python {platform.python_version()}, {platform.system()} {platform.release()}; "
        f"GPUs: {names}; {time.strftime('%Y-%m-%d')}; {sum(took.values()):.0f} s "
        f"({', '.join(f'{name} {seconds:.0f}' for name, seconds in took.items())})", "",
        "| what | truth | ours | |", "|---|---|---|---|", *lines, "",
    ])  # fmt: skip


def tables(page: str) -> str:
    """Returns the rows of a page that ran as the three tables of docs/gpu.md."""
    verdicts = ["| program | torch's profiler; what is right | said |", "|---|---|---|"]
    remedies = [
        "| verdict | program | afterwards | said before | to try |",
        "|---|---|---|---|---|",
    ]
    others = ["| what | truth | otel-quant | |", "|---|---|---|---|"]
    for line in page.splitlines():
        what, *cells = (cell.strip() for cell in line.strip("|").split("|"))
        if len(cells) != 3 or cells[2] not in (GOOD, BAD):
            continue
        truth, ours, verdict = cells
        kind, _, name = what.partition(", ")
        missed = " (**missed**)" if verdict == BAD else ""
        said, _, evidence = ours.partition(": ")
        if kind == "verdict":
            evidence = re.sub(r" \([\w.]+:\d+\)", "", evidence)  # lines of a file that changes
            seen = truth.removeprefix("profiler: ")
            told = f"**{said}**{evidence and f': {evidence}'}"
            verdicts.append(f"| {name} | {seen} | {told}{missed} |")
        elif kind == "remedy":
            of, _, program = name.partition(": ")
            tried = evidence.rpartition("; to try: ")[2]
            faster = truth.removesuffix(" afterwards")
            remedies.append(f"| {of} | {program} | {faster} | {said} | {tried}{missed} |")
        else:
            others.append(line)
    return "\n".join((*verdicts, "", *remedies, "", *others))


def read_gpus() -> Any:
    """Returns what the probe reads of each device."""
    from otel_quant.capture.probes.gpu import GpuProbe

    return GpuProbe()()


@functools.cache
def first_gpu() -> str:
    """Returns the identifier of the first device that was visible at the start."""
    return str(read_gpus()[0].id)


def device_memory(_: Path) -> Iterator[Row]:
    """The probe against nvidia-smi."""
    ours = {each.id: each for each in read_gpus()}
    if shutil.which("nvidia-smi") is None:
        yield Row("memory of each device, nvidia-smi", "nvidia-smi is not installed", "", NOT_RUN)
        return
    query = "--query-gpu=uuid,memory.used,memory.total,memory.reserved"
    for line in output(["nvidia-smi", query, "--format=csv,noheader,nounits"]).splitlines():
        uuid, *told = (part.strip() for part in line.split(","))
        if (found := ours.get(uuid)) is None:
            continue  # not visible here, or as MIG devices
        what = f"memory of GPU {found.index}, nvidia-smi"
        if not all(re.fullmatch(r"[\d.]+", each) for each in told):
            yield Row(what, f"nvidia-smi has {', '.join(told)}", "", NOT_RUN)
            continue
        used, total, reserved = (int(float(each)) * MIB for each in told)
        yield near(what, (used, total - reserved), (found.used, found.limit or 0))


def memory(folder: Path) -> Iterator[Row]:
    """What is kept, a spike, a child, energy: one program."""
    run = recorded("memory", folder)
    truth, steps = run.truth, run.steps
    of_device, of_tree = named("gpu.memory"), named("gpu.process_memory")
    [shown, *_] = json.loads(output(otel_quant("show", run.folder, "--format", "json")))
    table = {each["step"]: each for each in shown["steps"]}
    is_listed = f"{of_tree}.end" in steps["Kept"]
    for step in ("Kept", "After the spike", "Child"):
        yield near(f"device at the end of *{step}*, mem_get_info", (truth[step],), (steps[step].get(f"{of_device}.end"),))  # fmt: skip
        yield of_program(f"process tree at the end of *{step}*", truth[step], steps[step].get(f"{of_tree}.end"), [table[step]])  # fmt: skip
    yield near("limit, mem_get_info", (truth["limit"],), (steps["Kept"].get(named("gpu.device.memory.limit")),))  # fmt: skip
    for step, what in (("Spike", ""), ("After the spike", ": not its neighbour's")):
        peak = steps[step].get(f"{of_tree}.peak")
        yield of_program(f"peak of *{step}*{what}", truth[step], peak, [table[step]])
    highest = max(step.get(PEAK) or 0 for step in shown["steps"]) * MIB
    yield of_program("highest of the table, observer at 2 ms", run.observed, highest or None, shown["steps"])  # fmt: skip
    from otel_quant.recordings.reader import read
    from otel_quant.recordings.summary import value

    yield energy("the step *Energy*, the counter", truth["Energy"], steps["Energy"].get(named("gpu.energy")))  # fmt: skip
    whole = read(run.folder)
    before = max(0.0, 1 - whole.duration / run.seconds)
    yield energy("the run, the counter from outside", run.joules, value(whole, "gpu.energy"), before)  # fmt: skip
    told = [
        line for line in output(otel_quant("show", run.folder)).splitlines() if "allocator" in line
    ]
    yield Row("torch gave back what it had cached", f"{truth['retries']} times, in *At its limit*", "; ".join(told) or "nothing", GOOD if len(told) == 1 and told[0].startswith("At its limit") else BAD)  # fmt: skip
    text = run.folder.with_suffix(".yaml").read_text("utf-8")
    [of_file] = re.findall(r'"Kept End"\n(?:  .*\n)*?  gpu_memory_mb: ([\d.]+)', text) or [None]
    yield near(
        "`gpu_memory_mb` of the local file at the end of *Kept*, mem_get_info",
        (truth["Kept"],),
        (of_file and float(of_file) * MIB,),
    )
    [source] = re.findall(r'gpu_memory_source: "(\w+)"', text) or ["absent"]
    yield Row(
        "what memory of the device was read by",
        "version 2 of NVML",
        source,
        GOOD if source == "nvmlMemory_v2" else BAD,
    )
    if is_listed:
        yield growth(truth["growth"], run.folder)
    else:
        yield Row("a leak on the GPU", NOT_LISTED, "", NOT_RUN)
    of_packages = steps["Energy"].get(named("cpu.energy"))
    yield energy("the processors' packages in *Energy*", truth["packages"], of_packages)
    watched = terminal(run.folder)
    told = [word for word in ("utilization", "power") if re.search(rf"GPU 0 {word}", watched)]
    yield Row(
        "charts of `watch`",
        "utilization and power",
        " and ".join(told) or "none",
        GOOD if len(told) == 2 else BAD,
    )
    report = run.folder / "page.html"
    output(otel_quant("report", run.folder, "--out", report))
    page = report.read_text("utf-8").lower()
    missing = [word for word in ("utilization", "power") if word not in page]
    yield Row("charts of the report", "utilization and power", f"missing: {missing}" if missing else "both", BAD if missing else GOOD)  # fmt: skip


def of_program(what: str, truth: int, ours: int | None, steps: list[dict[str, Any]]) -> Row:
    """Memory of the program, or what it lies between where the driver does not tell it."""
    if ours is not None:
        return near(what, (truth,), (ours,))
    least, most = (
        max((each.get(f"gpu_process_memory_{end}_bytes") or 0 for each in steps), default=0)
        for end in ("least", "most")
    )
    is_good = least - NEAR <= truth <= most + NEAR
    told = f"between {mib(least)} and {mib(most)}: {NOT_LISTED}"
    return Row(what, mib(truth), told, GOOD if is_good else BAD)


def energy(what: str, truth: float | None, ours: float | None, before: float = 0.0) -> Row:
    """Joules, within 10 %; absent where nothing counts them. A share of the time was before the program, or after it."""
    told = "absent" if ours is None else f"{ours:,.0f} J"
    if truth is None or ours is None:
        true = "not counted here" if truth is None else f"{truth:,.0f} J"
        return Row(f"energy of {what}", true, told, GOOD if truth == ours else BAD)
    is_near = abs(ours - truth) <= max(0.1 * truth, 5) + before * truth
    return Row(f"energy of {what}", f"{truth:,.0f} J", told, GOOD if is_near else BAD)


def growth(each: int, recording: Path) -> Row:
    """What each sample keeps on the GPU, within 5 %, and when that will be too much."""
    told = [
        line
        for line in output(otel_quant("show", recording)).splitlines()
        if "kept growing" in line
    ]
    found = re.search(r"in Growth, by ([\d.]+) ([kMG]B) with each sample", " ".join(told))
    sizes = {"kB": 1e3, "MB": 1e6, "GB": 1e9}
    ours = float(found[1]) * sizes[found[2]] if found else 0.0
    is_good = len(told) == 1 and abs(ours - each * MIB) <= 0.05 * each * MIB
    return Row(
        "a leak on the GPU",
        f"{each * MIB / 1e6:,.1f} MB a sample, in *Growth* alone",
        "; ".join(told) or "nothing",
        GOOD if is_good else BAD,
    )


def terminal(recording: Path) -> str:
    """Returns what `watch` shows of a recording in a terminal."""
    from rich.console import Console

    from otel_quant.recordings.reader import read
    from otel_quant.views.watch import Looked, screen

    console = Console(file=io.StringIO(), width=120, height=60, record=True)
    console.print(screen(Looked(read(recording)), 120, 60))
    return console.export_text()


def neighbour(folder: Path) -> Iterator[Row]:
    """A program beside another one that has more than a twentieth of the GPU."""
    other = subprocess.Popen(
        [sys.executable, PROGRAMS, "hold"], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    try:
        assert other.stdout is not None
        other.stdout.readline()
        run = recorded("neighbour", folder)
    finally:
        other.communicate()
    whole = run.truth["all"]
    of_tree = run.steps["Neighbour"].get(f"{named('gpu.process_memory')}.peak") or 0
    [line, *_] = (
        each
        for each in output(otel_quant("show", run.folder)).splitlines()
        if each.startswith("GPU memory")
    )
    found = re.search(r"all programs had ([\d.]+) ([MG]B)", line)
    all_of_them = float(found[1]) * {"MB": 1e6, "GB": 1e9}[found[2]] if found else 0.0
    is_good = abs(all_of_them - whole) <= max(NEAR, 0.01 * whole) and of_tree < 0.5 * whole
    yield Row(
        "another program has a twelfth of the GPU",
        f"all programs {mib(whole)}",
        line,
        GOOD if is_good else BAD,
    )


def killed(folder: Path) -> Iterator[Row]:
    """A program that is killed half a second after its highest memory."""
    run = recorded("killed", folder, fails=True)
    [shown, *_] = json.loads(output(otel_quant("show", run.folder, "--format", "json")))
    [step] = (each for each in shown["steps"] if each["step"] == "Killed")
    peak = (step.get(PEAK) or 0) * MIB
    yield of_program("peak of a killed step, mem_get_info", run.truth["used"], peak or None, [step])


def verdicts(folder: Path) -> Iterator[Row]:
    """Planted programs and near misses."""
    from scripts.gpu_programs import PLANTED

    run = recorded("verdicts", folder)
    for name, planted in PLANTED.items():
        attributes, truth = run.steps[name], run.truth[name]
        verdict = attributes.get(named("step.bound_by"), "absent")
        seen = f"profiler: kernels {truth['kernels']:.0%}, copies {truth['copies']:.0%}; {' or '.join(planted.accepted)}"  # fmt: skip
        evidence = attributes.get(named("step.bound_evidence")) or seen_of(run.folder, name)
        kind = "near miss" if planted.near else "planted"
        yield Row(f"verdict, {kind}: {name.replace('_', ' ')}", seen, f"{verdict}: {evidence}", GOOD if verdict in planted.accepted else BAD)  # fmt: skip


def seen_of(recording: Path, step: str) -> str:
    """Returns how much of a step samples have seen, which has no verdict."""
    from otel_quant.recordings import reader

    whole = reader.read(recording)
    seen = sum(each.seen.time for each in reader.of_step(reader.stacks_in(whole), step)) / 1e9
    [lasted, *_] = (each.lasted for run in whole.runs for each in run.steps if each.name == step)
    return f"samples saw {seen:.2f} of {lasted or 0:.2f} s"


def remedies(folder: Path) -> Iterator[Row]:
    """Planted programs before and after what is printed "to try"."""
    from otel_quant.diagnosis.bounds import remedy_of

    run = recorded("remedies", folder)
    for name, faster in run.truth.items():
        expected, _, kind = name.partition(": ")
        verdict = run.steps[name].get(named("step.bound_by"), "absent")
        evidence = run.steps[name].get(named("step.bound_evidence"), "")
        tried = remedy_of(verdict, (), evidence=evidence) or "nothing"
        if kind == "not":
            is_good = tried == "nothing"
        else:
            is_none = tried == "nothing" and kind.startswith("half")
            is_good = faster >= 1.1 and (verdict == expected or is_none)
        yield Row(f"remedy, {name}", f"{faster:.1f} times faster afterwards", f"{verdict}: {evidence}; to try: {tried}", GOOD if is_good else BAD)  # fmt: skip


def cost_of_a_step(folder: Path) -> Iterator[Row]:
    """The same steps with a GPU and without, in turns."""
    first = os.environ.get("CUDA_VISIBLE_DEVICES", "0").partition(",")[0]
    turns: dict[str, list[dict[str, float]]] = {first: [], "": []}
    for turn in range(3):
        for visible, seen in turns.items():
            with environ(CUDA_VISIBLE_DEVICES=visible):
                seen.append(recorded("cost", folder / f"{turn}{visible}").truth)
    for clock in ("wall", "cpu"):
        with_gpu, without = (
            sorted(each[clock] for each in seen)[1] * 1e6 for seen in turns.values()
        )
        ours = f"{with_gpu:.0f} us with a GPU, {without:.0f} without: {with_gpu / without:.2f}"
        verdict = GOOD if with_gpu <= 1.5 * without else BAD
        yield Row(f"{clock} time of a step", "at most 1.5 times that without a GPU", ours, verdict)


def cost_of_a_sample(_: Path) -> Iterator[Row]:
    """CPU time of a sample with and without NVML."""
    from otel_quant.capture.probes.readers import Probes

    def cost(probes: Probes) -> float:
        probes.read()
        began = time.thread_time()
        for _ in range(400):
            probes.sample()
        return (time.thread_time() - began) / 400 * 1e6

    with_gpu, without = Probes(), Probes(gpu=lambda _: ())
    turns = [(cost(with_gpu), cost(without)) for _ in range(5)]
    both, alone = (sorted(turn[at] for turn in turns)[2] for at in (0, 1))
    seen = f"{both:.0f} us with NVML, {alone:.0f} us without; {both * 20 / 1e4:.2f} % of a core at 50 ms"
    yield Row("CPU time of a sample", "at most 100 us", seen, GOOD if both <= 100 else BAD)


def metrics(folder: Path) -> Iterator[Row]:
    """The metrics that the dashboards show of GPUs."""
    script, recording = folder / "step.py", folder / "metrics"
    script.write_text(
        "import time\nfrom otel_quant import step\nwith step('Calibration'):\n    time.sleep(2)\n"
    )
    try:
        distribution("opentelemetry-exporter-otlp-json-file")
    except PackageNotFoundError as lacking:
        yield Row("metrics of GPUs", f"{lacking.name} is not installed", "", NOT_RUN)
        return
    run = otel_quant("run", "--quiet", "--otlp-files", "--out", recording)
    output([*run, "--", sys.executable, script])
    pages = (ROOT / "grafana" / "dashboards").glob("*.json")
    asked = {
        name
        for page in pages
        for name in re.findall(r"\bhw_(?!id)[a-z_]+", page.read_text("utf-8"))
    }
    if all(each.id.startswith("MIG-") for each in read_gpus()):  # these have memory alone
        asked = {name for name in asked if "memory" in name}
    found: dict[str, list[float]] = {}
    for path in recording.glob("metrics.*.jsonl"):
        for line in path.read_text("utf-8").splitlines():
            for metric, point in points(json.loads(line)):
                value = point.get("asDouble", point.get("asInt"))
                if metric.startswith("hw.") and value is not None:
                    found.setdefault(metric, []).append(float(value))
    names = [name.replace(".", "_") for name in found]
    missing = sorted(each for each in asked if not any(each.startswith(name) for name in names))
    seen = ", ".join(f"{name} {max(values):,.6g}" for name, values in sorted(found.items()))
    yield Row("metrics of GPUs", "those that dashboards ask for", f"{seen or 'none'}; absent: {', '.join(missing) or 'none'}", GOOD if found and not missing else BAD)  # fmt: skip


def points(message: Any) -> Iterator[tuple[str, Any]]:
    """Yields name and point of each metric of an OTLP message."""
    for resource in message.get("resourceMetrics", ()):
        for scope in resource["scopeMetrics"]:
            for metric in scope["metrics"]:
                for kind in ("gauge", "sum"):
                    for point in metric.get(kind, {}).get("dataPoints", ()):
                        yield metric["name"], point


def inference(folder: Path) -> Iterator[Row]:
    """Models measured on CUDA, by torch and by onnxruntime."""
    (folder / "models.py").write_text(TORCH_MODEL)
    yield _command("`inference` of torch models", "inference", f"{folder / 'models.py'}:models")
    try:
        import onnxruntime
        from onnx import TensorProto, helper, numpy_helper, save
    except ImportError as error:
        yield Row("`inference` and `bench` of ONNX models", str(error), "", NOT_RUN)
        return
    if "CUDAExecutionProvider" not in onnxruntime.get_available_providers():
        yield Row("`inference` and `bench` of ONNX models", "onnxruntime is not onnxruntime-gpu", "", NOT_RUN)  # fmt: skip
        return
    import numpy as np

    weights = numpy_helper.from_array(np.ones((1024, 1024), np.float32), "w")
    ends = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [64, 1024]) for name in "xy"]
    graph = helper.make_graph(
        [helper.make_node("MatMul", ["x", "w"], ["y"])], "g", ends[:1], ends[1:], [weights]
    )
    opset = [helper.make_opsetid("", 17)]
    for name in ("a.onnx", "b.onnx"):
        save(helper.make_model(graph, opset_imports=opset, ir_version=8), folder / name)
    for command, models in (("inference", ["a.onnx"]), ("bench", ["a.onnx", "b.onnx"])):
        paths = [str(folder / name) for name in models]
        yield _command(
            f"`{command}` of an ONNX model on CUDA", command, *paths, "--provider", "CUDA"
        )


def _command(what: str, *arguments: str) -> Row:
    result = json.loads(output(otel_quant(*arguments, "--seconds", "1", "--format", "json")))
    told, is_good = [], True
    for model in result["models"]:
        providers = ", ".join(model["providers"])
        median = f"{model['latency']['median'] * 1000:.3g} ms on {providers}" if providers else ""
        told.append(f"{Path(model['path']).name}: {model['problem'] or median}")
        is_good &= "cuda" in providers.lower()
        joules = (model["latency"] or {}).get("gpu_energy")
        told[-1] += ", no energy"
        if joules is not None:
            told[-1] = (
                f"{told[-1].removesuffix(', no energy')}, {joules:.3g} J a run ({joules / model['latency']['median']:.0f} W)"
            )
        is_good &= bool(joules)
    return Row(what, "on CUDA, with joules", "; ".join(told), GOOD if is_good else BAD)


def several(folder: Path) -> Iterator[Row]:
    """MIG devices and several devices, where there are any."""
    found = read_gpus()
    if not (parts := [each for each in found if each.id.startswith("MIG-")]):
        yield Row("MIG devices", "none here", "", NOT_RUN)
    for each in parts:
        yield Row(f"MIG device {each.id}", "has a limit", f"{mib(each.used)} of {mib(each.limit or 0)}", GOOD if each.limit else BAD)  # fmt: skip
    if len(found) < 2:
        yield Row("several devices", "one here", "", NOT_RUN)
        return
    run = recorded("sharded", folder)
    told = output(otel_quant("show", run.folder))
    nearest = [line for line in told.splitlines() if "came nearest to its limit" in line]
    expected = "Of 2 GPUs GPU 1 came nearest to its limit"  # the two that it has memory on
    yield Row(
        "a model on two GPUs",
        "the second has a quarter, the first an eighth",
        "; ".join(nearest) or "nothing",
        GOOD if nearest and nearest[0].startswith(expected) else BAD,
    )
    table = output(otel_quant("show", run.folder, "--by", "device", "--format", "csv")).splitlines()
    seen = {line.split(",")[1] for line in table if line.startswith("Sharded,")}
    yield Row(
        "`show --by device`",
        "both GPUs",
        f"GPUs {', '.join(sorted(seen))}",
        GOOD if {"0", "1"} <= seen else BAD,
    )
    evidence = run.steps["Sharded"].get(named("step.bound_evidence"), "")
    yield Row(
        "one GPU computes",
        "the others are idle",
        evidence,
        GOOD if "other GPU" in evidence else BAD,
    )


def no_cuda() -> str:
    """Returns why torch cannot use a GPU here; empty if it can."""
    try:
        import torch
    except ImportError:
        return "torch is not installed"
    return "" if torch.cuda.is_available() else "torch sees no CUDA device"


def no_gpu() -> str:
    """Returns that there is no GPU, or nothing."""
    return "" if read_gpus() else "no GPU"


CHECKS: Final[dict[Callable[[Path], Iterator[Row]], Callable[[], str]]] = {
    device_memory: no_gpu, memory: no_cuda, neighbour: no_cuda, killed: no_cuda, cost_of_a_step: no_cuda, cost_of_a_sample: no_gpu,
    verdicts: no_cuda, remedies: no_cuda, metrics: no_gpu, inference: no_cuda, several: no_gpu,
}  # fmt: skip
"""Each check, with what tells why it cannot run here."""


def recorded(program: str, folder: Path, *, fails: bool = False) -> Recorded:
    """Runs a program under ``otel-quant run``, with an observer outside of it."""
    recording = folder / program
    run = otel_quant("run", "--quiet", "--no-report", "--out", recording)
    file = str(recording.with_suffix(".yaml"))
    began = time.monotonic()
    with observer() as seen, environ(OTEL_QUANT_PROFILE=file):
        printed = output([*run, "--", sys.executable, PROGRAMS, program], fails=fails)
    steps = {}
    for line in events(recording):
        if line["kind"] == "step.ended":
            of_device = line.get("devices") or [{}]
            steps[line["attributes"].get(named("step.name")) or names_of(recording)[line["index"]]] = line["attributes"] | of_device[0]  # fmt: skip
    truth, seconds = json.loads(printed.splitlines()[-1]), time.monotonic() - began
    return Recorded(truth, recording, steps, seen.highest, seen.joules, seconds)


class Observer:
    """Reads a device's memory every 2 ms, and the energy counter at both ends."""

    def __init__(self) -> None:
        import pynvml

        pynvml.nvmlInit()
        self.nvml, self.handle = pynvml, pynvml.nvmlDeviceGetHandleByUUID(first_gpu())
        self.highest, self.before, self.is_over = 0, self.energy(), threading.Event()
        self.joules: float | None = None

    def energy(self) -> float | None:
        """Returns joules since the driver was loaded; None of a device that counts none."""
        try:
            return float(self.nvml.nvmlDeviceGetTotalEnergyConsumption(self.handle)) / 1000
        except self.nvml.NVMLError:
            return None

    def look(self) -> None:
        """Runs until it is over."""
        while not self.is_over.wait(0.002):
            now = self.nvml.nvmlDeviceGetMemoryInfo(self.handle, version=self.nvml.nvmlMemory_v2)
            self.highest = max(self.highest, now.used)


@contextlib.contextmanager
def observer() -> Iterator[Observer]:
    """An observer while the block runs."""
    made = Observer()
    thread = threading.Thread(target=made.look)
    thread.start()
    try:
        yield made
    finally:
        made.is_over.set()
        thread.join()
        if made.before is not None:
            made.joules = (made.energy() or 0) - made.before


@contextlib.contextmanager
def environ(**variables: str) -> Iterator[None]:
    """Variables of the environment while the block runs."""
    before = dict(os.environ)
    os.environ.update(variables)
    try:
        yield
    finally:
        os.environ.clear()
        os.environ.update(before)


def events(recording: Path) -> Iterator[dict[str, Any]]:
    """Yields the events of the program itself: of the file that was begun first."""
    files = sorted(recording.glob("events.*.jsonl"), key=lambda path: path.read_text().split('"time":')[1][:19])  # fmt: skip
    yield from map(json.loads, files[0].read_text("utf-8").splitlines())


def names_of(recording: Path) -> dict[int, str]:
    """Returns the names of the steps by their numbers."""
    return {line["index"]: line["name"] for line in events(recording) if line["kind"] == "step.started"}  # fmt: skip


def named(name: str) -> str:
    """Returns the whole name of an attribute."""
    from otel_quant.schema import semconv

    return f"{semconv.STEP_NAME.split('.')[0]}.{name}"


def near(what: str, truth: tuple[float | None, ...], ours: tuple[float | None, ...]) -> Row:  # fmt: skip
    """Returns a row of bytes that are to be equal but for NEAR."""
    is_near = all(
        a is not None and b is not None and abs(a - b) <= NEAR
        for a, b in zip(truth, ours, strict=True)
    )
    true, told = (" of ".join(map(mib, values)) for values in (truth, ours))
    return Row(what, true, told, GOOD if is_near else BAD)


def mib(size: float | None) -> str:
    """Returns bytes as text."""
    return "absent" if size is None else f"{size / MIB:,.0f} MiB"


def otel_quant(*arguments: str | Path) -> list[str | Path]:
    """Returns a command of otel-quant."""
    return [sys.executable, "-m", "otel_quant", *arguments]


def output(command: list[Any], *, fails: bool = False) -> str:
    """Returns what a command prints; raises with its last line if it fails."""
    ended = subprocess.run(command, capture_output=True, text=True, timeout=LONGEST)
    if bool(ended.returncode) != fails:
        last = (ended.stderr.strip() or ended.stdout.strip() or "nothing").splitlines()[-1]
        raise RuntimeError(f"{Path(command[0]).name} ended with {ended.returncode}: {last}")
    return ended.stdout


if __name__ == "__main__":
    sys.exit(main())
