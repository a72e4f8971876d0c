"""Probe for the energy of the machine: of its processors, and of its GPUs where it has to be exact.

Whatever program uses it, it counts: nobody tells what share of a device's energy is a process's.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

from otel_quant.base.kernel_files import read_proc, text_of
from otel_quant.capture.probes.gpu import GpuProbe

_MICROJOULES: Final = 1_000_000


class PackageEnergy:
    """Adds up what the processors' packages use, whatever program uses it. Most kernels show it to root alone."""

    def __init__(self, root: Path = Path("/")) -> None:
        # Not the parts of a package, which have two numbers, nor the whole machine
        zones = (root / "sys/class/powercap").glob("intel-rapl:*")
        self._packages = [
            (each / "energy_uj", int(text_of(each / "max_energy_range_uj") or 0) + 1)
            for each in zones
            if text_of(each / "name").startswith("package-")
        ]
        self._last: list[int] | None = None
        self._sum = 0

    def read(self) -> float | None:
        """Returns joules since the first reading; None where a package does not tell."""
        if not self._packages:
            return None
        try:
            now = [int(read_proc(str(path))) for path, _ in self._packages]
        except (OSError, ValueError):
            self._packages = []
            return None
        # A counter begins anew at its end, after minutes at the soonest.
        pairs = zip(self._last or now, now, self._packages, strict=True)
        self._sum += sum((new - old) % range_ for old, new, (_, range_) in pairs)
        self._last = now
        return self._sum / _MICROJOULES


class MachineEnergy:
    """Reads all that there is, for what is measured in a time of its own."""

    def __init__(self) -> None:
        self._gpus, self._packages = GpuProbe(), PackageEnergy()

    def __call__(self) -> dict[str, float]:
        """Returns joules of ``gpu`` and ``cpu`` since some moment; takes milliseconds of some drivers."""
        known = {"gpu": self._gpus.joules(), "cpu": self._packages.read()}
        return {name: value for name, value in known.items() if value is not None}
