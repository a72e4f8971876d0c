"""The folder of a recording: its name, and what stands in its way."""

from __future__ import annotations

from pathlib import Path

import pytest

from otel_quant.launcher.recording_folder import make_folder, script_name


@pytest.mark.parametrize(
    ("command", "name"),
    [
        ("python quantize.py --out x.py", "quantize.py"),
        ("python -u -X dev scripts/quantize.py", "scripts/quantize.py"),
        ("python -m package.quantize", "package-quantize"),
        ("python -c pass x.py", "python"),
        ("torchrun --nproc-per-node 2 train.py", "train.py"),
        ("accelerate launch --config c.yaml train.py", "train.py"),
        ("optimum-cli onnxruntime quantize", "optimum-cli"),
        ("bash -x job.sh", "job.sh"),
        ("./job.sh", "./job.sh"),
        ("python -m", "python"),
        ("ls", "ls"),
    ],
)
def test_a_recording_is_named_after_the_script(command: str, name: str) -> None:
    assert script_name(command.split()) == name


def test_two_recordings_of_one_second_have_folders_of_their_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("time.time", lambda: 1_800_000_000.0)
    made = [make_folder(None, ["python", "a.py"]) for _ in range(3)]
    first = made[0].name
    assert [path.name for path in made] == [first, f"{first}-2", f"{first}-3"]
    assert all(path.parent == tmp_path for path in made)


def test_a_chosen_folder_may_be_new_or_empty_and_nothing_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("empty").mkdir()
    assert make_folder("empty", ["ls"]) == tmp_path / "empty"
    assert make_folder("new/below", ["ls"]) == tmp_path / "new" / "below"
    with pytest.raises(FileExistsError, match="holds files"):
        make_folder("empty", ["ls"])
