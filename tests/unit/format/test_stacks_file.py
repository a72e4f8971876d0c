"""The file with the stacks of a run, which the sampler and the end of the run write."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import ItemsView
from pathlib import Path

from otel_quant.diagnosis.stack_trees import Node
from otel_quant.format.event_file import StacksWriter


class _Slow(dict[int, Node]):
    """Stacks that take long to be read."""

    def items(self) -> ItemsView[int, Node]:
        time.sleep(0.3)
        return super().items()


def test_a_write_that_takes_long_is_not_put_over_a_later_one(tmp_path: Path) -> None:
    writer, path = StacksWriter(), tmp_path / "stacks.json"
    slow = threading.Thread(target=writer.write, args=(path, "slow", _Slow({0: Node()}), 1))
    slow.start()
    time.sleep(0.1)
    writer.write(path, "later", {0: Node()}, 2)
    slow.join()
    assert json.loads(path.read_bytes())["run"] == "later"
