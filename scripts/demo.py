"""The main job, on a real quantization, with no server: sets up, runs, shows.

    python3 scripts/demo.py

quantizes a ResNet-50-sized ONNX model with AMD Quark under `opentelemetry-instrument`
and prints its steps with time, memory peak and I/O. With `--endpoint
http://localhost:4317` the telemetry goes to an OpenTelemetry Collector as well.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from scripts.workspace import ROOT, environment

OUT = ROOT / "out"


def main() -> int:
    """Runs the demo; the exit code is that of what fails first."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--endpoint", help="send the telemetry to this OTLP endpoint (gRPC) too")
    parser.add_argument("--samples", default="8", help="calibration images (default: 8)")
    arguments = parser.parse_args()

    programs = environment("quark")
    OUT.mkdir(exist_ok=True)
    profile, log = OUT / "quark_profile.yaml", OUT / "quark.log"
    env = os.environ | {
        "PATH": f"{programs}{os.pathsep}{os.environ.get('PATH', '')}",
        "OTEL_SERVICE_NAME": "otel-quant-demo",
        "OTEL_QUANT_PROFILE": str(profile),
    }
    if arguments.endpoint:
        env["OTEL_EXPORTER_OTLP_ENDPOINT"] = arguments.endpoint
    command = ["opentelemetry-instrument", "python", str(ROOT / "examples" / "quark_onnx.py"),
               "--folder", str(OUT), "--samples", arguments.samples]  # fmt: skip
    print("$", " ".join(command).replace(f"{ROOT}{os.sep}", ""))
    print(f"  (Quark says a lot; it goes to {log.relative_to(ROOT)})", flush=True)
    with log.open("w") as quark:
        # In OUT, because Quark writes a table of its own into the current folder.
        code = subprocess.run(
            [programs / command[0], *command[1:]], cwd=OUT, env=env, stdout=quark, stderr=quark
        ).returncode
    if code:
        print(*log.read_text().splitlines()[-15:], sep="\n", file=sys.stderr)
        print(f"the quantization failed with exit code {code}", file=sys.stderr)
        return code
    print(log.read_text().splitlines()[-1])
    for show in (
        ["show", profile],
        ["cost", OUT / "resnet50.onnx", OUT / "resnet50_int8.onnx", "--top", "3"],
    ):
        print(
            "\n$ otel-quant",
            *(str(part).replace(f"{ROOT}{os.sep}", "") for part in show),
            flush=True,
        )
        code = (
            code or subprocess.run([programs / "otel-quant", *map(str, show)], cwd=ROOT).returncode
        )
    print(f"\nThe profile is {profile.relative_to(ROOT)}, the models are beside it.")
    print(f"The programs above are in {programs.relative_to(ROOT)}.")
    return code


if __name__ == "__main__":
    sys.exit(main())
