"""What is read of a library's variables is not kept."""

from __future__ import annotations

import weakref
from types import SimpleNamespace

from otel_quant.capture.instruments.libraries import of_block
from otel_quant.schema.readings import LayerAccuracy


class Weights:
    """Stands for what takes memory."""


def test_memory_that_a_library_frees_within_a_function_whose_variables_are_read_is_freed() -> None:
    def quantize_block() -> tuple[list[LayerAccuracy], Weights | None]:  # as in AutoRound
        init_loss, last_loss, block_ctx = 2.0, 0.5, SimpleNamespace(block_name="layers.0")
        weights = Weights()
        freed = weakref.ref(weights)
        found = list(of_block({}, None))
        assert (init_loss, last_loss, block_ctx.block_name) == (2.0, 0.5, "layers.0")
        del weights
        return found, freed()

    known = LayerAccuracy(layer="layers.0", measure="loss", value=0.5, better="lower")
    assert quantize_block() == ([known], None)
