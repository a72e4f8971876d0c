"""A data loader whose items are counted for the calibration step that is open."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import wrapt

from otel_quant.fault_boundary import FAULTS
from otel_quant.instruments.calls import count_sample

if TYPE_CHECKING:
    _Proxy = wrapt.ObjectProxy[Any]
else:
    _Proxy = wrapt.ObjectProxy  # generic since wrapt 2 only


class CountedLoader(_Proxy):
    """A data loader that is iterated as before, and whose items are counted."""

    def __iter__(self) -> Iterator[Any]:
        for item in self.__wrapped__:
            with FAULTS.kept_in("counting calibration samples"):
                count_sample(self.__wrapped__)
            yield item
