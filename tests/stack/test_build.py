"""The servers can be built on a machine that has downloaded no Go module before."""

from __future__ import annotations

import json
import subprocess
import zipfile
from pathlib import Path

import pytest

from scripts.servers import build

pytestmark = pytest.mark.servers

MODULE = "example.test/server"
GO_MOD = f"module {MODULE}\n\ngo 1.26\n"


def serve(folder: Path) -> None:
    """Makes a module proxy of files, with one module of one package in it."""
    versions = folder / MODULE / "@v"
    versions.mkdir(parents=True)
    (versions / "v1.0.0.info").write_text(json.dumps({"Version": "v1.0.0"}))
    (versions / "v1.0.0.mod").write_text(GO_MOD)
    with zipfile.ZipFile(versions / "v1.0.0.zip", "w") as made:
        made.writestr(f"{MODULE}@v1.0.0/go.mod", GO_MOD)
        made.writestr(f"{MODULE}@v1.0.0/main.go", "package main\n\nfunc main() {}\n")


def test_a_page_is_added_to_a_module_that_was_never_downloaded(
    binaries: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    serve(tmp_path / "proxy")
    for name, value in {
        "GOPROXY": f"file://{tmp_path / 'proxy'}",
        "GOMODCACHE": str(tmp_path / "modules"),
        "GONOSUMDB": "*",
        "GOFLAGS": "-modcacherw",
    }.items():
        monkeypatch.setenv(name, value)
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    (scratch / "go.mod").write_text(f"module built\n\ngo 1.26\n\nrequire {MODULE} v1.0.0\n")
    go = build.go()
    build.add_page(go, MODULE, "ui/dist/index.html", scratch)
    (page,) = scratch.rglob("index.html")
    build.run([go, "build", "-o", f"{scratch / 'server'}", MODULE], MODULE, cwd=scratch)
    assert page.relative_to(scratch) == Path("module/ui/dist/index.html")
    assert subprocess.run([scratch / "server"], check=False).returncode == 0
