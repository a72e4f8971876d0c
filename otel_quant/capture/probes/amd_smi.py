"""AMD's ``amdsmi`` (6.2 and later), if the program has already loaded it.

We never import it. ROCm builds of torch contain their own copy of its library, and two copies
in one process can corrupt the heap and make torch find no GPU (ROCm/TheRock issue 2269,
pytorch issue 186516). We use the program's copy and never shut it down: the program may still
need it.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from types import ModuleType
from typing import Any

from otel_quant.base.log import LOG


class AmdSmiUnavailableError(Exception):
    """``amdsmi`` could not read a device."""


class AmdSmi:
    """The program's ``amdsmi``. Devices are named by their PCI address."""

    def __init__(self, smi: Any) -> None:
        self._smi = smi
        self._handles = {
            str(smi.amdsmi_get_gpu_device_bdf(handle)).lower(): handle
            for handle in smi.amdsmi_get_processor_handles()
        }

    @classmethod
    def from_loaded_module(cls, modules: Mapping[str, ModuleType] = sys.modules) -> AmdSmi | None:
        """Uses the ``amdsmi`` that the program has loaded."""
        smi: Any = modules.get("amdsmi")
        # The last names that the package's __init__ imports are its exceptions.
        if not hasattr(smi, "AmdSmiException") or not hasattr(smi, "amdsmi_init"):
            return None
        try:
            smi.amdsmi_init(smi.AmdSmiInitFlags.INIT_AMD_GPUS)
            return cls(smi)
        except smi.AmdSmiException as error:
            LOG.debug("amdsmi does not work here; the kernel's files are read instead: %r", error)
            return None

    def has_device(self, address: str) -> bool:
        """Returns whether it has found the device at a PCI address."""
        return address in self._handles

    def used(self, address: str) -> int:
        """Reads how much memory of a device is in use, in bytes."""
        smi = self._smi
        try:
            return int(
                smi.amdsmi_get_gpu_memory_usage(self._handles[address], smi.AmdSmiMemoryType.VRAM)
            )
        except smi.AmdSmiException as error:
            raise AmdSmiUnavailableError(repr(error)) from error

    def name(self, address: str) -> str | None:
        """Reads the product name of a device; None if it has none."""
        if address not in self._handles:
            return None
        try:
            info = self._smi.amdsmi_get_gpu_asic_info(self._handles[address])
        except self._smi.AmdSmiException:
            return None
        name = str(info.get("market_name", ""))
        return None if name in ("", "N/A") else name
