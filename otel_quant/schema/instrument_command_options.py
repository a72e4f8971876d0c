"""The variables that the command ``opentelemetry-instrument`` makes options of, from the settings.

Only that command loads this module, before it starts the program. That is the one moment at which
a misspelt exporter can be named: in the program, the SDK refuses an exporter that it does not know
before anything of ours is loaded, and no library is instrumented.
"""

from __future__ import annotations

import logging
import os

from otel_quant.schema.settings import SETTINGS, misspelt_exporters

# The command takes every name of this module that begins with `OTEL_`.
globals().update({each.variable: each.variable for each in SETTINGS if each.is_option})

for _line in misspelt_exporters(os.environ):
    logging.getLogger("otel_quant").warning("%s", _line)
