"""Names out of a model are anything: what is printed of them stays in its line and its cell."""

from __future__ import annotations

import csv
import io
import json
from contextlib import redirect_stdout
from pathlib import Path

import onnx
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from otel_quant.cli import main
from otel_quant.cost import analyze
from otel_quant.cost.operators import operator_of

ANY_TEXT = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=30)

ANY_KIND = ANY_TEXT.filter(lambda kind: operator_of(kind).bodies is None)
"""If and Loop are left out: without a body they are an error."""

FORMULA = (*"=+-@", "\uff1d", "\uff0b", "\uff0d", "\uff20")


def output(path: Path, form: str, *arguments: str) -> str:
    stream = io.StringIO()
    with redirect_stdout(stream):
        assert main(["cost", *arguments, str(path), "--format", form]) == 0
    return stream.getvalue()


@settings(
    max_examples=100,
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(name=ANY_TEXT, kind=ANY_KIND, symbol=ANY_TEXT)
@example(name="\x1b]0;title\x07", kind="a|b", symbol="\r\n")
@example(name="=cmd", kind='"', symbol="`<script>`")
@example(name="a;=cmd", kind=' "+1', symbol="-1,@SUM(A1)")
@example(name="\u2028\u202e", kind="\ufeff", symbol="\x00")
def test_names_stay_in_their_line_and_cell(
    tmp_path: Path, name: str, kind: str, symbol: str
) -> None:
    graph = onnx.helper.make_graph(
        [onnx.helper.make_node(kind, ["x"], ["y"], name=name)],
        "g",
        [onnx.helper.make_tensor_value_info("x", 1, [symbol, 3])],
        [],
    )
    path = tmp_path / "m.onnx"
    path.write_bytes(onnx.helper.make_model(graph).SerializeToString())

    table = output(path, "table")
    assert not set(table.replace("\n", "")) & {chr(code) for code in (*range(32), *range(127, 160))}
    for compared in ("table", "markdown"):
        text = output(path, compared, "--by", "comparison", str(path))
        assert text.count(": assumed ") == 2 * len(analyze(path).assumed)
        assert len(text.splitlines()) == text.count("\n")
    page = output(path, "markdown", "--by", "node")
    rows = [line for line in page.split("\n") if line.startswith("| ")]
    assert len(page.splitlines()) == page.count("\n")
    node = rows[2].replace("\\\\", "").replace("\\|", "")
    assert node.count("|") == 13, rows
    header, *lines = csv.reader(io.StringIO(output(path, "csv")))
    assert [len(line) for line in lines] == [len(header)]
    for cell in ";".join(cell for line in lines for cell in line).split(";"):
        assert cell.lstrip(" \"'")[:1] not in FORMULA or cell.lstrip().startswith("'"), cell
    text = output(path, "json")
    assert text.isascii()
    (model,) = json.loads(text)["models"]
    assert (model["nodes"][0]["name"], model["nodes"][0]["op_type"]) == (name, kind)
