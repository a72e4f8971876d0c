"""What a program notices when its local file cannot be written: one line in the log."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from tests.fixtures.script import run_script

BEGIN = """
import os, resource, sys
from otel_quant.quark import GlobalProfiler
"""

STEPS = """
profiler = GlobalProfiler(sys.argv[1])
{fault}
for number in range(20):
    with profiler.scope(f"Step {{number}}"):
        pass
print("done", len(profiler.records))
"""


@pytest.mark.parametrize(
    ("path", "before", "fault", "error", "records"),
    [
        ("p.yaml", "resource.setrlimit(resource.RLIMIT_FSIZE, (3000, 3000))", "", "File too large: 'HERE/p.yaml'", 17),
        ("/dev/full", "", "", "No space left on device: '/dev/full'", None),
        ("gone/p.yaml", "", "", "No such file or directory: 'HERE/gone/p.yaml'", None),
        ("folder", "os.mkdir('folder/quark_profile.yaml')", "", "not a regular file; give the path of a file: 'HERE/folder/quark_profile.yaml'", None),
        ("p.yaml", "", "os.closerange(3, 2000)", "Bad file descriptor: 'HERE/p.yaml'", 1),
        ("p.yaml", "", "theirs = os.open('theirs', os.O_WRONLY | os.O_CREAT); [os.dup2(theirs, number) for number in range(3, 900)]", "the program has closed this file's descriptor and used its number again; it must close only what it has opened: 'HERE/p.yaml'", 1),
        ("p.yaml", "", "os.unlink('p.yaml')", "this file has been removed while its run wrote it: 'HERE/p.yaml'", None),
        ("p.yaml", "", "open('p.yaml', 'w').write('memory_usage:\\n- step: theirs\\n')", "another program has written to this file; give each program a path of its own: 'HERE/p.yaml'", 1),
    ],
    ids=["too large", "full", "no folder", "a folder", "closed", "used again", "removed", "overwritten"],
)  # fmt: skip
def test_a_file_that_cannot_be_written_is_logged_once_and_the_program_goes_on(
    tmp_path: Path, path: str, before: str, fault: str, error: str, records: int | None
) -> None:
    (tmp_path / "folder").mkdir()

    out, err = run_script(
        tmp_path, BEGIN + before + STEPS.format(fault=fault), path, QUARK_PROFILING="1"
    )

    assert out == "done 41\n"
    assert len(err.splitlines()) == 1
    assert err.startswith("sink quark_yaml failed and is skipped")
    assert err.endswith(error.replace("HERE", str(tmp_path)) + "\n")
    if records is not None:
        kept = yaml.safe_load((tmp_path / path).read_bytes())["memory_usage"]
        # The figures' digits decide how many records have room in 3000 bytes.
        assert abs(len(kept) - records) <= (2 if records > 1 else 0)
        assert len({len(record.keys() - {"error"}) for record in kept}) == 1
        names = [f"Step {number} {end}" for number in range(20) for end in ("Start", "End")]
        steps = [record["step"] for record in kept]
        # A record that is shorter than one before it may have room when that had none.
        assert steps[1:] == [name for name in [*names, "End"] if name in steps]
    assert not (tmp_path / "theirs").exists() or (tmp_path / "theirs").read_bytes() == b""
    assert not list(tmp_path.glob(".otel-quant-*"))


def test_two_runs_at_once_at_one_path_both_have_a_file(tmp_path: Path) -> None:
    run_script(
        tmp_path,
        BEGIN
        + """
import subprocess
profiler = GlobalProfiler("p.yaml")
if len(sys.argv) == 1:
    with profiler.scope("First"):
        environ = {**os.environ, "PYTHONSAFEPATH": "1"}
        subprocess.run([sys.executable, "-P", sys.argv[0], "second"], check=True, env=environ)
else:
    with profiler.scope("Second"):
        pass
""",
        QUARK_PROFILING="1",
    )

    texts = {path.name: path.read_text() for path in tmp_path.glob("p*.yaml")}
    assert len(texts) == 2
    assert "First End" in texts.pop("p.yaml")
    assert "Second End" in texts.popitem()[1]
