"""Every resource that is measured. To add one, add a file to this folder and a line here."""

from __future__ import annotations

from typing import Final

from otel_quant.capture.probes.cache_directories import CACHE
from otel_quant.capture.probes.cpu import CPU
from otel_quant.capture.probes.disk import DISK
from otel_quant.capture.probes.gpu import GPU
from otel_quant.capture.probes.memory import MEMORY
from otel_quant.schema.resources import Resource

RESOURCES: Final[tuple[Resource, ...]] = (MEMORY, GPU, DISK, CPU, CACHE)
"""In the order of the documentation."""
