"""A program that reads nothing but ``--brief`` and runs the commands in it comes to the planted cause, and mends what can be."""

from __future__ import annotations

import json
import shlex
import sys
from collections.abc import Iterator, Mapping
from contextlib import nullcontext
from typing import Any, Final, NamedTuple

import numpy as np
import onnx
import pytest
from onnx import parser

from tests.fixtures.disks import small_disk
from tests.fixtures.programs import Launched, launcher
from tests.integration.inference.test_fix_command import net

MOST_COMMANDS: Final = 4
Answer = Mapping[str, Any]

PROGRAM: Final = """
import multiprocessing, os, sys, threading, time
import numpy as np
import otel_quant

kept = []

class Reader:
    def __init__(self, samples, seconds=0.0, leaked=0):
        self.left, self.seconds, self.leaked = samples, seconds, leaked

    def get_next(self):
        self.left -= 1
        if self.left < 0:
            return None
        if self.leaked:
            kept.append(np.ones(self.leaked // 8))  # leaks here
        time.sleep(self.seconds)  # loads here
        return {"x": np.random.default_rng(self.left).random((1, 3, 32, 32), np.float32)}

def static(reader, model="float.onnx"):
    from onnxruntime.quantization import CalibrationDataReader, quantize_static
    CalibrationDataReader.register(Reader)
    quantize_static(model, "int8.onnx", reader)

def slow_loader():
    static(Reader(12, 0.3))

def leak():
    static(Reader(40, 0.12, 20_000_000))

def left_in_float():
    static(Reader(4), "computed.onnx")

def out_of_memory():
    with otel_quant.step("Calibration"):
        while True:
            kept.append(bytes(50_000_000))  # takes here

def disk_full():
    with otel_quant.step("Export"), open("small/model.bin", "wb") as file:
        while True:
            file.write(bytes(1 << 20))  # fills here

def work(rank):
    with otel_quant.step("Quantize shard"):
        if rank == 1:
            raise ValueError("shard 1 has no scales")  # raises here
        time.sleep(2)

def one_fails():
    with multiprocessing.get_context("spawn").Pool(2) as pool:
        pool.map(work, range(2))

def hang():
    with otel_quant.step("Calibration"):
        open("begun", "x").close()
        threading.Event().wait()  # hangs here

if __name__ == "__main__":
    globals()[sys.argv[1]]()
"""


def line_of(comment: str) -> str:
    """Returns the place in the program that has a comment."""
    lines = PROGRAM.lstrip("\n").splitlines()
    return f"program.py:{1 + next(at for at, line in enumerate(lines) if comment in line)}"


def image_model(*, is_computed: bool = False) -> onnx.ModelProto:
    """Two convolutions; or two products, of which one has a weight that is computed."""
    if not is_computed:
        text = (
            '<ir_version: 8, opset_import: ["" : 17]> g (float[1, 3, 32, 32] x) => (float[1, 8, 32, 32] y)'
            " { r = Conv <pads = [1, 1, 1, 1]> (x, w) y = Relu (r) }"
        )
        shapes: dict[str, tuple[int, ...]] = {"w": (8, 3, 3, 3)}
    else:
        text = (
            '<ir_version: 8, opset_import: ["" : 17]> g (float[1, 3, 32, 32] x) => (float[1, 3, 32, 32] y)'
            ' { t = Tanh (x) y = Einsum <equation = "abij,jk->abik"> (t, w) }'
        )
        shapes = {"w": (32, 32)}
    model = parser.parse_model(text)
    for name, shape in shapes.items():
        weight = np.random.default_rng(0).normal(size=shape).astype(np.float32)
        model.graph.initializer.append(onnx.numpy_helper.from_array(weight, name))
    return model


@pytest.fixture
def planted(launched: Launched) -> Launched:
    """The folder with the program and its models."""
    (launched.folder / "program.py").write_text(PROGRAM.lstrip("\n"))
    onnx.save(image_model(), launched.folder / "float.onnx")
    onnx.save(image_model(is_computed=True), launched.folder / "computed.onnx")
    return launched


def followed(folder: Launched, first: list[str]) -> Iterator[Answer]:
    """Yields the answer of a command, and of those that it names: of each the first one."""
    command = first
    for _ in range(MOST_COMMANDS):
        done = folder.run_bare(command)
        line = (done.stderr if "--quiet" in command else done.stdout).splitlines()[-1]
        assert len(line) <= 2000
        answer = json.loads(line)
        yield answer
        if not answer["next"]:
            return
        program, *arguments = shlex.split(answer["next"][0])
        assert program == "otel-quant"
        command = [sys.executable, "-m", program.replace("-", "_"), *arguments]


def words_of(answer: Answer) -> str:
    return " ".join([answer["verdict"], *answer["evidence"], *answer["help"]])


class Problem(NamedTuple):
    """What a program does, and what its last answer has to say."""

    before: str  # In a shell before it
    says: tuple[str, ...]
    here: str = ""  # The comment of the line that is to be named
    is_bad: bool = False


PROBLEMS: Final = {
    "slow_loader": Problem("", ("bound by the loader of the calibration data", "To try: load"), "loads here"),
    "leak": Problem("", ("Memory kept growing in Calibration", "MB with each sample"), "leaks here"),
    "left_in_float": Problem("", ("Einsum `y` stayed in float, 100.0 % of the MACs",)),
    "out_of_memory": Problem("ulimit -v 1600000;", ("limit of the address space", "MemoryError"), "takes here", is_bad=True),
    "disk_full": Problem("", ("disk full", "No space left on device"), "fills here", is_bad=True),
    "one_fails": Problem("", ("ValueError: shard 1 has no scales",), "raises here", is_bad=True),
}  # fmt: skip


@pytest.mark.parametrize("does", PROBLEMS)
def test_the_last_answer_names_the_planted_cause_and_its_line(planted: Launched, does: str) -> None:
    problem = PROBLEMS[does]
    program = planted.folder / "program.py"
    with small_disk(planted.folder, "4m") if does == "disk_full" else nullcontext():
        run = [sys.executable, str(program), does]
        if problem.before:
            run = ["sh", "-c", f"{problem.before} {' '.join(run)}"]
        answers = list(followed(planted, [*launcher("--quiet", "--brief"), *run]))
    last = words_of(answers[-1])
    wanted = *problem.says, problem.here and line_of(problem.here)
    assert [text for text in wanted if text not in last] == []
    assert answers[0]["is_bad"] == problem.is_bad


@pytest.mark.slow
def test_a_hang_is_named_with_its_line_and_what_it_waits_for(planted: Launched) -> None:
    # However long the program takes to start, it hangs for 40 s.
    program = (
        f"{sys.executable} program.py hang & while [ ! -e begun ]; do sleep 1; done;"
        " sleep 40; kill $!; wait $!"
    )
    (answer,) = followed(planted, [*launcher("--quiet", "--brief"), "sh", "-c", program])
    assert [
        text for text in ("no progress for", line_of("hangs here")) if text not in words_of(answer)
    ] == []


def test_a_model_is_mended_by_following_the_answers(planted: Launched) -> None:
    net(is_float=True).save(planted.folder / "float.onnx")
    net().save(planted.folder / "int8.onnx")
    first = [
        sys.executable,
        "-m",
        "otel_quant",
        "inference",
        "float.onnx",
        "int8.onnx",
        "--threads",
        "1",
        "--brief",
    ]
    slower, mended, *measured = followed(planted, first)
    assert "slower than float.onnx" in slower["verdict"]
    assert "bias" in words_of(slower)
    assert mended["verdict"].startswith("int8.fixed.onnx is")
    # On a busy machine it is measured once more, on one thread, where CPU time decides.
    assert "faster than float.onnx" in measured[-1]["verdict"]
    assert measured[-1]["next"] == []


def test_a_wrong_file_is_named_with_its_scale(planted: Launched) -> None:
    net().save(planted.folder / "int8.onnx")
    model = onnx.load(planted.folder / "int8.onnx")
    scale = next(each for each in model.graph.initializer if each.name == "c2_w_scale")
    scale.CopyFrom(onnx.numpy_helper.from_array(np.float32(np.nan), scale.name))
    onnx.save(model, planted.folder / "int8.onnx")
    done = planted.otel_quant("audit", "int8.onnx", "--brief")
    answer = json.loads(done.stdout)
    assert (done.returncode, answer["is_bad"]) == (1, True)
    assert "c2" in answer["verdict"]
    assert "NaN" in answer["verdict"]
