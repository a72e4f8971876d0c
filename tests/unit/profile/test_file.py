"""A file that is valid YAML at every moment, whenever the process is killed."""

from __future__ import annotations

import errno
import itertools
import os
import random
import resource
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest
import yaml

from otel_quant.export.quark_yaml import file as profile_file
from otel_quant.export.quark_yaml.file import ProfileFile, create
from otel_quant.recordings.profile_reader import parse
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


def test_a_new_file_is_at_its_path_and_no_other_file_is_made(
    tmp_path: Path,
) -> None:
    file = create(tmp_path / "p.yaml", "one\n")
    file.append("two\n")

    assert file.path == tmp_path / "p.yaml"
    assert names(tmp_path) == {"p.yaml": "one\ntwo\n"}


def test_the_file_is_its_pieces_without_padding(
    tmp_path: Path,
) -> None:
    pieces = [RECORD.format(name="x" * (37 * n % 300)) for n in range(200)]
    pieces.append("".join(RECORD.format(name=f"of a long piece {n}") for n in range(300)))
    pieces.append("\n# Summary\ntotal: 1.0\n")
    file = create(tmp_path / "p.yaml", "memory_usage:\n")
    for piece in pieces:
        file.append(piece)
    file.close()

    assert (tmp_path / "p.yaml").read_text() == "memory_usage:\n" + "".join(pieces)


@pytest.mark.parametrize(
    ("character", "escape"), [("ä", r"\xe4"), ("量", r"\u91cf"), ("🚀", r"\U0001f680")]
)
def test_a_character_that_would_lie_across_two_pages_is_written_as_its_yaml_escape(
    tmp_path: Path, character: str, escape: str
) -> None:
    length = len(character.encode())
    for in_first_page in range(length + 1):
        name = f"ä{character}量"
        beginning = header(4096 - len('- step: "ä'.encode()) - in_first_page)
        file = create(tmp_path / str(in_first_page), beginning)
        file.append(RECORD.format(name=name))
        file.close()

        data = (tmp_path / str(in_first_page)).read_bytes()
        written = name if in_first_page in (0, length) else f"ä{escape}量"
        assert data.decode() == beginning + RECORD.format(name=written)
        for part in (data, data[:4096]):
            assert yaml.safe_load(part.rpartition(b"\n")[0])["memory_usage"][0] == record("Start")
        assert yaml.safe_load(data)["memory_usage"][1] == record(name)


def killed_in_write(file: ProfileFile, text: str, number: int, *, cut: bool) -> bool:
    """Appends a piece in a child that kills itself in one of the writes to the file.

    Args:
        file: The file.
        text: The piece.
        number: The write, from 0.
        cut: Whether it is killed as the kernel does it in the middle of a write: with the
            first page written and the next not. Else it is killed before the write.

    Returns:
        Whether there was a write of that number.
    """

    def work() -> None:
        count = itertools.count()

        def write(descriptor: int, data: bytes, offset: int) -> int:
            if next(count) == number:
                if cut:
                    os.pwrite(descriptor, data[: 4096 - offset % 4096], offset)
                os.kill(os.getpid(), signal.SIGKILL)
            return os.pwrite(descriptor, data, offset)

        profile_file.write_at = write
        file.append(text)

    status = os.waitpid(child(work), 0)[1]
    assert os.waitstatus_to_exitcode(status) in (0, -signal.SIGKILL)
    return os.WIFSIGNALED(status)


@pytest.mark.parametrize("cut", [False, True], ids=["before a write", "between two pages"])
def test_a_kill_in_any_write_leaves_valid_yaml_with_all_pieces_before_it(
    tmp_path: Path, cut: bool
) -> None:
    piece = RECORD.format(name="Next")
    for in_first_page in range(len(piece) + 1):
        beginning = header(4096 - in_first_page)
        for number in itertools.count():
            file = create(tmp_path / "p.yaml", beginning)
            killed = killed_in_write(file, piece, number, cut=cut)
            file.close()

            data = file.path.read_bytes()
            file.path.unlink()
            for loader in (yaml.SafeLoader, yaml.CSafeLoader):
                # Without the header's first line, which is long to read.
                start, *rest = yaml.load(data.lstrip(b"#"), loader)["memory_usage"]
                assert start == record("Start")
                # Of the last piece, as many keys as there are, in order.
                whole = list(record("Next").items())
                assert [list(part.items()) for part in rest[:1]] == [
                    whole[: len(part)] for part in rest
                ]
            names_read = [found["step"] for found in parse(data.decode()).records]
            assert names_read in (["Start"], ["Start", "Next"])
            if not killed:
                assert data.decode() == beginning + piece
                break
        crosses = 0 < in_first_page < len(piece)
        assert number == (3 if crosses else 1)


@pytest.mark.parametrize("number", range(4))
def test_a_kill_in_a_piece_of_many_pages_leaves_a_part_of_its_records(
    tmp_path: Path, number: int
) -> None:
    many = [f"model {n}" for n in range(100)]
    file = create(tmp_path / "p.yaml", header(4000))

    assert killed_in_write(
        file, "\nonnx_model_cost:\n" + "".join(RECORD.format(name=name) for name in many),
        number, cut=True,
    )  # fmt: skip

    content = yaml.safe_load(file.path.read_bytes())
    assert content.pop("memory_usage") == [record("Start")]
    costs = content.pop("onnx_model_cost", None) or []
    assert content == {}
    assert costs[:-1] == [record(name) for name in many[: len(costs)]][:-1]
    assert len(costs) == [0, 1, 47, 92][number]


def test_a_piece_for_which_there_is_no_room_is_lost_and_the_next_is_tried(tmp_path: Path) -> None:
    file = create(tmp_path / "p.yaml", "one\n")

    with limit_on_file_size(10):
        file.append("two\n")
        with pytest.raises(OSError, match="File too large") as caught:
            file.append("three\n")
        assert (caught.value.errno, caught.value.filename) == (errno.EFBIG, str(file.path))
        file.append("4\n")
    file.append("five\n")

    assert (tmp_path / "p.yaml").read_text() == "one\ntwo\n4\nfive\n"


@pytest.mark.parametrize("size", [4096, 4097, 4100])
def test_a_piece_is_removed_if_its_second_page_cannot_be_written(tmp_path: Path, size: int) -> None:
    file = create(tmp_path / "p.yaml", header(4050))

    with limit_on_file_size(size), pytest.raises(OSError, match="File too large"):
        file.append(RECORD.format(name="Lost"))
    assert (tmp_path / "p.yaml").read_text() == header(4050)

    file.append(RECORD.format(name="Next"))
    assert (tmp_path / "p.yaml").read_text() == header(4050) + RECORD.format(name="Next")


@pytest.mark.parametrize("moment", range(9))
def test_a_piece_from_a_signal_handler_is_before_or_after_the_interrupted_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, moment: int
) -> None:
    beginning, before, after = header(4050), RECORD.format(name="1"), RECORD.format(name="2")
    file = create(tmp_path / "p.yaml", beginning)
    handled = RECORD.format(name="handler")
    calls = itertools.count()

    def interrupted(of: bytes) -> int:
        # Python runs a handler after the call of a function, among other moments.
        if next(calls) == moment:
            file.append(handled)
        return len(of)

    monkeypatch.setattr(profile_file, "len", interrupted, raising=False)
    file.append(before)
    file.append(after)
    file.close()

    assert (tmp_path / "p.yaml").read_text() in (
        beginning + handled + before + after,
        beginning + before + handled + after,
        beginning + before + after + handled,
    )
    assert next(calls) > moment


@pytest.mark.parametrize("moment", range(4))
@pytest.mark.parametrize("raises", [False, True])
def test_an_interrupted_piece_is_finished_before_that_of_the_signal_handler(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, moment: int, raises: bool
) -> None:
    file = create(tmp_path / "p.yaml", header(4050))
    writes = itertools.count()

    def interrupted(descriptor: int, data: bytes, offset: int) -> int:
        written = os.pwrite(descriptor, data, offset)
        if next(writes) == moment:
            if raises:
                raise KeyboardInterrupt
            file.append(RECORD.format(name="handler"))
            steps = yaml.safe_load(file.path.read_bytes())["memory_usage"]
            assert [step["step"] for step in steps] in (
                ["Start", "1", "handler"], ["Start", "1", "2", "handler"],
            )  # fmt: skip
        return written

    monkeypatch.setattr(profile_file, "write_at", interrupted)
    for name in ("1", "2"):
        with suppress(KeyboardInterrupt):
            file.append(RECORD.format(name=name))
    file.append(RECORD.format(name="3"))

    names = ["1", "2", "3"]
    if not raises:
        names.insert(1 if moment < 3 else 2, "handler")
    expected = header(4050) + "".join(RECORD.format(name=name) for name in names)
    assert file.path.read_text() == expected


def test_pieces_from_a_timers_handler_are_neither_lost_nor_mixed(
    tmp_path: Path,
) -> None:
    file = create(tmp_path / "p.yaml", "memory_usage:\n")
    by_handler = itertools.count()
    before = signal.signal(
        signal.SIGALRM, lambda *_: file.append(RECORD.format(name=f"handler {next(by_handler)}"))
    )
    try:
        signal.setitimer(signal.ITIMER_REAL, 1e-4, 1e-4)
        for number in range(3000):
            file.append(RECORD.format(name=f"step {number}"))
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

    with pytest.raises(FileNotFoundError, match="this file has been removed"):
        file.append("two\n")


def test_a_file_that_another_program_has_written_to_is_not_written_any_more(tmp_path: Path) -> None:
    file = create(tmp_path / "p.yaml", "one\n")
    file.path.write_text("theirs\n")

    with pytest.raises(OSError, match="another program has written to this file"):
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


def test_a_descriptor_whose_number_the_program_has_used_again_is_not_written_to(
    tmp_path: Path,
) -> None:
    file = create(tmp_path / "p.yaml", "one\n")
    theirs = os.open(tmp_path / "theirs", os.O_WRONLY | os.O_CREAT)
    os.dup2(theirs, descriptor_of(file))
    reused = descriptor_of(file)

    with pytest.raises(OSError, match="the program has closed this file's descriptor"):
        file.append("two\n")
    file.close()

    os.write(reused, b"still open\n")
    assert names(tmp_path) == {"p.yaml": "one\n", "theirs": "still open\n"}
    os.close(reused)
    os.close(theirs)


def test_a_forked_child_that_closes_its_copy_leaves_the_parents_open_and_locked(
    tmp_path: Path,
) -> None:
    file = create(tmp_path / "p.yaml", "one\n")

    assert os.waitpid(child(file.close), 0)[1] == 0

    file.append("two\n")
    other = create(tmp_path / "p.yaml", "other\n")
    assert names(tmp_path) == {"p.yaml": "one\ntwo\n", other.path.name: "other\n"}


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
                file.append(RECORD.format(name=number))

        pid = child(run)
        os.close(writer)
        appended = len(os.read(reader, 1))
        time.sleep(random.uniform(0, 0.01))
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
        while data := os.read(reader, 65536):
            appended += len(data)
        os.close(reader)

        taken = "".join(RECORD.format(name=number) for number in range(appended))
        text = path.read_text().removeprefix("memory_usage:\n" + taken)
        assert len(text) <= len(RECORD.format(name=appended))  # all that were appended are there
        last = yaml.safe_load(text) or [{}]
        assert list(last[0].items()) == list(record(str(appended)).items())[: len(*last)]
