"""A file that is valid YAML at every moment, at a path where it replaces no other file; and which path that is."""

from __future__ import annotations

import errno
import itertools
import os
import random
import re
import resource
import select
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import yaml
from opentelemetry.sdk.trace.export import SpanExportResult

from otel_quant.base import files
from otel_quant.export.quark_yaml import exporter as exporter_module
from otel_quant.export.quark_yaml.exporter import QuarkYamlSpanExporter
from otel_quant.export.quark_yaml.file import (
    ProfileRequest,
    ProgramRequest,
    create,
    profile_path,
    quark_own_path,
    requested_by,
)
from otel_quant.recordings.profile_reader import parse
from otel_quant.schema.settings import Settings
from tests.fixtures.programs import child


def names(folder: Path) -> dict[str, str]:
    return {path.name: path.read_text() for path in sorted(folder.iterdir())}


@contextmanager
def limit_on_file_size(size: int) -> Iterator[None]:
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


RECORD = """\
- step: "{name}"
  size: {{conv1: [1, 2.5]}}

  # a comment
  "two words": 12.5
  last: 1
"""


def record(name: str) -> dict[str, object]:
    return {"step": name, "size": {"conv1": [1, 2.5]}, "two words": 12.5, "last": 1}


def header(length: int) -> str:
    """The beginning of a profile, of so many bytes."""
    text = "\nmemory_usage:\n" + RECORD.format(name="Start")
    return "#" * (length - len(text)) + text


def laid_out(text: str) -> str:
    """The text without the lines of spaces that fill pages."""
    return re.sub("(?m)^ +\n", "", text)


def test_the_file_has_all_pieces_and_no_line_crosses_two_pages(tmp_path: Path) -> None:
    pieces = [RECORD.format(name="量" * (37 * n % 300)) for n in range(200)]
    pieces.append("".join(RECORD.format(name=f"of a long piece {n}") for n in range(300)))
    pieces.append("\n# Summary\ntotal: 1.0\n")
    file = create(tmp_path / "p.yaml", "memory_usage:\n")
    for piece in pieces:
        file.write(piece)
    file.close()

    data = file.path.read_bytes()
    whole = "memory_usage:\n" + "".join(pieces)
    assert laid_out(data.decode()) == whole
    assert {data[border - 1 : border] for border in range(4096, len(data), 4096)} == {b"\n"}
    assert yaml.load(data, yaml.CSafeLoader) == yaml.load(whole, yaml.CSafeLoader)


def test_a_write_cut_between_two_pages_leaves_valid_yaml(tmp_path: Path) -> None:
    piece = RECORD.format(name="Next ä")
    for in_first_page in range(1, len(piece.encode())):
        file = create(tmp_path / str(in_first_page), header(4096 - in_first_page))
        file.write(piece)
        file.close()

        data = file.path.read_bytes()
        for part in (data, data[:4096]):
            # Without the header's first line, which is long to read.
            start, *rest = yaml.safe_load(part.lstrip(b"#"))["memory_usage"]
            assert start == record("Start")
            # Of the last piece, as many keys as there are, in order.
            found = [list(each.items()) for each in rest]
            assert found == [list(record("Next ä").items())[: len(each)] for each in rest]
            names_read = [each["step"] for each in parse(part.decode()).records]
            assert names_read in (["Start"], ["Start", "Next ä"])
        assert rest or part is not data


def test_a_line_longer_than_a_page_starts_a_new_file(tmp_path: Path) -> None:
    file = create(tmp_path / "p.yaml", header(4000))
    with file.path.open("rb") as before:
        file.write(RECORD.format(name="x" * 10_000))
        assert before.read() == header(4000).encode()  # a kill would have left this
    file.write(RECORD.format(name="Next"))

    names_read = [each["step"] for each in yaml.safe_load(file.path.read_bytes())["memory_usage"]]
    assert names_read == ["Start", "x" * 10_000, "Next"]
    assert create(tmp_path / "p.yaml", "other\n").path != file.path  # it is locked as before
    assert not list(tmp_path.glob(".*"))


def test_a_piece_without_disk_space_is_lost_and_the_next_is_tried(tmp_path: Path) -> None:
    file = create(tmp_path / "p.yaml", "one\n")

    with limit_on_file_size(10):
        file.write("two\n")
        with pytest.raises(OSError, match="File too large") as caught:
            file.write("three\n")
        assert (caught.value.errno, caught.value.filename) == (errno.EFBIG, str(file.path))
        file.write("4\n")
    file.write("five\n")

    assert (tmp_path / "p.yaml").read_text() == "one\ntwo\n4\nfive\n"


@pytest.mark.parametrize("size", [4096, 4097, 4100])
def test_a_piece_is_removed_if_its_second_page_cannot_be_written(tmp_path: Path, size: int) -> None:
    file = create(tmp_path / "p.yaml", header(4050))

    with limit_on_file_size(size), pytest.raises(OSError, match="File too large"):
        file.write(RECORD.format(name="Lost"))
    assert (tmp_path / "p.yaml").read_text() == header(4050)

    file.write(RECORD.format(name="Next"))
    assert laid_out(file.path.read_text()) == header(4050) + RECORD.format(name="Next")


def test_pieces_from_a_timers_handler_are_neither_lost_nor_mixed(tmp_path: Path) -> None:
    file = create(tmp_path / "p.yaml", "memory_usage:\n")
    by_handler = itertools.count()
    before = signal.signal(
        signal.SIGALRM, lambda *_: file.write(RECORD.format(name=f"handler {next(by_handler)}"))
    )
    try:
        signal.setitimer(signal.ITIMER_REAL, 1e-4, 1e-4)
        for number in range(3000):
            file.write(RECORD.format(name=f"step {number}"))
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
    file.close()

    records = yaml.load(file.path.read_bytes(), yaml.CSafeLoader)["memory_usage"]
    assert all(found == record(found["step"]) for found in records)
    handled = next(by_handler)
    assert handled > 0
    names = [found["step"] for found in records]
    assert [name for name in names if name.startswith("step")] == [
        f"step {number}" for number in range(3000)
    ]
    # A handler may be interrupted by the next one.
    assert sorted(name for name in names if not name.startswith("step")) == sorted(
        f"handler {number}" for number in range(handled)
    )


def test_a_character_device_is_written_to_directly() -> None:
    file = create(Path("/dev/null"), "one\n")
    file.write("two\n")
    file.close()

    with pytest.raises(OSError, match="No space left on device"):
        create(Path("/dev/full"), "one\n")


@pytest.mark.parametrize(
    ("make", "error"),
    [
        (lambda path: path.mkdir(), "not a regular file"),
        (os.mkfifo, "not a regular file"),
        (lambda path: path.symlink_to(path.parent / "gone" / "p.yaml"), "No such file"),
    ],
    ids=["folder", "pipe", "no folder"],
)
def test_an_unwritable_path_is_rejected_and_nothing_changes(
    tmp_path: Path, make: Callable[[Path], None], error: str
) -> None:
    make(tmp_path / "p.yaml")

    with pytest.raises(OSError, match=error):
        create(tmp_path / "p.yaml", "one\n")

    assert [path.name for path in tmp_path.iterdir()] == ["p.yaml"]


def test_a_full_disk_at_the_first_piece_keeps_the_existing_file(tmp_path: Path) -> None:
    (tmp_path / "p.yaml").write_text("old\n")

    with limit_on_file_size(2), pytest.raises(OSError, match="File too large"):
        create(tmp_path / "p.yaml", "one\n")

    assert names(tmp_path) == {"p.1.yaml": "old\n"}


def test_a_kill_at_any_moment_leaves_valid_yaml_with_all_pieces_that_were_appended(
    tmp_path: Path,
) -> None:
    for round_ in range(25):
        path = tmp_path / f"{round_}.yaml"
        reader, writer = os.pipe()

        def run(path: Path = path, writer: int = writer) -> None:
            file = create(path, "memory_usage:\n" + RECORD.format(name="0"))
            for number in range(1, 1_000_000):
                os.write(writer, b".")  # one byte for each piece appended
                file.write(RECORD.format(name=number))

        pid = child(run)
        os.close(writer)
        appended = len(os.read(reader, 1))
        time.sleep(random.uniform(0, 0.01))
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
        while data := os.read(reader, 65536):
            appended += len(data)
        os.close(reader)

        records = yaml.load(path.read_bytes(), yaml.CSafeLoader)["memory_usage"]
        assert len(records) in (appended, appended + 1)  # all that were appended are there
        assert records[:appended] == [record(str(number)) for number in range(appended)]
        last = records[appended:]
        assert last == [dict([*record(str(appended)).items()][: len(each)]) for each in last]


def test_older_files_are_kept_by_number_the_oldest_has_the_number_1(tmp_path: Path) -> None:
    for run in ("first\n", "second\n", "third\n", "fourth\n"):
        create(tmp_path / "p.yaml", run).close()
    assert names(tmp_path) == {
        "p.yaml": "fourth\n", "p.1.yaml": "first\n", "p.2.yaml": "second\n", "p.3.yaml": "third\n",
    }  # fmt: skip


def test_files_that_have_a_number_keep_it(tmp_path: Path) -> None:
    (tmp_path / "p.1").mkdir()
    (tmp_path / "p.2").write_text("two\n")
    living = create(tmp_path / "p.3", "living\n")
    (tmp_path / "p.4").symlink_to(tmp_path / "nowhere")
    for run in ("first\n", "second\n"):
        create(tmp_path / "p", run).close()
    living.write("goes on\n")
    (tmp_path / "p.1").rmdir()
    assert (tmp_path / "p.4").is_symlink()
    (tmp_path / "p.4").unlink()
    assert names(tmp_path) == {
        "p": "second\n", "p.2": "two\n", "p.3": "living\ngoes on\n", "p.5": "first\n",
    }  # fmt: skip


def test_an_empty_file_is_replaced(tmp_path: Path) -> None:
    (tmp_path / "p.yaml").touch()
    create(tmp_path / "p.yaml", "run\n").close()
    assert names(tmp_path) == {"p.yaml": "run\n"}


def test_a_living_run_keeps_its_path_and_the_next_gets_one_with_its_process_id(
    tmp_path: Path,
) -> None:
    first = create(tmp_path / "p.yaml", "first\n")
    second = create(tmp_path / "p.yaml", "second\n")
    first.write("goes on\n")
    second.close()
    third = create(tmp_path / "p.yaml", "third\n")
    own = f"p.{os.getpid()}"
    assert (second.path, third.path) == (tmp_path / f"{own}.yaml",) * 2
    assert names(tmp_path) == {
        "p.yaml": "first\ngoes on\n", f"{own}.yaml": "third\n", f"{own}.1.yaml": "second\n",
    }  # fmt: skip


def test_a_link_is_followed_and_stays_a_link(tmp_path: Path) -> None:
    (tmp_path / "out").mkdir()
    (tmp_path / "p.yaml").symlink_to(tmp_path / "out" / "real.yaml")
    for run in ("first\n", "second\n"):
        create(tmp_path / "p.yaml", run).close()
    assert (tmp_path / "p.yaml").is_symlink()
    assert names(tmp_path / "out") == {"real.yaml": "second\n", "real.1.yaml": "first\n"}


@pytest.mark.parametrize("which", [1, 2, 3])
def test_a_run_has_its_file_if_another_numbers_the_old_one_after_any_look_at_the_path(
    which: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, look, looks = tmp_path / "p.yaml", Path.stat, itertools.count(1)
    path.write_text("old\n")

    def look_then_number(looked_at: Path, **options: Any) -> os.stat_result:
        found = look(looked_at, **options)
        if looked_at == path and next(looks) == which:
            path.rename(tmp_path / "p.1.yaml")
        return found

    monkeypatch.setattr(Path, "stat", look_then_number)
    create(path, "run\n").close()
    assert names(tmp_path) == {"p.yaml": "run\n", "p.1.yaml": "old\n"}


def test_many_runs_that_start_at_once_lose_no_file(tmp_path: Path) -> None:
    folders = [tmp_path / str(number) for number in range(15)]
    for folder in folders:
        folder.mkdir()
        (folder / "p.yaml").write_text("old\n")
    gates = [os.pipe() for _ in (*folders, "the end")]
    written, writing = os.pipe()

    def run() -> None:
        for _, shut in gates:
            os.close(shut)
        for folder, (gate, _) in zip(folders, gates, strict=False):
            os.read(gate, 1)  # returns when the parent closes its end
            file = create(folder / "p.yaml", f"run {os.getpid()}\n")
            file.write(f"at {file.path.name}\n")
            os.write(writing, b".")
        os.read(gates[-1][0], 1)  # until then, and from gate to gate, all of them live at once

    pids = [child(run) for _ in range(6)]
    for _, shut in gates[:-1]:
        os.close(shut)
        for _ in pids:
            assert select.select([written], [], [], 60)[0]
            os.read(written, 1)
    os.close(gates[-1][1])
    assert [os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) for pid in pids] == [0] * len(pids)
    for descriptor in (written, writing, *(gate for gate, _ in gates)):
        os.close(descriptor)

    for folder in folders:
        runs = names(folder)
        assert runs.pop("p.1.yaml") == "old\n"
        assert sorted(text.split()[1] for text in runs.values()) == sorted(map(str, pids))
        assert {text.split()[3] for text in runs.values()} == set(runs)
        assert "p.yaml" in runs


def test_no_file_is_replaced_without_locks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(files, "LOCKS_EXIST", False)  # as on Windows
    for run in ("first\n", "second\n", "third\n"):
        create(tmp_path / "p.yaml", run).close()
    assert names(tmp_path) == {"p.yaml": "third\n", "p.1.yaml": "first\n", "p.2.yaml": "second\n"}

    def refuse(*_: object) -> None:
        raise PermissionError(errno.EACCES, "open in another process")

    monkeypatch.setattr(Path, "replace", refuse)
    create(tmp_path / "p.yaml", "fourth\n").close()
    assert names(tmp_path)[f"p.{os.getpid()}.yaml"] == "fourth\n"


@pytest.mark.parametrize(
    ("named", "rank", "is_child", "quarks", "expected"),
    [
        (None, None, False, None, "quark_profile.yaml"),
        ("out/mine.yml", None, False, None, "out/mine.yml"),
        ("mine", None, True, None, "mine.<pid>"),
        (None, 3, False, None, "quark_profile.rank3.yaml"),
        (None, 0, True, None, "quark_profile.rank0.<pid>.yaml"),
        ("out/", None, False, None, "out/quark_profile.yaml"),
        ("..", None, False, None, "../quark_profile.yaml"),  # a folder that is there
        (None, None, False, "quark_profile.yaml", "quark_profile.otel.yaml"),
        (None, None, False, "./elsewhere.yaml", "quark_profile.yaml"),
        (None, 3, False, "quark_profile.yaml", "quark_profile.rank3.yaml"),
        ("a/../quark_profile.yaml", None, False, "quark_profile.yaml", "a/../quark_profile.otel.yaml"),
    ],
)  # fmt: skip
def test_each_process_has_its_own_path(
    named: str | None, rank: int | None, is_child: bool, quarks: str | None, expected: str
) -> None:
    path = expected.replace("<pid>", str(os.getpid()))
    assert profile_path(ProfileRequest(named), rank, is_child, quarks) == Path(path)


def test_an_exact_path_is_used_unchanged() -> None:
    request = ProfileRequest("mine.yaml", is_exact=True)

    assert profile_path(request, 3, True, "mine.yaml") == Path("mine.yaml")


ENVIRONMENT = Settings(profile_path="env.yaml", yaml_strict=True)


def test_a_path_from_the_program_overrides_the_environment() -> None:
    program = ProgramRequest()
    program.ask()
    assert requested_by(ENVIRONMENT, program.latest) == ProfileRequest("env.yaml", True, True)

    program.ask("own.yaml", makes_folders=False)
    assert requested_by(ENVIRONMENT, program.latest) == ProfileRequest("own.yaml", False, True)

    program.ask()
    assert requested_by(Settings(), program.latest) == ProfileRequest("own.yaml", False, False)


def test_the_span_exporter_requests_the_file_and_ignores_spans(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    program = ProgramRequest()
    monkeypatch.setattr(exporter_module, "PROGRAM_REQUEST", program)
    exporter = QuarkYamlSpanExporter()

    assert program.latest == ProfileRequest()
    assert exporter.export([]) is SpanExportResult.SUCCESS
    assert exporter.force_flush()
    exporter.shutdown()


def profiler(**instance: Any) -> dict[str, Any]:
    own = SimpleNamespace(_initialized=True, **instance) if instance else None
    module = SimpleNamespace(GlobalProfiler=SimpleNamespace(_instance=own))
    return {"quark.common.profiler.profiler": module}


@pytest.mark.parametrize(
    ("environ", "modules", "expected"),
    [
        ({"QUARK_PROFILING": "1"}, {}, None),
        ({"QUARK_PROFILING": "1"}, profiler(), "quark_profile.yaml"),
        ({}, profiler(), None),
        ({"QUARK_PROFILING": "true"}, profiler(), None),
        ({"QUARK_PROFILING": "1"}, profiler(enabled=True, output_path="q.yaml"), "q.yaml"),
        ({"QUARK_PROFILING": "1"}, profiler(enabled=False, output_path="q.yaml"), None),
    ],
)
def test_the_path_of_quarks_own_file_is_known_before_quark_opens_it(
    environ: dict[str, str], modules: dict[str, Any], expected: str | None
) -> None:
    assert quark_own_path(environ, modules) == expected
