"""What the benchmarks share: taking turns, medians, and tables.

The machines that these run on are noisy and shared, so no figure is given alone: what is
compared is measured in turns, and the result is the ratio of two medians.
"""

from __future__ import annotations

import argparse
import statistics
import threading
from collections.abc import Callable, Mapping, Sequence
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Final, NamedTuple, TypeVar

T = TypeVar("T")


def compiled_into(folder: Path) -> dict[str, str]:
    """Returns the environment in which Python keeps its compiled modules in a folder.

    As they are after ``pip install``, whatever this environment sets (containers often
    forbid it): a process that compiles its modules anew spends its time on that.
    """
    return {"PYTHONDONTWRITEBYTECODE": "", "PYTHONPYCACHEPREFIX": str(folder)}


class Net(NamedTuple):
    """A net, and how it is quantized."""

    family: str
    library: str  # timm, torchvision, or here for one that the benchmark makes
    name: str
    quantizer: str  # onnxruntime's, or the configuration of AMD Quark


def rows_of_nets(
    about: str | None, nets: Sequence[Net], row: Callable[[Net, Path], tuple[str, ...]]
) -> list[tuple[str, ...]]:
    """Returns the rows of the nets that the command line asks for; what is made stays in its folder."""
    parser = argparse.ArgumentParser(
        description=about, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("folder", type=Path)
    parser.add_argument("nets", nargs="*", help="names; default: all")
    arguments = parser.parse_args()
    arguments.folder.mkdir(parents=True, exist_ok=True)
    asked = arguments.nets or [net.name for net in nets]
    return [row(net, arguments.folder) for net in nets if net.name in asked]


def take_turns(rounds: int, candidates: Mapping[str, Callable[[], T]]) -> dict[str, list[T]]:
    """Measures candidates alternately; returns the figures by name, one for each round.

    Who comes first changes from round to round, so that a drift of the machine meets all alike.
    """
    names = list(candidates)
    figures: dict[str, list[T]] = {name: [] for name in names}
    for turn in range(rounds):
        first = turn % len(names)
        for name in names[first:] + names[:first]:
            figures[name].append(candidates[name]())
    return figures


class _Forgetful(BaseHTTPRequestHandler):
    """Accepts every POST, and answers with an empty response in protobuf."""

    protocol_version = "HTTP/1.1"

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["Content-Length"]))
        self.send_response(200)
        self.send_header("Content-Type", "application/x-protobuf")
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, *_: object) -> None:
        pass


def forgetful_server() -> int:
    """Starts a server that takes any OTLP request over HTTP; returns its port."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), _Forgetful)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    return server.server_port


def median_ratio(numerators: Sequence[float], denominators: Sequence[float]) -> float:
    """Returns the median of the first divided by the median of the second."""
    return statistics.median(numerators) / statistics.median(denominators)


def quartiles(figures: Sequence[float]) -> tuple[float, float]:
    """Returns the first and third quartile; the only figure twice if there is one."""
    if len(figures) < 2:
        return figures[0], figures[0]
    first, _, third = statistics.quantiles(figures, n=4, method="inclusive")
    return first, third


def print_table(head: Sequence[str], rows: Sequence[Sequence[object]]) -> None:
    """Prints rows under a head: the first column to the left, the others to the right."""
    cells = [[str(cell) for cell in row] for row in (head, *rows)]
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    for number, row in enumerate(cells):
        first, *rest = (
            cell.rjust(width) if position else cell.ljust(width)
            for position, (cell, width) in enumerate(zip(row, widths, strict=True))
        )
        print("  ".join([first, *rest]).rstrip())
        if number == 0:
            print("  ".join("-" * width for width in widths))


PAGE: Final = Path(__file__).parents[1] / "docs" / "performance.md"


def write_table(mark: str, head: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """Puts a table into docs/performance.md, in place of the one that begins with a mark."""
    page = PAGE.read_text(encoding="utf-8")
    before, found, rest = page.partition(mark)
    after = rest.partition("\n\n")[2]
    every = (head, ["---", *["---:"] * (len(head) - 1)], *rows)
    lines = "\n".join(" | ".join(["", *row, ""]).strip() for row in every)
    assert found, f"{PAGE} has no line that begins with {mark!r}"
    PAGE.write_text(f"{before}{lines}\n\n{after}", encoding="utf-8")
