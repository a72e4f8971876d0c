"""The few functions of AMD's ``amdsmi`` (6.2 and later) that we need.

``amdsmi`` is imported only where its library can be loaded: without it, importing the
module prints to the program's standard output and ends in a ``KeyError``.
"""

from __future__ import annotations

import ctypes
import importlib
import importlib.util
import logging
from collections.abc import Mapping
from pathlib import Path
from typing import Any

_log = logging.getLogger("otel_quant")


class AmdSmiUnavailableError(Exception):
    """``amdsmi`` does not answer."""


class AmdSmi:
    """An open ``amdsmi``. Devices are named by their PCI address.

    Args:
        smi: The module ``amdsmi``, initialised.
    """

    def __init__(self, smi: Any) -> None:
        self._smi = smi
        self._handles = {
            str(smi.amdsmi_get_gpu_device_bdf(handle)).lower(): handle
            for handle in smi.amdsmi_get_processor_handles()
        }

    @classmethod
    def open(cls, environ: Mapping[str, str]) -> AmdSmi | None:
        """Opens ``amdsmi``.

        Args:
            environ: Environment variables; ``ROCM_HOME`` and ``ROCM_PATH`` say where the
                library may be.

        Returns:
            It, or None if it is not installed or does not work here.
        """
        spec = importlib.util.find_spec("amdsmi")
        if spec is None or not _library_loads(environ, spec.submodule_search_locations or ()):
            return None
        try:
            smi: Any = importlib.import_module("amdsmi")
        except (ImportError, AttributeError, KeyError, OSError) as error:
            _log.debug("amdsmi cannot be imported, reading the kernel's files: %r", error)
            return None
        try:
            smi.amdsmi_init(smi.AmdSmiInitFlags.INIT_AMD_GPUS)
            return cls(smi)
        except smi.AmdSmiException as error:
            _log.debug("amdsmi does not work here, reading the kernel's files: %r", error)
            return None

    def knows(self, address: str) -> bool:
        """Says whether it has found the device at a PCI address."""
        return address in self._handles

    def used(self, address: str) -> int:
        """Reads how much memory of a device is in use, in bytes.

        Raises:
            AmdSmiUnavailableError: It does not answer.
        """
        smi = self._smi
        try:
            return int(
                smi.amdsmi_get_gpu_memory_usage(self._handles[address], smi.AmdSmiMemoryType.VRAM)
            )
        except smi.AmdSmiException as error:
            raise AmdSmiUnavailableError(str(error)) from error

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

    def close(self) -> None:
        """Shuts it down."""
        try:
            self._smi.amdsmi_shut_down()
        except self._smi.AmdSmiException as error:
            _log.debug("amdsmi did not shut down: %r", error)


def _library_loads(environ: Mapping[str, str], package: Any) -> bool:
    """Says whether ``libamd_smi.so`` is in one of the places where ``amdsmi`` looks."""
    rocm = [environ[name] for name in ("ROCM_HOME", "ROCM_PATH") if environ.get(name)]
    folders = [Path(folder) / "lib" for folder in [*rocm, "/opt/rocm"]]
    folders += [Path(folder) for folder in package]
    for library in ("libamd_smi.so", *(str(folder / "libamd_smi.so") for folder in folders)):
        try:
            ctypes.CDLL(library)
        except OSError:
            continue
        return True
    return False
