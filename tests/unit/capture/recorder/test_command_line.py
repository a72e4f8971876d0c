"""A command line is shown without secrets, and without paths if asked."""

from __future__ import annotations

from pathlib import Path

import pytest

from otel_quant.capture.recorder.origin import shown_command


@pytest.mark.parametrize(
    ("arguments", "shown"),
    [
        ([], ""),
        (["/usr/bin/python3", "quantize.py", "--out", "a b"], "python3 quantize.py --out 'a b'"),
        (["python", "-c", "import x\nx.run()"], "python -c 'import x x.run()'"),
        (["python", "a.py", "--hf-token", "hf_abc", "x"], "python a.py --hf-token *** x"),
        (["python", "a.py", "--API_KEY=1234", "--token"], "python a.py --API_KEY=*** --token"),
        (["python", "a.py", "--token", "--verbose"], "python a.py --token --verbose"),
        (
            ["python", "a.py", "--tokenizer", "gpt2", "--max-tokens=9"],
            "python a.py --tokenizer gpt2 --max-tokens=9",
        ),
        (
            ["python", "a.py", "https://me:secret@hub/x", "--url=http://t@h"],
            "python a.py https://***@hub/x --url=http://***@h",
        ),
        (
            ["python", "a.py", "hf_token=abc", "AWS_SECRET_ACCESS_KEY=x y", "+hub.token=t", "lr=1"],
            "python a.py hf_token=*** AWS_SECRET_ACCESS_KEY=*** +hub.token=*** lr=1",
        ),
        (
            ["python", "a.py", "-H", "Authorization: Bearer abc", "--header=authorization=Basic x"],
            "python a.py -H 'Authorization:***' --header='authorization=***'",
        ),
        (
            [
                "python",
                "a.py",
                "hf_" + "a" * 34,
                "--as=AKIA" + "B" * 16,
                "-c",
                "f('ghp_abcdefghijklm')",
            ],
            "python a.py *** --as=*** -c 'f('\"'\"'***'\"'\"')'",
        ),
        (["python", "x" * 2000], "python " + "x" * 992 + "…"),
    ],
)
def test_secrets_are_hidden(arguments: list[str], shown: str) -> None:
    assert shown_command(arguments, paths=True) == shown


def test_whatever_may_be_a_path_is_hidden_where_paths_are_switched_off(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "models").mkdir()
    arguments = [
        "/opt/python", "quantize.py", "-c", "open('/etc/passwd')", "models", "--model=out/m.onnx",
        "--method", "minmax", "--percentile", "99.9", "--samples=128", "--token=t", "C:\\m", "hf_" + "a" * 34, "-v",
    ]  # fmt: skip

    assert shown_command(arguments, paths=False) == (
        "python <path> -c <path> <path> --model=<path> --method minmax --percentile 99.9 "
        "--samples=128 --token=*** <path> *** -v"
    )
