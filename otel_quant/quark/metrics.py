"""The metrics of the local file, under the name that they have in Quark's profiler."""

from otel_quant.export.quark_yaml.metrics import *  # noqa: F403 - the names of its __all__
from otel_quant.export.quark_yaml.metrics import __all__ as __all__
