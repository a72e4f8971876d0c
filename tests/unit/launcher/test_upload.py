"""A recording in a store: each byte moves once, any first objects open, and no other recording is touched."""

from __future__ import annotations

import logging
import os
import shutil
import tarfile
import time
import tracemalloc
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest

from otel_quant.format import store
from otel_quant.format.event_file import MANIFEST, REPORT, complete_manifest
from otel_quant.launcher import upload as uploading
from otel_quant.launcher.upload import Upload
from tests.fixtures.commands import Commands
from tests.fixtures.recorded import BEGAN_NS, RecordedFolder, good


@pytest.fixture
def url(tmp_path: Path) -> str:
    return f"file://{tmp_path}/store"


def files_in(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def pieces_in(folder: Path) -> list[dict[str, int]]:
    """Returns of each object the sizes of its pieces, by name."""
    found = []
    for path in sorted(folder.iterdir()):
        with tarfile.open(path) as tar:
            found.append({each.name: each.size for each in tar})
    return found


def copied(url: str) -> dict[str, bytes]:
    place = store.RecordingStore(url)
    return {name: bytes(data) for name, (data, _) in place.read(place.recordings()[""]).items()}


def grow(folder: Path) -> list[Callable[[], object]]:
    """Returns what happens to a recording between uploads: files grow, are replaced, and go."""
    made = RecordedFolder(folder)
    process = made.process().begin()
    stacks = folder / "stacks.4711.before.json"
    curve = folder / "curve.4711.jsonl"

    def replace_curve() -> None:
        beside = folder / ".curve.new"
        beside.write_text('{"halved": 1}\n')
        beside.replace(curve)

    return [
        lambda: (stacks.write_text("{}"), curve.write_text('{"schema":1}\n')),
        lambda: process.step("Calibration", 1),
        lambda: (stacks.unlink(), process.consume(0, 3, 2), process.state(2)),
        lambda: None,
        lambda: (process.close(0, 3), replace_curve()),
        lambda: (process.end(4), (folder / REPORT).write_bytes(os.urandom(90_000))),
        lambda: complete_manifest(folder, {}, ended=5),
    ]


def test_each_byte_of_a_file_that_grows_moves_once_and_any_first_objects_are_the_recording_then(
    tmp_path: Path, url: str, command: Commands
) -> None:
    folder, seen = tmp_path / "r", []
    upload = Upload(folder, url)
    for happens in grow(folder):
        happens()
        if upload.send(is_last=False):
            seen.append(files_in(folder))
    upload.send()
    assert copied(upload.url) == files_in(folder)
    objects = sorted((tmp_path / "store/r").iterdir())
    assert len(objects) == len(seen)  # none where nothing was new
    for number, then in enumerate(seen, 1):
        first = tmp_path / f"first{number}"
        first.mkdir()
        for each in objects[:number]:
            shutil.copy(each, first)
        assert copied(f"file://{first}") == then
        assert command.output("show", f"file://{first}", "--format", "json")
    moved: Counter[str] = Counter()
    for pieces in pieces_in(tmp_path / "store/r"):
        moved.update({name.partition("@")[0]: size for name, size in pieces.items()})
    events = folder / "events.4711.jsonl"
    assert moved[events.name] == events.stat().st_size


def test_what_changes_while_it_is_sent_waits_for_the_next_upload(
    tmp_path: Path, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder, add = tmp_path / "r", store.RecordingStore.add
    RecordedFolder(folder)
    state = folder / "state.4711.json"

    def slow_add(self: store.RecordingStore, name: str, number: int, pieces: store.Pieces) -> None:
        add(self, name, number, pieces)
        state.write_text(f'{{"number": {number}}}')

    monkeypatch.setattr(store.RecordingStore, "add", slow_add)
    upload = Upload(folder, url)
    for _ in range(2):
        upload.send(is_last=False)
    assert len(pieces_in(tmp_path / "store/r")) == 2


def test_a_large_file_that_is_replaced_whole_is_sent_rarely_before_the_end(
    tmp_path: Path, url: str
) -> None:
    folder = tmp_path / "r"
    RecordedFolder(folder)
    upload, stacks = Upload(folder, url), folder / "stacks.1.a.json"
    sizes = []
    for number in range(3):
        stacks.write_text(f"{number}" * 70_000)
        sizes.append(upload.send(is_last=number == 2) >= 70_000)
    assert sizes == [True, False, True]


def test_a_file_larger_than_an_object_goes_in_several(
    tmp_path: Path, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(uploading, "_LARGEST", 1000)
    folder = tmp_path / "r"
    good(folder)
    upload = Upload(folder, url)
    upload.send()
    assert copied(upload.url) == files_in(folder)
    assert all(sum(each.values()) <= 1000 for each in pieces_in(tmp_path / "store/r"))


def test_a_large_file_is_not_in_memory_whole(
    tmp_path: Path, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(uploading, "_LARGEST", 100_000)
    RecordedFolder(tmp_path / "r")
    upload = Upload(tmp_path / "r", url)
    assert upload.send() > 0  # which imports what it needs
    (tmp_path / "r/events.1.jsonl").write_bytes(os.urandom(5_000_000))
    tracemalloc.start()
    try:
        assert upload.send() == 5_000_000
        # From Python 3.12 on gzip keeps a buffer of each of the fifty objects until garbage is collected.
        assert tracemalloc.get_traced_memory()[1] < 3_000_000
    finally:
        tracemalloc.stop()


def test_why_a_store_failed_is_in_its_own_words_without_what_may_be_a_key(url: str) -> None:
    answer = "404 Not Found: <?xml version='1.0'?><Error><Code>NoSuchBucket</Code><Message>The bucket\n does not exist</Message><Key>secret</Key></Error>"
    reason = store.reason_in(
        OSError(f"GET http://h/b?key=secret: {answer}\n\nDebug source: secret"), url
    )
    assert reason == f"{url}: GET http://h/b 404 Not Found: NoSuchBucket: The bucket does not exist"


def test_two_recordings_of_one_name_have_a_place_each_and_two_uploads_of_one_share_it(
    tmp_path: Path, url: str
) -> None:
    good(tmp_path / "a/r")
    good(tmp_path / "b/r")
    manifest = tmp_path / "b/r" / MANIFEST
    manifest.write_text(manifest.read_text().replace(str(BEGAN_NS), str(BEGAN_NS + 1)))
    first, other, same = (Upload(tmp_path / name, url) for name in ("a/r", "b/r", "a/r"))
    assert [each.send() > 0 for each in (first, other, same)] == [True, True, False]
    assert [each.url for each in (first, other, same)] == [f"{url}/r", f"{url}/r-1", f"{url}/r"]
    events = next((tmp_path / "a/r").glob("events.*"))
    for upload in (same, first, first, same):
        with events.open("a") as file:
            file.write("{}\n")
        assert upload.send() == 3
    for upload, folder in ((first, "a/r"), (other, "b/r")):
        assert copied(upload.url) == files_in(tmp_path / folder)


def test_whose_the_objects_of_a_name_are_is_known_from_the_first_of_them(
    tmp_path: Path, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(uploading, "_LARGEST", 1000)
    for name, began in (("a/r", BEGAN_NS), ("b/r", BEGAN_NS + 1)):
        good(tmp_path / name)
        manifest = tmp_path / name / MANIFEST
        manifest.write_text(manifest.read_text().replace(str(BEGAN_NS), str(began)))
    Upload(tmp_path / "a/r", url).send()
    others = sorted((tmp_path / "store/r").iterdir())[1:]
    for each in others:
        each.write_bytes(b"what is not read")
    other = Upload(tmp_path / "b/r", url)
    other.send()
    assert others
    assert copied(other.url) == files_in(tmp_path / "b/r")


def test_a_number_sign_is_of_the_path(tmp_path: Path, command: Commands) -> None:
    good(tmp_path / "r#1")
    for name in ("exp#1", "exp#2"):
        upload = Upload(tmp_path / "r#1", f"file://{tmp_path}/{name}")
        upload.send()
        assert upload.url == f"file://{tmp_path}/{name}/r#1"
        assert copied(upload.url) == files_in(tmp_path / "r#1")
        assert command.output("show", upload.url)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["exp#1", "exp#2", "r#1"]


def test_an_object_that_is_missing_or_broken_is_named_and_hides_no_other_recording(
    tmp_path: Path,
    url: str,
    command: Commands,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(uploading, "_LARGEST", 1000)
    for name in ("cut", "garbled", "gap", "whole"):
        good(tmp_path / name)
        Upload(tmp_path / name, url).send()
    cut, garbled, gap = (
        tmp_path / "store" / name / "000002.recording.tar.gz" for name in ("cut", "garbled", "gap")
    )
    data = cut.read_bytes()
    cut.write_bytes(data[: len(data) // 2])
    garbled.write_bytes(data[:20] + bytes(len(data) - 20))
    gap.unlink()
    for each in (cut, garbled):
        shown = command("show", f"{url}/{each.parent.name}")
        assert (shown.code, shown.err.count("\n")) == (1, 1)
        assert shown.err.startswith(f"otel-quant: {url}/{each.parent.name}/{each.name}: ")
    caplog.clear()
    table = command.output("runs", url, "--format", "csv").splitlines()
    told = sorted(caplog.messages)
    assert [each.partition(": ")[0] for each in told] == [
        f"{url}/cut/{cut.name}", f"{url}/gap", f"{url}/garbled/{garbled.name}",
    ]  # fmt: skip
    assert told[1] == f"{url}/gap: {gap.name} is missing: nothing after it is read"
    assert [each.rpartition("/")[2] for each in table[1:]] == [
        "whole"
    ]  # the gap is of the same run


def test_an_upload_goes_on_where_another_was_killed_whose_last_answer_was_lost(
    tmp_path: Path, url: str
) -> None:
    folder = tmp_path / "r"
    steps = grow(folder)
    for happens in steps[:3]:
        happens()
    Upload(folder, url).send()
    steps[4]()
    late = Upload(folder, url)
    late.send()
    late._objects -= 1  # as if it had not heard that the last one is there
    steps[5]()
    late.send()
    assert copied(late.url) == files_in(folder)


def test_a_copy_is_running_while_its_objects_are_new_and_its_manifest_has_no_end(
    tmp_path: Path, url: str, command: Commands
) -> None:
    folder = tmp_path / "r"
    process = RecordedFolder(folder, by_launcher=True).process().begin()
    process.step("Calibration", 1)
    process.gone()
    upload = Upload(folder, url)
    upload.send()
    assert "had been running for 1.00 s when this was made" in command.output("show", upload.url)
    (stored,) = (tmp_path / "store/r").iterdir()
    long_ago = time.time() - 200
    os.utime(stored, (long_ago, long_ago))
    assert "stopped without an end record" in command.output("show", upload.url)
    complete_manifest(folder, {}, ended=5)
    upload.send()
    assert "stopped without an end record" in command.output("show", upload.url)


def test_a_store_that_fails_is_one_warning_with_what_to_do_and_no_secret(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "r"
    RecordedFolder(folder)
    (tmp_path / "file").touch()
    caplog.set_level(logging.WARNING, "otel_quant")
    upload = Upload(folder, f"file://{tmp_path}/file/there")
    assert upload.end() == ""
    monkeypatch.setattr(uploading, "_LAST", 0.01)
    slow = Upload(folder, "s3://user:pass@bucket/x")
    with slow._lock:  # a request that is not answered
        assert slow.end() == ""
    first, second = (record.getMessage() for record in caplog.records)
    assert first.endswith(f"otel-quant upload {folder} file://{tmp_path}/file/there")
    assert second == (
        f"--upload: the upload was not complete 30 s after the program's end. To upload what is missing: otel-quant upload {folder} 's3://***@bucket/x'"
    )


@pytest.mark.parametrize(
    ("words", "code", "expected"),
    [
        (("run", "--upload", "ftp://x/y", "--", "true"), 125, "--upload: ftp://x/y: expected s3://BUCKET/PATH"),
        (("run", "--upload", "s3://b/y", "--", "true"), 125, "--upload: the package obstore is missing; pip install 'otel-quant[store]'"),
        (("show", "s3://b/y"), 1, "the package obstore is missing; pip install 'otel-quant[store]'"),
        (("runs", "s3://b/y"), 1, "the package obstore is missing; pip install 'otel-quant[store]'"),
        (("upload", "r", "s3://"), 1, "s3://: expected s3://BUCKET/PATH, gs://BUCKET/PATH, az://CONTAINER/PATH or file:///PATH"),
        (("upload", "r", "s3://b/y"), 1, "the package obstore is missing; pip install 'otel-quant[store]'"),
        (("upload", "nothing", "s3://b/y"), 1, "nothing: cannot be opened: No such file or directory; expected a recording"),
    ],
)  # fmt: skip
def test_what_is_missing_is_named_before_anything_runs(
    words: tuple[str, ...], code: int, expected: str, command: Commands, tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    monkeypatch.chdir(tmp_path)
    RecordedFolder(Path("r"))
    monkeypatch.setattr(store, "find_spec", lambda name: None)
    printed = command(*words)
    assert (printed.code, printed.out) == (code, "")
    assert printed.err.startswith(f"otel-quant: {expected}")
