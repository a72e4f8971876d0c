"""Recordings as tables: their rows, each run once, and the queries of the docs with DuckDB and Spark on the same files."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any, Final

import duckdb
import duckdb_extension_delta
import pytest
from deltalake import DeltaTable

from otel_quant.inference.results import (
    Accuracy,
    InferenceResult,
    ModelResult,
    Ran,
    RanKernel,
    TensorError,
)
from otel_quant.recordings.reader import read
from otel_quant.recordings.runs import NAMES as LISTED
from otel_quant.recordings.runs import read_all
from otel_quant.schema import semconv
from otel_quant.sending import tables
from otel_quant.sending.tables import NAMES, add, rows_of
from tests.fixtures.commands import Commands
from tests.fixtures.object_store import BUCKET, S3Server
from tests.fixtures.recorded import RecordedFolder, good
from tests.fixtures.spark import Spark
from tests.unit.recordings.runs.fleet import GB, write_fleet, write_recording

ROOT: Final = Path(__file__).resolve().parents[2]
DOCS: Final = (ROOT / "docs" / "tables.md").read_text()
QUERIES: Final = re.findall(r"```sql\n(SELECT.*?);?\n```", DOCS, re.DOTALL)
RUN: Final = "e" * 16
TABLES: Final = ("runs", "steps", "kernels", "layers")


@pytest.fixture
def fleet(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Runs of every kind, one with a step of every kind, one with kernels and errors of layers."""
    monkeypatch.chdir(tmp_path)
    write_fleet(tmp_path / "runs")
    cut = tmp_path / "runs/bert-cut/named.yaml"
    cut.write_text(cut.read_text().replace("aaaa", "bbbb"))
    good(tmp_path / "runs/good")
    process = (
        RecordedFolder(tmp_path / "runs/layers").process(5).begin(attributes={semconv.RUN_ID: RUN})
    )
    step = process.step("Calibration", 1)
    process.measure(step, 2, "conv1", "loss", value=0.5, better="lower")
    process.close(step, 3)
    process.end(4)
    kernel = RanKernel(
        "k", "Conv", "n", 1, "CPU", 12.5, 0.5, 2, ("int8 1x3", "int8 3x3"), (), macs=7
    )
    model = ModelResult(
        "a.onnx", ran=Ran(1, 30.0, (kernel,)), accuracy=Accuracy(layers=(TensorError("conv1", 40.0, 30.5),))
    )  # fmt: skip
    measured = InferenceResult((model,), "1.32", {}, None, 1)
    (tmp_path / "runs/layers/inference.json").write_text(measured.to_json())
    return tmp_path


def contents(url: str, table: str) -> list[dict[str, Any]]:
    found = DeltaTable(f"{url}/{table}")
    with duckdb.connect() as connection:
        asked = connection.sql(f"SELECT * FROM read_parquet({found.file_uris()})")
        names = asked.columns
        asked = asked.select(*(duckdb.SQLExpression(f"epoch_us({n}) AS {n}" if n == "began" else n) for n in names))  # fmt: skip
        return [dict(zip(names, row, strict=True)) for row in asked.fetchall()]


def test_the_tables_have_what_the_list_has_and_an_export_again_adds_nothing(
    fleet: Path, command: Commands
) -> None:
    printed = command("export", "runs", "tables")
    assert (printed.code, printed.out) == (0, "tables: 8 runs added\n")
    assert "newer: " in printed.err
    assert command("export", "runs", "runs/good", "tables").out == "tables: 0 runs added\n"
    rows, _ = read_all(["runs"], NAMES)
    expected = {str(fleet / str(row["path"])): row for row in rows}
    found = {row["path"]: row for row in contents("tables", "runs")}
    assert found.keys() == expected.keys()
    del expected[str(fleet / "runs/good")]  # its last event does not have what its steps know
    for path, row in expected.items():
        assert found[path]["began"] == round(float(str(row["when"])) * 1e6)
        for name in (*LISTED, "config.hash", "host.name", "memory.limit"):
            if name not in ("when", "path"):
                assert found[path][name.replace(".", "_")] == row.get(name)
    of_layers = [row for row in contents("tables", "layers") if row["run_id"] == RUN]
    assert [(row["layer"], row["measure"], row["value"], row["unit"]) for row in of_layers] == [
        ("conv1", "loss", 0.5, None), ("conv1", "sqnr.own", 40.0, "dB"), ("conv1", "sqnr.all", 30.5, "dB"),
        ("conv1", "sqnr.weights", None, "dB"),
    ]  # fmt: skip
    (kernel,) = contents("tables", "kernels")
    assert (kernel["run_id"], kernel["model"], kernel["runs_in"], kernel["micros"], kernel["macs"]) == (
        RUN, "a.onnx", "int8", 12.5, 7,
    )  # fmt: skip
    of_good = [row for row in contents("tables", "steps") if row["name"] == "Collecting ranges"]
    assert [(row["state"], row["memory_peak"]) for row in of_good] == [("ended", 7_520_000_000)]


def test_nothing_is_read_of_what_began_at_another_time(fleet: Path) -> None:
    add("tables", [rows_of(read(Path("runs/good")))])
    for path in Path("tables").glob("*/month=*/*.parquet"):
        path.rename(path.with_suffix(".away"))
    later = rows_of(read(Path("runs/layers")))
    for row in (row for rows in later.values() for row in rows):
        row["began"] += 1
    assert add("tables", [later]) == 1


@pytest.mark.parametrize("scheme", ["", "file://"])
def test_a_number_sign_is_of_the_path(tmp_path: Path, scheme: str) -> None:
    good(tmp_path / "r")
    assert add(f"{scheme}{tmp_path}/exp#1", [rows_of(read(tmp_path / "r"))]) == 1
    assert (tmp_path / "exp#1" / "runs" / "_delta_log").is_dir()
    assert not (tmp_path / "exp").exists()


def test_of_exports_at_the_same_time_one_adds_a_run(fleet: Path, s3: S3Server) -> None:
    url = f"s3://{BUCKET}/tables"
    words = [sys.executable, "-m", "otel_quant", "export", "runs/good", url]
    both = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT}
    started = [subprocess.Popen(words, text=True, **both) for _ in range(3)]
    printed = sorted(each.communicate()[0] for each in started)
    assert printed == [f"{url}: 0 runs added\n"] * 2 + [f"{url}: 1 run added\n"]


def test_small_files_are_merged(fleet: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tables, "_MERGED_EVERY", 2)
    for path in ("runs/good", "runs/layers"):
        assert add("tables", [rows_of(read(Path(path)))]) == 1
    assert len(DeltaTable("tables/runs").file_uris()) == 1
    assert {row["run_id"] for row in contents("tables", "runs")} > {RUN}


def test_runs_as_parquet_are_the_table_of_runs(fleet: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "otel_quant", "runs", "runs", "--where", "status=ended", "--format", "parquet"],
        capture_output=True, check=True,
    )  # fmt: skip
    Path("runs.parquet").write_bytes(done.stdout)
    add("tables", [rows_of(read(Path("runs/good")))])
    types = "SELECT column_name, column_type FROM (DESCRIBE FROM {})"
    (stored,) = DeltaTable("tables/runs").file_uris()
    in_file, in_table = (
        duckdb.sql(types.format(f"'{path}'")).fetchall() for path in ("runs.parquet", stored)
    )
    assert dict(in_file).items() >= dict(in_table).items() - {("month", "VARCHAR")}
    found = duckdb.sql("SELECT count(*), count(DISTINCT run_id) FROM 'runs.parquet'").fetchone()
    assert found == (6, 6)


@pytest.mark.parametrize(
    ("words", "package"),
    [(("export", "runs", "t"), "deltalake"), (("runs", "runs", "--format", "parquet"), "arro3")],
)
def test_a_package_that_is_missing_is_named(
    words: tuple[str, ...], package: str, fleet: Path, command: Commands, monkeypatch: pytest.MonkeyPatch
) -> None:  # fmt: skip
    monkeypatch.setattr("otel_quant.format.store.find_spec", lambda name: None)
    printed = command(*words)
    assert printed.code == 1
    assert f"the package {package} is missing; pip install 'otel-quant[tables]'\n" in printed.err


def test_a_store_that_does_not_take_the_tables_is_one_line(
    fleet: Path, command: Commands, s3: S3Server
) -> None:
    printed = command("export", "runs/good", "s3://nothing/tables")
    assert (printed.code, printed.out) == (1, "")
    assert printed.err.startswith("otel-quant: s3://nothing/tables: ")
    assert printed.err.count("\n") == 1


def rounded(rows: Any) -> list[tuple[Any, ...]]:
    """Returns rows in one order: engines sort what is null first, or last."""
    found = [
        tuple(round(each, 6) if isinstance(each, float) else each for each in row) for row in rows
    ]
    return sorted(found, key=repr)


def by_duckdb(queries: list[str]) -> list[list[tuple[Any, ...]]]:
    with duckdb.connect(config={"allow_unsigned_extensions": "true"}) as connection:
        (extension,) = Path(duckdb_extension_delta.__path__[0]).rglob("*.duckdb_extension")
        connection.execute(f"LOAD '{extension}'")
        for table in TABLES:
            connection.execute(f"CREATE VIEW {table} AS FROM delta_scan('tables/{table}')")
        return [rounded(connection.sql(query).fetchall()) for query in queries]


@pytest.fixture
def exported(fleet: Path, command: Commands) -> None:
    shutil.rmtree(fleet / "runs/good")  # as above
    for number, peak in enumerate((2, 3, 4)):
        write_recording(
            fleet / f"runs/more{number}", "yolo8.onnx", "Percentile", peak * GB + number + 1
        )
    assert command("export", "runs", "tables").code == 0


def test_the_queries_of_the_docs_give_what_the_list_gives(
    exported: None, command: Commands
) -> None:
    assert len(QUERIES) == 5
    pivot, ended, steps, kernels, layers = by_duckdb(QUERIES)
    words = ("--rows", "model", "--columns", "calibration.method", "--format", "json")
    expected = json.loads(command("runs", "runs", *words).out)
    cells = {
        (row["model"], None if method == "(none)" else method): (cell["median"], cell["runs"])
        for row in expected["table"]
        for method, cell in row["cells"].items()
    }
    assert {row[:2]: row[2:] for row in pivot} == cells
    listed = json.loads(command("runs", "runs", "--format", "json").out)["runs"]
    counts = Counter((row["when"][:7], row["status"]) for row in listed)
    assert {row[:2]: row[2] for row in ended} == counts
    assert ("yolo8", "Calibration", "2023-11", 34.0) in [row[:4] for row in steps]
    assert kernels == [("a.onnx", "Conv", "int8", 12.5)]
    assert layers[0] == ("conv1", "sqnr.all", 30.5, 1)


SPARK: Final = """
import json, sys
from pyspark.sql import SparkSession
jars, queries = sys.argv[1], json.load(sys.stdin)
spark = (
    SparkSession.builder.master("local[1]").config("spark.jars", jars)
    .config("spark.sql.extensions", "io.delta.sql.DeltaSparkSessionExtension")
    .config("spark.sql.catalog.spark_catalog", "org.apache.spark.sql.delta.catalog.DeltaCatalog")
    .config("spark.ui.enabled", "false").config("spark.sql.shuffle.partitions", "1")
    .config("spark.databricks.delta.snapshotPartitions", "1").getOrCreate()
)
for table in ("runs", "steps", "kernels", "layers"):
    spark.sql(f"CREATE TEMPORARY VIEW {table} USING delta OPTIONS (path 'tables/{table}')")
print(json.dumps([[list(row) for row in spark.sql(query).collect()] for query in queries]))
"""


@pytest.mark.slow  # a JVM, and packages that are fetched first
def test_spark_gives_the_same_on_the_same_files(exported: None, spark: Spark) -> None:
    done = subprocess.run(
        [spark.python, "-c", SPARK, spark.jars], input=json.dumps(QUERIES), text=True,
        capture_output=True,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert [rounded(map(tuple, rows)) for rows in json.loads(done.stdout)] == by_duckdb(QUERIES)
