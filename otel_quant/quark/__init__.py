"""AMD Quark's profiler API, for scripts that were written for it.

Only the import line has to be changed::

    from otel_quant.quark import GlobalProfiler, ProfileStep

Quark need not be installed.
"""

from __future__ import annotations

from otel_quant.quark import cache_dir_disk_monitor as cache_dir_disk_monitor
from otel_quant.quark import metrics as metrics
from otel_quant.quark import utils as utils
from otel_quant.quark.metrics import *  # noqa: F403 - the names of its __all__
from otel_quant.quark.profiler import GlobalProfiler, ProfileStep, profile_scope

__all__ = ["GlobalProfiler", "ProfileStep", "profile_scope", *metrics.__all__]
