"""Messages of a library name the program as its caller, although we wrap the library."""

from __future__ import annotations

import re
from pathlib import Path

import otel_quant
from tests.fixtures.programs import run_script

LIBRARY = '''
import logging, warnings

def tell():
    """Tells what the caller of the caller did."""
    warnings.warn("told", DeprecationWarning, stacklevel=3)
    logging.getLogger("library").warning("told", stacklevel=3)

def stepped(): tell()
def entered(): tell()
def quantized(model_input=None): tell()
def common(): tell()
def noted(): tell()
def yielded():
    tell()
    yield 1
async def awaited(): tell()
async def yielded_later():
    tell()
    yield 1
class Reader:
    def counted(self):
        tell()
        return 1
    def each_counted(self):
        tell()
        yield 1
    def __iter__(self):
        tell()
        yield 1
    def get_next(self): tell()
def layer(): tell()
def passed(function): tell()
'''

PROGRAM = """
import asyncio, logging, sys, warnings

if sys.argv[1:] == ["hooked"]:
    from otel_quant.capture.instruments.hooks import HOOKS
    from otel_quant.capture.instruments.hooks import (
        BAR, ENTRY_POINT, LAYER, OBSERVED, STEP, Hook, Library,
    )

    hooks = {
        "stepped": STEP, "entered": ENTRY_POINT, "yielded": STEP,
        "awaited": STEP, "yielded_later": STEP,
    }
    nothing = "quark:note_name"
    HOOKS.set([
        Library("test", "test", (
            *(Hook("tool", *hook, "Step") for hook in hooks.items()),
            Hook("tool", "quantized", ENTRY_POINT, models="steps:models_of"),
            Hook("tool", "Reader.counted", OBSERVED, after="samples:sample"),
            Hook("tool", "Reader.each_counted", BAR, counts="sample"),
            Hook("tool", "layer", OBSERVED, before=LAYER),
            Hook("tool", "noted", OBSERVED, after=nothing),
            Hook("tool", "passed", ENTRY_POINT, runs="function"),
        )),
        Library("often", "often", (Hook("tool", "common", STEP, "Step"),), is_common=True),
    ])
    import tool
    from otel_quant.capture.instruments.samples import Counted

    readers = Counted(tool.Reader())
else:
    import tool

    readers = tool.Reader()

said = []

class Listed(logging.Handler):
    def emit(self, record):
        said.append((record.filename, record.lineno))

def show(message, category, filename, lineno, *_):
    said.append((filename.rpartition("/")[2], lineno))

logging.getLogger("library").addHandler(Listed())
logging.getLogger("library").propagate = False

warnings.showwarning = show
warnings.simplefilter("always")

tool.stepped()
tool.entered()
tool.quantized()
tool.common()
tool.common()
next(tool.yielded())
tool.Reader().counted()
next(iter(tool.Reader().each_counted()))
tool.layer()
tool.passed(tool.layer)
tool.noted()
readers.get_next()
for _ in readers:
    pass

async def program():
    await tool.awaited()
    async for _ in tool.yielded_later():
        pass

asyncio.run(program())
print(said)
"""


def test_warnings_and_log_lines_name_the_same_caller_with_and_without_hooks(tmp_path: Path) -> None:
    (tmp_path / "tool.py").write_text(LIBRARY)
    plain, _ = run_script(tmp_path, PROGRAM)
    hooked, errors = run_script(tmp_path, PROGRAM, "hooked")
    assert plain.count("'script.py'") == 30, plain
    assert (hooked, errors) == (plain, "")


def test_a_traceback_names_files_that_can_be_opened(tmp_path: Path) -> None:
    (tmp_path / "tool.py").write_text(LIBRARY + "def failing(): 1 / 0\n")
    program = PROGRAM.partition("said = []")[0].replace('"stepped": STEP,', '"failing": STEP,')
    _, errors = run_script(tmp_path, program + "\ntool.failing()\n", "hooked", code=1)
    frames = re.findall(r'File "(.*)", line (\d+), in (.*)\n    (.*)', errors)
    assert [function for *_, function, _ in frames] == ["<module>", "wrapper", "wrapper", "failing"]
    for file, line, _, shown in frames:
        assert Path(file).read_text().splitlines()[int(line) - 1].strip() == shown


def test_no_module_uses_functools_wraps() -> None:
    package = Path(otel_quant.__file__).parent
    using = [path.name for path in package.rglob("*.py") if "functools.wraps(" in path.read_text()]
    assert using == []
