"""Thousands of steps: nothing grows with their number."""

from __future__ import annotations

import json

import pytest

from tests.fixtures.otlp_receiver import OtlpReceiver
from tests.fixtures.programs import Workshop

MIB = 1 << 20

SOURCE = """
import gc, json, os, threading, time
import otel_quant

def descriptors():
    # The sampler opens kernel files for a moment: what is held is there at every look.
    held = None
    for _ in range(10):
        time.sleep(0.02)
        seen = set()
        for number in os.listdir("/proc/self/fd"):
            try:
                seen.add((number, os.readlink("/proc/self/fd/" + number)))
            except FileNotFoundError:  # the one that listed the folder
                pass
        held = seen if held is None else held & seen
    return sorted(held)

def facts():
    gc.collect()
    for line in open("/proc/self/status"):
        if line.startswith("VmRSS"):
            rss = int(line.split()[1]) * 1024
    return {
        "rss": rss,
        "objects": len(gc.get_objects()),
        "threads": sorted(thread.name for thread in threading.enumerate()),
        "descriptors": descriptors(),
    }

def steps(count):
    for number in range(count):
        with otel_quant.step("outer", attributes={"number": number}):
            with otel_quant.step("inner"):
                pass

steps(2500)  # so that the sampler has seen most lines: on a busy machine that takes longer
with otel_quant.step("whole"):
    before = facts()
    steps(2500)
    after = facts()
print(json.dumps([before, after]))
"""


@pytest.mark.parametrize("exporters", [False, True], ids=["without exporters", "with exporters"])
def test_five_thousand_steps_leak_no_memory_objects_threads_or_descriptors(
    workshop: Workshop, otlp: OtlpReceiver, exporters: bool
) -> None:
    variables = otlp.environment("http/protobuf") if exporters else {}
    finished = workshop.script(SOURCE).run(
        {**variables, "OTEL_QUANT_PROFILE": "profile.yaml"}, timeout=300
    )
    assert finished.returncode == 0
    before, after = json.loads(finished.stdout)
    # A queue of the SDK's holds some 2000 spans until the next delivery.
    assert after["rss"] - before["rss"] < (16 if exporters else 2) * MIB
    # Of a position in code that the sampler sees for the first time it keeps some five; of each step it would be thousands.
    assert abs(after["objects"] - before["objects"]) < (30_000 if exporters else 250)
    assert set(after["threads"]) <= set(before["threads"])
    assert len(after["threads"]) <= len(before["threads"])
    # The exporter's connection may be another one by now.
    ours = ("/proc/", str(workshop.folder.resolve()))
    # The kernel's files stay open from the first sample on, the last reading's from the first second.
    kept = [path for _, path in after["descriptors"] if path.startswith(ours)]
    assert len(set(kept)) == len(kept)
    open_before, open_after = (
        sum(not path.startswith(ours) for _, path in each["descriptors"])
        for each in (before, after)
    )
    assert open_after <= open_before + 2 * exporters
    assert (workshop.folder / "profile.yaml").read_text().count('"inner End"') == 5000
