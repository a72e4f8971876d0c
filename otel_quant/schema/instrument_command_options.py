"""The variables that the command ``opentelemetry-instrument`` makes options of.

Only that command loads this module, before it starts the program. That is the one moment at which
a misspelt exporter can be named: in the program, the SDK refuses an exporter that it does not know
before anything of ours is loaded, and no library is instrumented.
"""

from __future__ import annotations

import os

from otel_quant.base.log import LOG
from otel_quant.schema.settings import OTEL_QUANT_ARGUMENTS as OTEL_QUANT_ARGUMENTS
from otel_quant.schema.settings import OTEL_QUANT_COST as OTEL_QUANT_COST
from otel_quant.schema.settings import OTEL_QUANT_COST_TIMEOUT as OTEL_QUANT_COST_TIMEOUT
from otel_quant.schema.settings import OTEL_QUANT_EXACT_PEAKS as OTEL_QUANT_EXACT_PEAKS
from otel_quant.schema.settings import OTEL_QUANT_EXIT_TIMEOUT as OTEL_QUANT_EXIT_TIMEOUT
from otel_quant.schema.settings import OTEL_QUANT_GPU as OTEL_QUANT_GPU
from otel_quant.schema.settings import OTEL_QUANT_HASH as OTEL_QUANT_HASH
from otel_quant.schema.settings import OTEL_QUANT_LIBRARIES as OTEL_QUANT_LIBRARIES
from otel_quant.schema.settings import OTEL_QUANT_OTLP_FILES as OTEL_QUANT_OTLP_FILES
from otel_quant.schema.settings import OTEL_QUANT_PATHS as OTEL_QUANT_PATHS
from otel_quant.schema.settings import OTEL_QUANT_PROFILE as OTEL_QUANT_PROFILE
from otel_quant.schema.settings import OTEL_QUANT_RECORD as OTEL_QUANT_RECORD
from otel_quant.schema.settings import OTEL_QUANT_RUN_NAME as OTEL_QUANT_RUN_NAME
from otel_quant.schema.settings import OTEL_QUANT_SAMPLE_INTERVAL as OTEL_QUANT_SAMPLE_INTERVAL
from otel_quant.schema.settings import OTEL_QUANT_YAML_STRICT as OTEL_QUANT_YAML_STRICT
from otel_quant.schema.settings import misspelt_exporters

for _line in misspelt_exporters(os.environ):
    LOG.warning("%s", _line)
