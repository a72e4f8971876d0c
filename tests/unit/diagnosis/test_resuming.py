"""What a library has left on disk to go on from is known by its files; files of anything else are nothing."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any, Final

import pytest

from otel_quant.diagnosis.resuming import saved_in

HASH: Final = "a1" * 32
PLAN: Final = {"execution_plan": [{"index": at, "kind": "layer"} for at in range(6)]}
BLOCKS: Final = ["model.layers.0", "model.layers.1"]

# As GPTQModel 7.7, Model Optimizer 0.47 and AutoRound 0.16 had written them when they were killed.
WRITTEN: Final[dict[str, tuple[dict[str, Any], str]]] = {
    "GPTQModel": (
        {
            "CURRENT": {"generations": [HASH, "b" * 64], "version": 1},
            f"objects/{HASH}": {"version": 1, "cursor": 3, "identity": PLAN, "artifacts": {}},
        },
        "3 of 6 layers are in DIR",
    ),
    "Model Optimizer": (
        {"manifest.json": {"last_completed_layer": 2, "num_layers": 6, "save_every": 1}},
        "3 of 6 layers are in DIR",
    ),
    "AutoRound": (
        {
            "group_0/resume_manifest.json": {"signature": "e", "completed_blocks": BLOCKS},
            "group_1/resume_manifest.json": {"signature": "f", "completed_blocks": BLOCKS[:1]},
        },
        "3 layers are in DIR",
    ),
    "AutoRound, files": (
        {
            ".cache/model_free_resume.json": {
                "processed_files": {"model-00001-of-00003.safetensors": {}},
                "pending_files": ["b", "c"],
            }
        },
        "1 of 3 files is in DIR",
    ),
    "all layers, of which Model Optimizer begins anew": (
        {"manifest.json": {"last_completed_layer": 5, "num_layers": 6}},
        "None",
    ),
    "no layer yet": ({"group_0/resume_manifest.json": {"completed_blocks": []}}, "None"),
    "nothing": ({}, "None"),
    "a manifest of another program": ({"manifest.json": {"files": ["a"]}}, "None"),
    "a path for a hash": ({"CURRENT": {"generations": ["../../etc/passwd"]}}, "None"),
    "a list": ({"manifest.json": [1], "CURRENT": 7}, "None"),
}


@pytest.mark.parametrize("name", WRITTEN)
def test_what_was_written_is_known(name: str, tmp_path: Path) -> None:
    files, expected = WRITTEN[name]
    for at, (path, content) in enumerate(files.items()):
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).write_text(json.dumps(content))
        os.utime(tmp_path / path, (1000 + at, 1000 + at))
    found = saved_in(str(tmp_path))
    assert str(found).replace(str(tmp_path), "DIR") == expected
    assert found is None or found.saved == 1000 + (name == "AutoRound")  # the newest of the groups


def test_a_file_that_is_cut_is_nothing(tmp_path: Path) -> None:
    (tmp_path / "manifest.json").write_text('{"last_completed_layer": 2, "num')
    assert saved_in(str(tmp_path)) is None
