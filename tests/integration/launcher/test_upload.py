"""Uploads to a real S3 server: what is read from there, outages, a wrong key, and a kill in between."""

from __future__ import annotations

import os
import signal
import subprocess
import time

import pytest

from otel_quant.format.store import RecordingStore
from tests.fixtures.commands import Commands
from tests.fixtures.object_store import BUCKET, S3Server
from tests.fixtures.programs import Finished, Launched, launcher

URL = f"s3://{BUCKET}/runs"
PROGRAM = """
import sys, time, otel_quant
with otel_quant.step("Calibration"):
    time.sleep(float(sys.argv[1]))
sys.exit(3)
"""
LATER = "otel-quant upload {folder} s3://bucket/runs"


def record(launched: Launched, name: str, seconds: str = "0") -> Finished:
    (launched.folder / "q.py").write_text(PROGRAM)
    ended = launched.run(["python", "q.py", seconds], "--out", name, "--upload", URL)
    assert ended.returncode == 3, ended.stderr
    assert os.environ["AWS_SECRET_ACCESS_KEY"] not in ended.stderr
    return ended


def printed(launched: Launched, *words: str) -> str:
    done = launched.otel_quant(*words)
    assert done.returncode == 0, done.stderr
    return done.stdout.replace(f"{URL}/", "").replace(f"{launched.folder}/", "")


def test_what_is_read_from_the_store_is_what_the_folder_has(
    launched: Launched, s3: S3Server, command: Commands
) -> None:
    for name in ("a", "b"):
        assert record(launched, name).stderr.endswith(f"\nuploaded:  {URL}/{name}\n")
    for words in (
        ("show", "{}a", "{}b"),
        ("compare", "{}a", "{}b"),
        ("runs", "{}", "--format", "json"),
        ("report", "{}a", "-o", "-"),
    ):
        here, there = (
            command.output(*(word.format(each) for word in words)).replace(each, "")
            for each in (f"{launched.folder}/", f"{URL}/")
        )  # fmt: skip
        assert there == here
    assert printed(launched, "upload", "a", URL) == "a: 0 B sent\n"
    store, secret = RecordingStore(f"{URL}/a"), os.environ["AWS_SECRET_ACCESS_KEY"].encode()
    assert [
        name for name, (data, _) in store.read(store.recordings()[""]).items() if secret in data
    ] == []


def test_an_outage_costs_the_program_nothing_and_the_rest_is_uploaded_later(
    launched: Launched, s3: S3Server
) -> None:
    s3.stop()
    ended = record(launched, "r")
    assert ended.stderr.count("--upload: ") == 1
    assert LATER.format(folder=launched.folder / "r") in ended.stderr
    quiet = launched.run(["python", "q.py", "0"], "--out", "s", "--quiet", "--upload", URL)
    (line,) = quiet.stderr.splitlines()
    assert line.endswith(LATER.format(folder=launched.folder / "s"))
    failed = launched.otel_quant("upload", "r", URL)
    assert (failed.returncode, failed.stderr.count("\n")) == (1, 1)
    s3.start()
    printed(launched, "upload", "r", URL)
    assert printed(launched, "show", f"{URL}/r") == printed(launched, "show", "r")


def test_a_wrong_key_is_one_warning_and_is_not_printed(
    launched: Launched, s3: S3Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "wrong-wrong-wrong")
    assert "403 Forbidden: SignatureDoesNotMatch: " in record(launched, "r").stderr
    read = launched.otel_quant("show", f"{URL}/r")
    assert (read.returncode, read.stderr.count("\n")) == (1, 1)
    assert read.stderr.startswith(f"otel-quant: {URL}/r: ")


@pytest.mark.slow  # the first upload is after 5 s
def test_after_a_kill_of_all_the_store_has_what_was_uploaded_and_the_rest_goes_later(
    launched: Launched, s3: S3Server
) -> None:
    (launched.folder / "q.py").write_text(PROGRAM)
    started = subprocess.Popen(
        [*launcher("--out", "r", "--upload", URL), "python", "q.py", "600"],
        cwd=launched.folder, env=launched.environment(), start_new_session=True,
    )  # fmt: skip
    try:
        while not RecordingStore(URL).recordings().get("r"):
            time.sleep(0.1)
        assert "had been running for" in printed(launched, "show", f"{URL}/r")
    finally:
        os.killpg(started.pid, signal.SIGKILL)
        started.wait()
    before = RecordingStore(f"{URL}/r").recordings()[""]
    printed(launched, "upload", "r", URL)
    after = RecordingStore(f"{URL}/r").recordings()[""]
    assert after[: len(before)] == before
    there, here = (
        printed(launched, "runs", where, "--format", "json")
        for where in (URL, str(launched.folder))
    )
    assert there.replace('"running"', '"lost"') == here  # the store cannot tell so soon


@pytest.mark.slow  # fetches a server
def test_azures_store_has_what_the_folder_has(launched: Launched, azurite: str) -> None:
    (launched.folder / "q.py").write_text(PROGRAM)
    url = f"{azurite}/runs"
    ended = launched.run(["python", "q.py", "0"], "--out", "r", "--upload", url)
    assert ended.stderr.endswith(f"\nuploaded:  {url}/r\n")
    assert printed(launched, "upload", "r", url) == f"{url}/r: 0 B sent\n"
    assert printed(launched, "show", f"{url}/r").replace(f"{url}/", "") == printed(launched, "show", "r")  # fmt: skip
    for added in (1, 0):
        assert f"{added} run" in printed(launched, "export", url, f"{azurite}/tables")
    missing = launched.otel_quant("upload", "r", "az://nothing/runs")
    assert (missing.returncode, missing.stderr.count("\n")) == (1, 1)
    assert "ContainerNotFound: The specified container does not exist" in missing.stderr
