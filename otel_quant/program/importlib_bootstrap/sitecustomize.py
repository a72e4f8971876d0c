"""Instruments a Python program that ``otel-quant run`` has started, as Python itself starts.

The launcher puts this folder first into ``PYTHONPATH``; Python imports the module before the
program's own code. Any Python may come here, of any version and in any environment: where otel-quant
cannot be loaded nothing happens, and the program's own sitecustomize runs as ever.
"""

import os
import sys

if __name__ == "sitecustomize":
    _here = os.path.dirname(__file__)
    sys.path[:] = [_entry for _entry in sys.path if _entry != _here]
    _us = sys.modules.pop("sitecustomize")  # Python 2 clears a module that nothing refers to
    try:
        # The program's own, which this one hides. If there is none, or if it fails, Python is told
        # so as without us.
        __import__("sitecustomize")
    finally:
        _outcome = "old"
        if sys.version_info >= (3, 11):
            try:
                from otel_quant.program.launched import instrument

                _outcome = instrument()
            except ImportError:
                _outcome = "absent"
        try:
            # A file that the launcher has made, and reads at the end.
            _notes = os.open(
                os.environ["OTEL_QUANT_RECORD"] + "/.pythons", os.O_WRONLY | os.O_APPEND
            )
            try:
                _note = "%s %s\n" % (_outcome, sys.executable)
                os.write(_notes, _note.encode("utf-8", "replace"))
            finally:
                os.close(_notes)
        except (KeyError, OSError, ValueError):
            pass
