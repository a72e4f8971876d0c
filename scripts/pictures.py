"""Makes the pictures of the README and of docs/, from real runs.

    .venv/bin/python scripts/pictures.py

It needs root, for a control group whose memory limit the first run exceeds, and Chromium for the pages.
"""

from __future__ import annotations

import contextlib
import io
import os
import pty
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import numpy as np
import onnx
from onnx import helper, numpy_helper
from onnxruntime.quantization import CalibrationDataReader, QuantType, quantize_static
from rich.console import Console
from rich.terminal_theme import DIMMED_MONOKAI
from rich.text import Text

ROOT: Final = Path(__file__).resolve().parents[1]
DOCS: Final = ROOT / "docs"
PROGRAMS: Final = Path(sys.executable).parent
LIMIT: Final = 4_000_000_000
"""Bytes; Percentile keeps every activation, so that this suffices for some thirty samples of a ResNet-50."""

COLUMNS: Final = 110
LONGEST_WAIT: Final = 1.5
"""Seconds; longer waits between two lines are shown as this."""

EXAMPLE: Final = f"{sys.executable} onnxruntime_static.py --folder models"
PAGES: Final = (
    (f"otel-quant run --out first -- {EXAMPLE}", ""),
    (f"otel-quant run --out second -- {EXAMPLE} --method Percentile", ""),
    ("otel-quant stacks second --format html", "stacks"),
    ("otel-quant compare first second --format html", "compare"),
    (
        "otel-quant inference float.onnx int8.onnx --threads 1 --format html --graph change=graph.svg",
        "inference",
    ),
)
"""Commands, and the names of the pictures of what they print."""

GROUPS: Final = (Path("/sys/fs/cgroup/memory"), Path("/sys/fs/cgroup"))
FRAME: Final = """<svg class="rich-terminal" viewBox="0 0 {width} {height}" xmlns="http://www.w3.org/2000/svg">
<style>
.{unique_id}-matrix {{ font: {char_height}px/{line_height}px monospace; }}
{styles}
/* waits */
</style>
<defs>
<clipPath id="{unique_id}-clip-terminal">
<rect x="0" y="0" width="{terminal_width}" height="{terminal_height}"/></clipPath>
{lines}
</defs>
{chrome}
<g transform="translate({terminal_x}, {terminal_y})" clip-path="url(#{unique_id}-clip-terminal)">
{backgrounds}
<g class="{unique_id}-matrix">
{matrix}
</g>
</g>
</svg>
"""


def main() -> None:
    """Makes the pictures, each from the run that its page describes."""
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        command = "otel-quant run --out killed -- python onnxruntime_static.py --method Percentile --samples 128"
        for example in (ROOT / "examples").glob("*.py"):
            shutil.copy(example, folder)
        lines = terminal_of(command, folder, LIMIT)
        (DOCS / "run-killed.svg").write_text(moving(command, lines))
        photograph(folder / "killed" / "report.html", "report")
        residual(folder)
        for command, name in PAGES:
            page = made(f"{PROGRAMS / command}", folder, name)
            if page is not None:
                photograph(page, name)
        shutil.copy(folder / "graph.svg", DOCS / "inference-graph.svg")


def residual(folder: Path) -> None:
    """Writes a residual network, and quantized with an activation without a kernel on integers and a scale that clips."""
    draw = np.random.default_rng(0)
    nodes: list[Any] = []
    tensors: list[Any] = []

    def node(kind: str, *operands: str, name: str, **more: Any) -> str:
        nodes.append(helper.make_node(kind, operands, [name], name, **more))
        return name

    def conv(x: str, name: str, given: int, made: int, stride: int = 1) -> str:
        for end, shape in (("weight", (made, given, 3, 3)), ("bias", (made,))):
            array = draw.standard_normal(shape).astype(np.float32) / np.float32(1.5 * given**0.5)
            tensors.append(numpy_helper.from_array(array, f"{name}.{end}"))
        operands = x, f"{name}.weight", f"{name}.bias"
        return node("Conv", *operands, name=f"{name}/Conv", pads=[1] * 4, strides=[stride] * 2)

    x = node("Relu", conv("image", "/stem", 3, 32), name="/stem/Relu")
    for stage, channels in enumerate((32, 64, 128)):
        for block in range(2):
            at, stride = f"/stage{stage}/block{block}", 2 if stage and not block else 1
            before = channels // stride
            kind = "HardSwish" if at == "/stage1/block1" else "Relu"
            inner = node(
                kind, conv(x, f"{at}/conv1", before, channels, stride), name=f"{at}/{kind}"
            )
            beside = x if stride == 1 else conv(x, f"{at}/down", before, channels, stride)
            total = node(
                "Add", conv(inner, f"{at}/conv2", channels, channels), beside, name=f"{at}/Add"
            )
            x = node("Relu", total, name=f"{at}/out/Relu")
    node("GlobalAveragePool", x, name="features")
    given = helper.make_tensor_value_info("image", 1, [1, 3, 112, 112])
    made = helper.make_tensor_value_info("features", 1, [1, 128, 1, 1])
    graph = helper.make_graph(nodes, "residual", [given], [made], tensors)
    opsets = [helper.make_opsetid("", 17)]
    onnx.save(helper.make_model(graph, opset_imports=opsets, ir_version=8), folder / "float.onnx")
    left = iter([draw.standard_normal((1, 3, 112, 112)).astype(np.float32) for _ in range(8)])
    take = {"get_next": lambda _: next(({"image": each} for each in left), None)}
    reader = type("Samples", (CalibrationDataReader,), take)()
    types = {"activation_type": QuantType.QUInt8, "weight_type": QuantType.QInt8}
    quantize_static(folder / "float.onnx", folder / "int8.onnx", reader, per_channel=True, **types)
    model = onnx.load(folder / "int8.onnx")
    for each in model.graph.initializer:
        if each.name == "/stage0/block1/conv2/Conv_scale":
            each.CopyFrom(numpy_helper.from_array(numpy_helper.to_array(each) / 6, each.name))
    onnx.save(model, folder / "int8.onnx")


def made(command: str, folder: Path, name: str) -> Path | None:
    """Runs a command; returns what it has printed as a page, if it has a picture."""
    printed = subprocess.run(command.split(), cwd=folder, check=True, stdout=subprocess.PIPE).stdout
    if not name:
        return None
    page = folder / f"{name}.html"
    page.write_bytes(printed)
    return page


def terminal_of(command: str, folder: Path, limit: int) -> list[tuple[float, str]]:
    """Runs a command in a terminal, below a memory limit in bytes; returns its lines with seconds."""
    environment = os.environ | {
        "PATH": f"{PROGRAMS}{os.pathsep}{os.environ['PATH']}",
        "COLUMNS": str(COLUMNS),
        "TERM": "xterm-256color",
    }
    ours, theirs = pty.openpty()
    lines, rest = [], b""
    with control_group(limit) as group:
        within = f"echo $$ > {group / 'cgroup.procs'}; exec {command}"
        process = subprocess.Popen(
            ["sh", "-c", within], cwd=folder, env=environment, stdout=theirs, stderr=theirs
        )
        os.close(theirs)
        began = time.monotonic()
        with contextlib.suppress(OSError):  # the terminal's end, once all of the program is gone
            while read := os.read(ours, 65536):
                *whole, rest = (rest + read).split(b"\n")
                seconds = time.monotonic() - began
                lines += [(seconds, line.decode().rstrip("\r")) for line in whole]
        process.wait()
    return lines


@contextlib.contextmanager
def control_group(limit: int) -> Iterator[Path]:
    """Makes a control group whose memory is limited, in bytes."""
    place = next(place for place in GROUPS if (place / "cgroup.procs").exists())
    group = place / "otel-quant-pictures"
    group.mkdir()
    for file in ("memory.max", "memory.limit_in_bytes"):
        if (group / file).exists():
            (group / file).write_text(str(limit))
    try:
        yield group
    finally:
        for _ in range(100):
            with contextlib.suppress(OSError):  # the kernel is still busy with what it has killed
                group.rmdir()
                break
            time.sleep(0.05)


def moving(command: str, lines: list[tuple[float, str]]) -> str:
    """Draws a terminal in which each line appears when the program printed it."""
    console = Console(record=True, width=COLUMNS, file=io.StringIO())
    console.print(f"$ {command}", style="bold", highlight=False)
    at, before, waits = 0.8, 0.0, [0.0]
    for seconds, line in lines:
        at += min(seconds - before, LONGEST_WAIT)
        before = seconds
        text = Text.from_ansi(line)
        rows = text.wrap(console, COLUMNS) if text.plain else [text]
        for row in rows:
            console.print(row, highlight=False)
            waits.append(at)
    drawing = console.export_svg(
        title="otel-quant", theme=DIMMED_MONOKAI, code_format=FRAME, unique_id="run"
    )
    rules = [
        "@media (prefers-reduced-motion: no-preference) {",
        "@keyframes appear { from { opacity: 0 } to { opacity: 1 } }",
        *(
            f'[clip-path="url(#run-line-{number})"] {{ animation: appear 1ms {wait:.2f}s both }}'
            for number, wait in enumerate(waits)
        ),
        "}",
    ]
    return drawing.replace("/* waits */", "\n".join(rules))


def photograph(page: Path, name: str) -> None:
    """Takes a picture of a page in both themes."""
    browser = shutil.which("chromium") or shutil.which("google-chrome")
    if browser is None:
        raise SystemExit("pictures of pages need Chromium; on Debian: apt-get install chromium")
    for theme, dark in (("light", "0"), ("dark", "1")):
        subprocess.run(
            [browser, "--headless", "--no-sandbox", "--hide-scrollbars", "--window-size=1200,1100",
             f"--blink-settings=preferredColorScheme={1 - int(dark)}", "--virtual-time-budget=3000",
             f"--screenshot={DOCS / f'{name}-{theme}.png'}", page.as_uri()],
            check=True, capture_output=True,
        )  # fmt: skip


if __name__ == "__main__":
    main()
