"""The libraries are instrumented as the first is imported, whatever other threads import meanwhile."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Final

SLOW: Final = """
import sys
import _thread
started, go = sys.modules["__main__"].locks
started.release()
go.acquire()
import wave
"""

PROGRAM: Final = """
import _thread, sys
from otel_quant.program import launched
locks = started, go = _thread.allocate_lock(), _thread.allocate_lock()
started.acquire(), go.acquire()
done = _thread.allocate_lock()
done.acquire()

def import_slow():
    import slow
    done.release()

def instrument():
    go.release()
    import slow

launched._instrument_libraries = instrument
sys.meta_path.insert(0, launched._FirstImport())
_thread.start_new_thread(import_slow, ())
started.acquire()
import multiprocessing
done.acquire()
print(multiprocessing.__name__)
"""


def test_another_thread_that_imports_the_same_does_not_wait_for_ever(tmp_path: Path) -> None:
    (tmp_path / "slow.py").write_text(SLOW)
    (tmp_path / "program.py").write_text(PROGRAM)
    done = subprocess.run(
        [sys.executable, "program.py"], cwd=tmp_path, capture_output=True, text=True, timeout=60, check=False
    )  # fmt: skip
    assert (done.stdout, done.stderr) == ("multiprocessing\n", "")
