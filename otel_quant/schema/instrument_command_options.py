"""The variables that the command ``opentelemetry-instrument`` makes options of, from the settings.

Only that command loads this module, before it starts the program.
"""

from otel_quant.schema.settings import SETTINGS

# The command takes every name of this module that begins with `OTEL_`.
globals().update({each.variable: each.variable for each in SETTINGS if each.is_option})
