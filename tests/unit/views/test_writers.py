"""One document in each of the five formats; what a command prints of one is tested there."""

from __future__ import annotations

import csv
import json
import math

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from otel_quant.views.document import (
    ONE,
    Brief,
    Column,
    Document,
    Facts,
    Lines,
    Row,
    Section,
    Table,
    UnitCell,
)
from otel_quant.views.html import fragment, page_text
from otel_quant.views.text import NO_BREAK, number_text, shortened
from otel_quant.views.writers import BRIEF_BYTES, brief_line, terminal_text, written

COLUMNS = (
    Column("step", key="name"),
    Column("time", "s", key="seconds"),
    Column("median", "s", key="median_seconds", shown_in="ms", spare=1),
    Column("peak", "By", key="peak_bytes", absent="-"),
    Column("", "1", key="peak_share", shown_in="%", absent="-"),
    Column("written", "By", key="written_bytes", shown_in=ONE, spare=2),
    Column("speed-up", "x", key="speedup"),
    Column("samples", "", key="samples", absent="?"),
    Column("status"),
)
STEPS = Table(
    COLUMNS,
    (
        ("Calibration", 125.2, 0.0213, 7_530_000_000, 0.938, 1.5e6, 1.5, 1204, "ok"),
        Row(
            ("Export", 0.012, 0.0125, UnitCell(855e6, before="≥ "), None, 8.5e6, None, None, "=1"),
            depth=1,
            state="failed",
        ),
        Row(("Missing",), state="lost", remark="the file is empty"),
    ),
    id="steps",
    caption="Steps",
    note="3 more left out.",
)
DOCUMENT = Document(
    (
        Facts(
            (("run", "a|b"), ("limit", UnitCell(25e9, "By", after=" (cgroup)"))), title="made by"
        ),
        Section("What ran", (Lines(("first line", "second <line>")), STEPS)),
        Lines(("shorter", "longer"), is_list=True),
    ),
    title="A <run>",
    over="Quantization",
)


def in_form(form: str, document: Document) -> str:
    return "".join(written(document, form))


def test_terminal_tables_have_units_in_cells_or_below_headings() -> None:
    assert (
        terminal_text(DOCUMENT)
        == """\
made by
run    a|b
limit  25.0 GB (cgroup)

What ran
first line
second <line>

step               time  median      peak     %  written  speed-up  samples  status
                             ms                       MB
-----------  ----------  ------  --------  ----  -------  --------  -------  ------
Calibration  2 min 05 s    21.3   7.53 GB  93.8      1.5    x 1.50    1,204  ok
  Export          12 ms    12.5  ≥ 855 MB     -      8.5                  ?  =1
Missing                                 -     -                           ?          the file is empty
3 more left out.

- shorter
- longer
"""
    )


def test_a_narrow_terminal_leaves_out_spare_columns_until_the_table_fits() -> None:
    table = Table(COLUMNS, list(STEPS.rows)[:2])
    of_80 = terminal_text(Document((table,)), 80).splitlines()
    assert (len(of_80[0]), of_80[-1]) == (75, "(median: in a wider terminal)")
    of_40 = terminal_text(Document((table,)), 40).splitlines()
    assert of_40[0].split() == ["step", "time", "peak", "%"]
    assert of_40[-1] == "(median, written, speed-up, samples, status: in a wider terminal)"
    assert terminal_text(Document((table,)), 84) == terminal_text(Document((table,)))


def test_a_narrow_terminal_shows_the_end_of_a_name_and_the_beginning_of_a_sentence() -> None:
    cells = ("model.quantized.weight_bytes", "weights/int8.onnx", "stopped at a sample.")
    table = Table((Column("x"),), [(cell,) for cell in cells])
    _, _, *shown = terminal_text(Document((table,)), 14).splitlines()
    assert shown == ["….weight_bytes", "…hts/int8.onnx", "stopped at a …"]


def test_a_file_and_its_line_are_never_cut() -> None:
    cell = "Session.run (onnxruntime/capi/onnxruntime_inference_collection.py:406)"
    file = "onnxruntime_inference_collection.py:406"
    assert shortened(cell, 69) == f"Session.run (onnxruntime/…/{file})"
    assert shortened(cell, 60) == f"Session.run (…/{file})"
    assert shortened(cell, 50) == f"Session… ({file})"
    assert shortened(cell, 44) == f"…{file})"
    assert shortened(cell, 30) == f"…{file}"  # rather than half of it
    where = "Calibration, sample 3 of 8, at append (q.py:16)"
    assert shortened(where, 24) == "Calibration, … (q.py:16)"
    table = Table((Column("line"), Column("grown", "By")), ((cell, 213_700_000),))
    of_60, of_48, of_40 = (
        terminal_text(Document((table,)), width).splitlines()[2] for width in (60, 50, 40)
    )
    assert of_60 == f"Session.r… ({file})  214 MB"
    assert of_48.split() == [f"…{file})", "214", "MB"]
    assert of_40 == f"…{file}"
    assert shortened("model/conv/BiasAdd:0", 10) == "…BiasAdd:0"


def test_a_narrow_terminal_leaves_out_what_is_0_before_what_it_can_do_without() -> None:
    columns = (
        Column("step"),
        Column("samples", "", spare=9),
        Column("read", "By", shown_in=ONE),
        Column("start", "s", spare=1),
    )
    document = Document(
        (Table(columns, (("Calibration", 8, 0, 1.0), ("Export", None, None, 2.0))),)
    )
    assert terminal_text(document, 33).endswith("(read: in a wider terminal)\n")
    assert terminal_text(document, 27).endswith("(read, start: in a wider terminal)\n")


def test_a_sentence_breaks_between_words_and_never_between_a_number_and_its_unit() -> None:
    sentence = "It needs 239.2 % more memory, 1.37 GB in all, for 12 min 05 s."
    for width in range(12, 70):
        lines = terminal_text(Document((Lines((sentence,)),)), width).splitlines()
        assert " ".join(lines) == sentence
        assert all(len(line) <= width for line in lines)
        assert not any(line.endswith(("239.2", "1.37", "12", "05")) for line in lines)
    command = "to repeat: otel-quant inference float.onnx int8.onnx --runs 40"
    assert terminal_text(Document((Lines((command,)),)), 30) == f"{command}\n"  # can be pasted
    facts = Facts((("memory", sentence),))
    assert terminal_text(Document((facts,)), 40) == (
        "memory  It needs 239.2 % more memory,\n        1.37 GB in all, for 12 min 05 s.\n"
    )


def test_control_characters_are_escaped_and_wide_letters_take_two_columns() -> None:
    table = Table((Column("name"), Column("n", "")), (("a\x1b[31m", 1), ("模型", 2)))
    assert (
        terminal_text(Document((table, Facts((("a\nb", "\x07"),), "t\r"))))
        == """\
name       n
---------  -
a\\x1b[31m  1
模型       2

t\\r
a\\nb  \\x07
"""
    )


def test_markdown_has_headings_and_units_and_escapes_markup() -> None:
    assert (
        in_form("markdown", DOCUMENT)
        == """\
**made by**

|  |  |
| --- | --- |
| run | a\\|b |
| limit | 25.0 GB (cgroup) |

## What ran

first line\\
second \\<line\\>

### Steps

| step | time | median ms | peak | % | written MB | speed-up | samples | status |  |
| --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: | --- | --- |
| Calibration | 2 min 05 s | 21.3 | 7.53 GB | 93.8 | 1.5 | x 1.50 | 1,204 | ok |  |
| \u00a0\u00a0Export | 12 ms | 12.5 | ≥ 855 MB | - | 8.5 |  | ? | =1 |  |
| Missing |  |  | - | - |  |  | ? |  | the file is empty |

3 more left out.

- shorter
- longer
"""
    )


def test_csv_has_raw_values_and_no_spreadsheet_formula() -> None:
    assert (
        in_form("csv", DOCUMENT._replace(sheet=lambda: STEPS))
        == """\
name,seconds,median_seconds,peak_bytes,peak_share,written_bytes,speedup,samples,status
Calibration,125.2,0.0213,7530000000,0.938,1500000,1.5,1204,ok
Export,0.012,0.0125,855000000,,8500000,,,'=1
Missing
"""
    )


@pytest.mark.parametrize(
    ("text", "cell"),
    [
        ("=1+1", "'=1+1"),
        ("+1", "'+1"),
        ("-1", "'-1"),
        ("@SUM(A1)", "'@SUM(A1)"),
        ("  =1", "'  =1"),
        ("\t=1", "\\t=1"),
        ('"=1', "'\"=1"),
        ("\uff1d1", "'\uff1d1"),
        ("a;=1", "a;'=1"),
        ("a,=1", "a,'=1"),
        ("/model/a-b+c=d@e", "/model/a-b+c=d@e"),
    ],
)
def test_no_text_is_read_as_a_spreadsheet_formula(text: str, cell: str) -> None:
    table = Table((Column("name"),), ((text,),))
    _, row = csv.reader(in_form("csv", Document((), sheet=lambda: table)).splitlines())
    assert row == [cell]


@settings(max_examples=100, derandomize=True)
@given(st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=30))
@example("\x1b]0;title\x07")
@example("a|b\r\n`<script>`")
@example(' "+1;=cmd,-1')
@example("\u2028\u202e\ufeff\x00")
def test_any_text_stays_in_its_line_and_its_cell(text: str) -> None:
    """Names come from models and programs: anything."""
    named = (
        Facts(((text, text),)),
        Lines((text,)),
        Table((Column("name"), Column("n", "")), ((text, 1),)),
    )
    document = Document(named, sheet=lambda: named[-1])
    control = {chr(code) for code in (*range(32), *range(127, 160))} - {"\n"}
    for form, lines in (("table", 7), ("markdown", 9)):
        printed = in_form(form, document)
        assert not set(printed) & control
        assert len(printed.splitlines()) == printed.count("\n") == lines
    [row] = [line for line in printed.split("\n") if line.endswith("| 1 |")]
    assert row.replace("\\\\", "").replace("\\|", "").count("|") == 3
    _, [name, _] = csv.reader(in_form("csv", document).splitlines())
    for cell in name.split(";"):
        begins = cell.lstrip(" \"'")[:1] in (*"=+-@", "\uff1d", "\uff0b", "\uff0d", "\uff20")
        assert not begins or cell.lstrip().startswith("'")
    assert in_form("json", document).isascii()
    assert json.loads(in_form("json", document))["rows"] == [{"name": text, "n": 1}]


def test_csv_of_a_document_with_a_sheet_is_the_sheet() -> None:
    columns = (Column("=text"), Column("at", "time"), Column("is", ""))
    rows = (("a, -b", 0.0, True), ("@x", 1_700_000_000.5, 0.123456789))
    sheet = Table(columns, rows)
    assert in_form("csv", Document((), sheet=lambda: sheet)) == (
        "'=text,at,is\n\"a,' -b\",1970-01-01T00:00:00Z,true\n'@x,2023-11-14T22:13:20Z,0.123456789\n"
    )


def test_json_has_the_parts_by_name_without_unknown_values() -> None:
    assert (
        in_form("json", DOCUMENT)
        == """\
{
  "made by": {
    "run": "a|b",
    "limit": 25000000000.0
  },
  "What ran": {
    "steps": [
      {"name": "Calibration", "seconds": 125.2, "median_seconds": 0.0213, "peak_bytes": 7530000000, "peak_share": 0.938, "written_bytes": 1500000.0, "speedup": 1.5, "samples": 1204, "status": "ok"},
      {"name": "Export", "seconds": 0.012, "median_seconds": 0.0125, "peak_bytes": 855000000.0, "written_bytes": 8500000.0, "status": "=1"},
      {"name": "Missing"}
    ]
  }
}
"""
    )


def test_json_of_a_document_with_data_is_the_data_without_nan() -> None:
    data = {
        "schema": 1,
        "rows": iter(()),
        "list": map(str, ()),
        "x": [{"y": {"z": {"n": math.nan}}}],
    }
    text = in_form("json", Document((), data=lambda: data))
    assert '"n": "nan"' in text
    assert '"list": []' in text


def test_a_page_has_one_unit_per_column_and_marks_failures() -> None:
    page = page_text(DOCUMENT)
    body = page[page.index("<header") : page.index("<footer")]
    assert [line for line in body.splitlines() if line.strip()] == EXPECTED_PAGE.replace(
        "&nbsp;", NO_BREAK
    ).splitlines()
    assert "<title>A &lt;run&gt;</title>" in page


EXPECTED_PAGE = """\
<header class="page">
<p class="over">Quantization</p>
<h1>A &lt;run&gt;</h1>
</header>
<main id="main">
<h2>made by</h2>
<dl>
<div><dt>run</dt><dd>a|b</dd></div>
<div><dt>limit</dt><dd>25.0&nbsp;GB (cgroup)</dd></div>
</dl>
<section aria-labelledby="section-0">
<h2 id="section-0">What ran</h2>
<p class="note">first line</p>
<p class="note">second &lt;line&gt;</p>
<div class="scroll" role="group" aria-labelledby="steps-caption" tabindex="0">
<table id="steps" class="sortable">
<caption id="steps-caption">Steps</caption>
<thead>
<tr>
<th scope="col" class="t">step</th>
<th scope="col">time <small>s</small></th>
<th scope="col">median <small>ms</small></th>
<th scope="col">peak <small>MB</small></th>
<th scope="col">%</th>
<th scope="col">written <small>MB</small></th>
<th scope="col">speed-up</th>
<th scope="col">samples</th>
<th scope="col" class="t">status</th>
</tr>
</thead>
<tbody>
<tr><th scope="row" class="t">Calibration</th><td>125.20</td><td>21.3</td><td>7,530.0</td><td>93.8</td><td>1.5</td><td>x 1.50</td><td>1,204</td><td class="t">ok</td></tr>
<tr class="failed"><th scope="row" class="t d1">Export</th><td>0.01</td><td>12.5</td><td>≥ 855.0</td><td></td><td>8.5</td><td></td><td></td><td class="t">=1</td></tr>
<tr class="lost"><th scope="row" class="t">Missing</th><td class="t" colspan="8">the file is empty</td></tr>
</tbody>
</table>
</div>
<p class="note">3 more left out.</p>
</section>
<ul>
<li>shorter</li>
<li>longer</li>
</ul>
</main>
"""


def test_a_notebook_gets_an_html_fragment() -> None:
    assert fragment(Document((Facts((("a", "<b>"),)), Table((Column("n", ""),), ((1,),))))) == (
        '<div><table><tbody><tr><th scope="row" style="text-align: left; white-space: pre-wrap">a</th>'
        '<td style="text-align: left; white-space: pre-wrap">&lt;b&gt;</td></tr></tbody></table>'
        '<table><thead><tr><th scope="col" style="text-align: right; font-variant-numeric: '
        'tabular-nums; border-bottom: 1px solid">n</th></tr></thead><tbody><tr><td style="text-align: '
        'right; font-variant-numeric: tabular-nums">1</td></tr></tbody></table></div>'
    )


@pytest.mark.parametrize(
    ("largest", "unit", "text"),
    [(999, "B", "999"), (2e5, "kB", "200.0"), (9.9e9, "MB", "9,900.0"), (1e10, "GB", "10.00")],
)
def test_a_columns_unit_fits_its_largest_size(largest: float, unit: str, text: str) -> None:
    table = Table((Column("name"), Column("size", "By", shown_in=ONE)), (("a", largest),))
    assert terminal_text(Document((table,))).split() == [
        "name", "size", unit, "----", "-" * max(len(text), 4), "a", text,
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("value", "unit", "text"),
    [
        (0, "{node}", "0"),
        (5, "{node}", "5"),
        (4_117_342_184, "{mac}", "4,117,342,184"),
        (0.5, "{sample}/s", "0.50/s"),
        (0, "By", "0 B"),
        (0, "s", "0 ms"),
        (0.0, "1", "0.0 %"),
        (10**400, "x", f"{10**400:,}"),
    ],
)
def test_a_number_of_things_is_whole_and_an_amount_has_its_unit(
    value: float, unit: str, text: str
) -> None:
    assert number_text(value, unit) == text


def test_a_table_of_nothing_known_is_no_error() -> None:
    table = Table((Column(""), Column("", "")), ((None, None),))
    for width in (None, 20):
        assert terminal_text(Document((table,)), width).split() == []


@pytest.mark.parametrize("length", [10, 400, 100_000])
def test_a_brief_answer_is_never_above_its_size(length: int) -> None:
    text = "é\n" * length
    brief = Brief(text, [text] * 9, help=[text] * 9, next=[["inference", "x" * length]])
    line = brief_line(Document((), text, is_bad=True, brief=lambda: brief))
    found = json.loads(line)
    assert len(line.encode()) <= BRIEF_BYTES
    assert found["verdict"].startswith("é é é")
    assert (len(found["evidence"]), len(found["help"]), found["is_bad"]) == (3, 3, True)
    assert bool(found["next"]) == (length < 1000)
