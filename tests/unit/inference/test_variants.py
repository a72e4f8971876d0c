"""What a script's function returns, and one line for each way in which it cannot be had; huge pages of its processes."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from otel_quant.inference.model_process import with_huge_pages
from otel_quant.inference.torch_session import VariantsError, error_text, load_variants
from tests.fixtures.programs import run_script

WANTED = (
    "expected (models, inputs): a mapping of names to torch modules, to functions that make one or "
    "to paths of .onnx files, and what each of them is called with"
)


@pytest.fixture(autouse=True)
def _scripts_are_forgotten(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(sys, "path", list(sys.path))
    yield
    for name in ("script_of_variants", "beside_the_script"):
        sys.modules.pop(name, None)


def script(folder: Path, text: str) -> str:
    path = folder / "script_of_variants.py"
    path.write_text(text)
    return f"{path}:variants"


def test_the_function_gives_models_and_inputs_and_its_folder_is_importable(tmp_path: Path) -> None:
    (tmp_path / "beside_the_script.py").write_text("INPUTS = (1, 2)\n")
    reference = script(
        tmp_path,
        "from beside_the_script import INPUTS\n"
        "assert __name__ == 'script_of_variants'\n"
        "def variants():\n"
        "    return {'int8': 'int8.onnx'}, INPUTS\n",
    )
    assert load_variants(reference) == ({"int8": "int8.onnx"}, (1, 2))


def test_a_script_gets_no_command_line_options(tmp_path: Path) -> None:
    reference = script(
        tmp_path,
        "import argparse\n"
        "parser = argparse.ArgumentParser()\n"
        "parser.add_argument('--width', type=int, default=4)\n"
        "width = parser.parse_args().width\n"
        "def variants():\n"
        "    return {'a': 'a.onnx'}, width\n",
    )
    before = list(sys.argv)
    assert load_variants(reference) == ({"a": "a.onnx"}, 4)
    assert sys.argv == before


def test_a_script_leaves_no_bytecode(tmp_path: Path) -> None:
    load_variants(script(tmp_path, "def variants():\n    return {'a': 'a.onnx'}, 1\n"))
    assert [path.name for path in tmp_path.iterdir()] == ["script_of_variants.py"]


@pytest.mark.parametrize(("seed", "is_its_own"), [("", False), ("random.seed(7)", True)])
def test_random_numbers_are_the_same_in_each_process(
    tmp_path: Path, seed: str, is_its_own: bool
) -> None:
    text = (
        f"import random\n{seed}\ndef variants():\n    return {{'a': 'a.onnx'}}, random.random()\n"
    )
    code = (
        "from otel_quant.inference.torch_session import load_variants\n"
        f"print(load_variants({script(tmp_path, text)!r})[1])"
    )
    first, second = (run_script(tmp_path, code) for _ in range(2))
    own = run_script(tmp_path, "import random; random.seed(7); print(random.random())")
    assert first == second
    assert (first == own) is is_its_own


@pytest.mark.parametrize(
    ("reference", "problem"),
    [
        ("script.py", "is not a function of a script; expected path/to/script.py:function, or an .onnx file"),
        ("script.py:", "is not a function of a script; expected path/to/script.py:function, or an .onnx file"),
        ("/nowhere/script.py:variants", "no such file; expected path/to/script.py:function"),
    ],
)  # fmt: skip
def test_a_reference_to_a_missing_object_is_an_error(reference: str, problem: str) -> None:
    named = reference.removesuffix(":variants")
    with pytest.raises(VariantsError, match=f"^{re.escape(f'{named}: {problem}')}$"):
        load_variants(reference)


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("", "{path} has no function 'variants'; expected one that returns" + WANTED[8:]),
        ("variants = 1", "{path} has no function 'variants'; expected one that returns" + WANTED[8:]),
        ("def variants():\n    raise ValueError('no weights\\nat all')",
         "{path}:variants raised ValueError: no weights (line 2)"),
        ("import nowhere", "{path}:variants raised ModuleNotFoundError: No module named 'nowhere' (line 1)"),
        ("def variants(:", "{path}:variants raised SyntaxError: invalid syntax (script_of_variants.py, line 1)"),
        ("raise SystemExit(3)",
         "{path}:variants: the script has ended with exit code 3; expected one that only defines "
         "things when it is imported"),
        ("import sys\nsys.exit()",
         "{path}:variants: the script has ended with exit code 0; expected one that only defines "
         "things when it is imported"),
        ("def variants(): pass", "{path}:variants has returned None; " + WANTED),
        ("def variants(): return {'a': 'a.onnx'}", "{path}:variants has returned a dict; " + WANTED),
        ("def variants(): return ['a'], 1", "{path}:variants has returned a list as models; " + WANTED),
        ("def variants(): return {}, 1", "{path}:variants has returned no models; " + WANTED),
        ("def variants(): return {1: 'a.onnx'}, 1", "{path}:variants has returned 1 as the name of a model; " + WANTED),
        ("def variants(): return {'a': 'a.pt'}, 1", "{path}:variants has returned 'a.pt' as model 'a'; " + WANTED),
    ],
)  # fmt: skip
def test_an_error_of_a_script_is_reported_in_one_line(
    tmp_path: Path, text: str, problem: str
) -> None:
    reference = script(tmp_path, text)
    wanted = problem.replace("{path}", reference.removesuffix(":variants"))
    with pytest.raises(VariantsError, match=f"^{re.escape(wanted)}$"):
        load_variants(reference)


def test_an_error_is_its_class_and_its_first_meaningful_line() -> None:
    assert error_text(RuntimeError("\n  no compiler\nmore")) == "RuntimeError: no compiler"
    announced = RuntimeError("backend raised:\nNoCompiler: none\n\nmore")
    assert error_text(announced) == "RuntimeError: backend raised: NoCompiler: none"
    assert error_text(KeyError()) == "KeyError"
    assert error_text(ValueError("x" * 300)) == f"ValueError: {'x' * 200}..."


ASKED = "glibc.malloc.hugetlb=1"


@pytest.mark.parametrize(
    ("given", "setting", "variables"),
    [
        (None, "always [madvise] never\n", {"GLIBC_TUNABLES": ASKED}),
        (None, "[always] madvise never\n", {"GLIBC_TUNABLES": ASKED}),
        ("glibc.malloc.check=1", "always [madvise] never\n", {"GLIBC_TUNABLES": f"glibc.malloc.check=1:{ASKED}"}),
        ("glibc.malloc.hugetlb=0", "always [madvise] never\n", {}),
        (None, "always madvise [never]\n", {}),
        (None, None, {}),
    ],
)  # fmt: skip
def test_huge_pages_are_requested_if_available_and_not_configured_otherwise(
    given: str | None, setting: str | None, variables: dict[str, str], tmp_path: Path
) -> None:
    file = tmp_path / "enabled"
    if setting is not None:
        file.write_text(setting)
    environ = {} if given is None else {"GLIBC_TUNABLES": given}
    assert with_huge_pages(environ, file) == variables


HELD = """
held = bytearray(64 * 2**20)
print(next(line.split()[1] for line in open("/proc/self/smaps_rollup") if "AnonHugePages" in line))
"""


@pytest.mark.skipif(not with_huge_pages({}), reason="the kernel gives no huge pages")
def test_a_process_with_these_variables_has_huge_pages(tmp_path: Path) -> None:
    held, _ = run_script(tmp_path, HELD, **with_huge_pages({}))
    assert int(held) > 0
