"""The main job, on a real quantization, with no server: sets up, runs, shows.

    python3 scripts/demo.py

records the quantization of a ResNet-50-sized ONNX model with AMD Quark (`otel-quant run`), and
prints its steps with time, memory peak and I/O, what the model costs, and what of it `otel-quant fix`
mends, with both times and both errors. With `--endpoint
http://localhost:4317` the telemetry goes to an OpenTelemetry Collector as well.
"""

from __future__ import annotations

import argparse
import os
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from scripts.workspace import ROOT, environment

OUT = ROOT / "out"


def main() -> int:
    """Runs the demo; the exit code comes from what fails first."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--endpoint", help="send the telemetry to this OTLP endpoint (gRPC) too")
    parser.add_argument("--samples", default="8", help="calibration images (default: 8)")
    arguments = parser.parse_args()

    programs = environment("quark")
    OUT.mkdir(exist_ok=True)
    recording, log = OUT / "recording", OUT / "quark.log"
    shutil.rmtree(recording, ignore_errors=True)
    env = os.environ | {
        "PATH": f"{programs}{os.pathsep}{os.environ.get('PATH', '')}",
        "OTEL_SERVICE_NAME": "otel-quant-demo",
    }
    if arguments.endpoint:
        env["OTEL_EXPORTER_OTLP_ENDPOINT"] = arguments.endpoint
    script = ["python", str(ROOT / "examples" / "quark_onnx.py"),
              "--folder", str(OUT), "--samples", arguments.samples]  # fmt: skip
    options = ["otel-quant", "run", "--out", str(recording), "--"]
    print("$", " ".join([*options, *script]).replace(f"{ROOT}{os.sep}", ""))
    print(f"  (Quark prints a lot; it goes to {log.relative_to(ROOT)})", flush=True)
    # In OUT, because Quark writes a table of its own into the current folder.
    quietly = ["sh", "-c", f'cd {shlex.quote(str(OUT))} && exec "$@" >{log.name} 2>&1', "-"]
    code = subprocess.run(
        [programs / options[0], *options[1:], *quietly, *script], cwd=ROOT, env=env
    ).returncode
    if code:
        print(*log.read_text().splitlines()[-15:], sep="\n", file=sys.stderr)
        print(f"the quantization failed with exit code {code}", file=sys.stderr)
        return code
    print(log.read_text().splitlines()[-1])
    names = ("resnet50", "resnet50_int8", "resnet50_fixed")
    floats, quantized, fixed = (f"{OUT.relative_to(ROOT)}/{name}.onnx" for name in names)
    (ROOT / fixed).unlink(missing_ok=True)
    commands = (
        ["cost", floats, quantized, "--top", "3"],
        ["fix", quantized, "-o", fixed, "--float", floats, "--data", f"{OUT.name}/image.npz"],
    )
    for command in commands:
        print("\n$ otel-quant", *command, flush=True)
        code = code or subprocess.run([programs / "otel-quant", *command], cwd=ROOT).returncode
    print(f"\nThe report is {(recording / 'report.html').relative_to(ROOT)}: open it in a browser.")
    print(f"The programs above are in {programs.relative_to(ROOT)}.")
    return code


if __name__ == "__main__":
    sys.exit(main())
