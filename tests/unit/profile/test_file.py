"""A file that is whole at every moment, and that never replaces another unasked."""

from __future__ import annotations

import errno
import os
import random
import resource
import select
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from otel_quant.profile import file as profile_file
from otel_quant.profile.file import ProfileFile, create


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


def child(work: Callable[[], None]) -> int:
    pid = os.fork()
    if pid == 0:
        try:
            work()
            os._exit(0)
        finally:
            os._exit(1)
    return pid


def test_a_new_file_has_its_path_its_first_piece_and_nothing_else_beside_it(
    tmp_path: Path,
) -> None:
    file = create(tmp_path / "p.yaml", "one\n")
    file.append("two\n")

    assert file.path == tmp_path / "p.yaml"
    assert names(tmp_path) == {"p.yaml": "one\ntwo\n"}


def test_what_a_finished_run_left_is_kept_under_the_next_number(tmp_path: Path) -> None:
    for run in ("first\n", "second\n", "third\n"):
        create(tmp_path / "p.yaml", run).close()

    assert names(tmp_path) == {"p.yaml": "third\n", "p.1.yaml": "first\n", "p.2.yaml": "second\n"}


def test_a_file_of_someone_else_is_kept_too(tmp_path: Path) -> None:
    (tmp_path / "p").write_text("notes\n")
    (tmp_path / "p.1").write_text("more notes\n")

    create(tmp_path / "p", "run\n").close()

    assert names(tmp_path) == {"p": "run\n", "p.1": "more notes\n", "p.2": "notes\n"}


def test_an_empty_file_is_not_worth_keeping(tmp_path: Path) -> None:
    (tmp_path / "p.yaml").touch()

    create(tmp_path / "p.yaml", "run\n").close()

    assert names(tmp_path) == {"p.yaml": "run\n"}


def test_a_run_that_lives_keeps_the_path_and_the_next_stands_beside_it(tmp_path: Path) -> None:
    first = create(tmp_path / "p.yaml", "first\n")

    second = create(tmp_path / "p.yaml", "second\n")
    first.append("goes on\n")
    second.close()
    third = create(tmp_path / "p.yaml", "third\n")

    assert (second.path, third.path) == (tmp_path / f"p.{os.getpid()}.yaml",) * 2
    assert names(tmp_path) == {
        "p.yaml": "first\ngoes on\n",
        f"p.{os.getpid()}.yaml": "third\n",
        f"p.{os.getpid()}.1.yaml": "second\n",
    }


def test_a_link_is_followed_and_stays_a_link(tmp_path: Path) -> None:
    (tmp_path / "out").mkdir()
    (tmp_path / "p.yaml").symlink_to(tmp_path / "out" / "real.yaml")

    for run in ("first\n", "second\n"):
        create(tmp_path / "p.yaml", run).close()

    assert (tmp_path / "p.yaml").is_symlink()
    assert names(tmp_path / "out") == {"real.yaml": "second\n", "real.1.yaml": "first\n"}


@pytest.mark.parametrize("links", [True, False], ids=["with links", "without links"])
def test_many_runs_that_start_at_once_lose_nothing(
    tmp_path: Path, links: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not links:  # as on FAT

        def refuse(*_: object) -> None:
            raise OSError(errno.EPERM, "no links here")

        monkeypatch.setattr(profile_file.os, "link", refuse)  # fmt: skip
    for round_ in range(15 if links else 1):
        folder = tmp_path / str(round_)
        folder.mkdir()
        (folder / "p.yaml").write_text("old\n")
        starting, go = os.pipe()
        ending, end = os.pipe()
        written, tell = os.pipe()

        def run(
            folder: Path = folder,
            ours: tuple[int, int, int] = (starting, tell, ending),
            parents: tuple[int, int] = (go, end),
        ) -> None:
            starting, tell, ending = ours
            for descriptor in parents:
                os.close(descriptor)
            os.read(starting, 1)  # returns when the parent closes its end
            file = create(folder / "p.yaml", f"run {os.getpid()}\n")
            file.append(f"at {file.path.name}\n")
            os.write(tell, b".")
            os.read(ending, 1)  # the same: all of them live at once

        pids = [child(run) for _ in range(6 if links else 1)]
        for descriptor in (starting, tell, ending, go):
            os.close(descriptor)
        for _ in pids:
            assert select.select([written], [], [], 60)[0]
            os.read(written, 1)
        os.close(written)
        os.close(end)
        assert [os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) for pid in pids] == [0] * len(pids)

        found = names(folder)
        kept = [text for name, text in found.items() if name == "p.1.yaml"]
        runs = {name: text for name, text in found.items() if name != "p.1.yaml"}
        assert kept == ["old\n"]
        assert sorted(text.split()[1] for text in runs.values()) == sorted(map(str, pids))
        assert {text.split()[3] for text in runs.values()} == set(runs)
        assert "p.yaml" in runs


def test_without_locks_no_file_is_replaced_either(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(profile_file, "fcntl", None)  # as on Windows
    for run in ("first\n", "second\n", "third\n"):
        create(tmp_path / "p.yaml", run).close()

    assert names(tmp_path) == {"p.yaml": "third\n", "p.1.yaml": "first\n", "p.2.yaml": "second\n"}

    def refuse(*_: object) -> None:
        raise PermissionError(errno.EACCES, "open in another process")

    monkeypatch.setattr(Path, "rename", refuse)
    create(tmp_path / "p.yaml", "fourth\n").close()
    assert names(tmp_path)[f"p.{os.getpid()}.yaml"] == "fourth\n"


def test_a_piece_never_lies_across_two_pages(tmp_path: Path) -> None:
    file = create(tmp_path / "p.yaml", "head\n")
    pieces = [f"- {n}: {'x' * (37 * n % 300)}\n" for n in range(200)]
    for piece in pieces:
        file.append(piece)

    text = (tmp_path / "p.yaml").read_text()
    assert [line for line in text.splitlines(keepends=True) if line.strip()] == ["head\n", *pieces]
    start = 0
    for line in text.splitlines(keepends=True):
        assert start // 4096 == (start + len(line) - 1) // 4096
        start += len(line)


def test_lines_fill_the_page_before_they_go_to_the_next(tmp_path: Path) -> None:
    file = create(tmp_path / "p.yaml", "x" * 4000 + "\n")

    file.append_lines("a" * 49 + "\n" + "b" * 99 + "\n" + "c" * 9 + "\n")

    assert (tmp_path / "p.yaml").read_text().splitlines()[1:] == [
        "a" * 49, " " * 44, "b" * 99, "c" * 9,
    ]  # fmt: skip


def test_a_piece_that_the_disk_does_not_take_whole_is_taken_back_and_tried_again(
    tmp_path: Path,
) -> None:
    file = create(tmp_path / "p.yaml", "one\n")

    with limit_on_file_size(10):
        file.append("two\n")
        for piece in ("three\n", "4\n"):  # the second would fit
            with pytest.raises(OSError, match="File too large") as caught:
                file.append(piece)
            assert (caught.value.errno, caught.value.filename) == (errno.EFBIG, str(file.path))
    assert (tmp_path / "p.yaml").read_text() == "one\ntwo\n"

    file.append("five\n")  # there is room again
    assert (tmp_path / "p.yaml").read_text() == "one\ntwo\nthree\n4\nfive\n"


def test_what_waits_for_room_is_bounded(tmp_path: Path) -> None:
    file = create(tmp_path / "p.yaml", "one\n")

    with limit_on_file_size(4):
        for number in range(3000):
            with pytest.raises(OSError, match="File too large"):
                file.append(f"{number}\n")
    file.append("end\n")

    expected = "".join(f"{number}\n" for number in range(1000))
    assert (tmp_path / "p.yaml").read_text().replace(" ", "").replace("\n\n", "\n") == (
        f"one\n{expected}end\n"
    )


@pytest.mark.parametrize("moment", range(6))
def test_a_signal_handler_that_writes_in_the_middle_of_a_piece_spoils_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, moment: int
) -> None:
    file = create(tmp_path / "p.yaml", "one\n")
    calls = 0

    def interrupted(of: bytes) -> int:
        # A handler runs between two steps of the interpreter: after a call, for one.
        nonlocal calls
        calls += 1
        if calls == moment + 1:
            file.append("handler\n")
        return len(of)

    monkeypatch.setattr(profile_file, "len", interrupted, raising=False)
    file.append("two\n")
    file.append("three\n")
    file.append("four\n")
    file.close()
    lines = (tmp_path / "p.yaml").read_text().splitlines()
    assert [line for line in lines if line != "handler"] == ["one", "two", "three", "four"]
    assert lines.count("handler") == 1


def test_a_device_is_written_to_as_it_is() -> None:
    file = create(Path("/dev/null"), "one\n")
    file.append("two\n")
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
def test_a_path_that_cannot_be_written_is_refused_and_nothing_changes(
    tmp_path: Path, make: Callable[[Path], None], error: str
) -> None:
    make(tmp_path / "p.yaml")

    with pytest.raises(OSError, match=error):
        create(tmp_path / "p.yaml", "one\n")

    assert [path.name for path in tmp_path.iterdir()] == ["p.yaml"]


def test_no_space_for_the_first_piece_leaves_what_was_there(tmp_path: Path) -> None:
    (tmp_path / "p.yaml").write_text("old\n")

    with limit_on_file_size(2), pytest.raises(OSError, match="File too large"):
        create(tmp_path / "p.yaml", "one\n")

    assert names(tmp_path) == {"p.yaml": "old\n"}


def test_a_file_that_was_removed_is_reported(tmp_path: Path) -> None:
    file = create(tmp_path / "p.yaml", "one\n")
    file.path.unlink()

    with pytest.raises(FileNotFoundError, match="has been removed"):
        file.append("two\n")


def test_a_file_that_another_program_truncates_is_left_to_it(tmp_path: Path) -> None:
    file = create(tmp_path / "p.yaml", "one\n")
    file.path.write_text("theirs\n")

    with pytest.raises(OSError, match="another program writes to the profile"):
        file.append("two\n")

    assert names(tmp_path) == {"p.yaml": "theirs\n"}


def descriptor_of(file: ProfileFile) -> int:
    assert file._descriptor is not None
    return file._descriptor


def test_a_descriptor_that_the_program_closed_is_never_written_to(tmp_path: Path) -> None:
    file = create(tmp_path / "p.yaml", "one\n")
    os.close(descriptor_of(file))

    with pytest.raises(OSError, match="Bad file descriptor"):
        file.append("two\n")

    file.close()


def test_a_descriptor_that_the_program_reused_is_left_to_it(tmp_path: Path) -> None:
    file = create(tmp_path / "p.yaml", "one\n")
    theirs = os.open(tmp_path / "theirs", os.O_WRONLY | os.O_CREAT)
    os.dup2(theirs, descriptor_of(file))
    reused = descriptor_of(file)

    with pytest.raises(OSError, match="the program has closed the profile"):
        file.append("two\n")
    file.close()

    os.write(reused, b"still open\n")
    assert names(tmp_path) == {"p.yaml": "one\n", "theirs": "still open\n"}
    os.close(reused)
    os.close(theirs)


def test_a_file_that_has_been_moved_goes_on_where_it_is(tmp_path: Path) -> None:
    file = create(tmp_path / "p.yaml", "one\n")

    file.move(tmp_path / "p.otel.yaml")
    (tmp_path / "p.yaml").write_text("theirs\n")
    file.append("two\n")

    assert file.path == tmp_path / "p.otel.yaml"
    assert names(tmp_path) == {"p.yaml": "theirs\n", "p.otel.yaml": "one\ntwo\n"}


def test_a_forked_child_can_let_go_without_the_parent_noticing(tmp_path: Path) -> None:
    file = create(tmp_path / "p.yaml", "one\n")

    assert os.waitpid(child(file.close), 0)[1] == 0

    file.append("two\n")
    other = create(tmp_path / "p.yaml", "other\n")
    assert names(tmp_path) == {"p.yaml": "one\ntwo\n", other.path.name: "other\n"}


def test_a_kill_at_any_moment_leaves_whole_pieces_and_all_that_were_taken(tmp_path: Path) -> None:
    piece = "- piece {}\n  of: several\n  lines: three\n"
    for round_ in range(25):
        path = tmp_path / f"{round_}.yaml"
        reader, writer = os.pipe()

        def run(path: Path = path, writer: int = writer) -> None:
            file = create(path, piece.format(0))
            for number in range(1, 1_000_000):
                os.write(writer, b".")  # so many have been taken
                file.append(piece.format(number))

        pid = child(run)
        os.close(writer)
        taken = len(os.read(reader, 1))
        time.sleep(random.uniform(0, 0.01))
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
        while data := os.read(reader, 65536):
            taken += len(data)
        os.close(reader)

        lines = [line for line in path.read_text().splitlines(keepends=True) if line.strip()]
        count = len(lines) // 3
        assert count >= taken
        assert "".join(lines) == "".join(piece.format(number) for number in range(count))
