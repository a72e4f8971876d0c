"""What quantization bought: two models' costs side by side."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Final, Literal, NamedTuple

from otel_quant.cost import ModelCost

Change = Literal["ratio", "difference", "points"]


class Difference(NamedTuple):
    """One figure of two models.

    Attributes:
        key: Its name in JSON.
        heading: Its name in tables.
        before: The first model's.
        after: The other's.
        change: How the two are best compared: as a ratio, a difference of counts, or, of
            shares, a difference in percentage points.
    """

    key: str
    heading: str
    before: float
    after: float
    change: Change

    @property
    def ratio(self) -> float | None:
        """After by before; None if there was nothing before, or it is no number of 64 bits."""
        try:
            return self.after / self.before if self.before else None
        except OverflowError:
            return None


_FIGURES: Final[tuple[tuple[str, str, Callable[[ModelCost], int], Change], ...]] = (
    ("file_bytes", "file and external data, bytes", lambda model: model.file_bytes, "ratio"),
    ("weight_bytes", "weights, bytes", lambda model: model.weight_bytes, "ratio"),
    ("params", "parameters", lambda model: model.params, "ratio"),
    ("macs", "MACs", lambda model: model.macs, "ratio"),
    ("macs_contraction", "MACs of contractions", lambda model: model.macs_contraction, "ratio"),
    ("memory_bytes", "memory, bytes", lambda model: model.memory_bytes, "ratio"),
    (
        "peak_activation_bytes",
        "peak of activations, bytes",
        lambda model: model.peak_activation_bytes,
        "ratio",
    ),
    ("nodes", "nodes", lambda model: len(model.nodes), "difference"),
    ("quantize_nodes", "QuantizeLinear nodes", lambda model: model.quantize_nodes, "difference"),
    (
        "dequantize_nodes",
        "DequantizeLinear nodes",
        lambda model: model.dequantize_nodes,
        "difference",
    ),
    (
        "uncosted_nodes",
        "nodes without known MACs",
        lambda model: sum(model.uncosted_ops.values()),
        "difference",
    ),
)


def compare(before: ModelCost, after: ModelCost) -> list[Difference]:
    """Returns the figures of two models, the precisions that either executes in last."""
    found = [
        Difference(key, heading, value(before), value(after), change)
        for key, heading, value, change in _FIGURES
    ]
    for name in dict.fromkeys((*before.precision, *after.precision)):
        found.append(
            Difference(
                name,
                f"contraction MACs in {name}",
                before.precision.get(name, 0.0),
                after.precision.get(name, 0.0),
                "points",
            )
        )
    return found


def as_json(before: ModelCost, after: ModelCost) -> dict[str, object]:
    """Returns a comparison as an object of the JSON contract."""
    differences = compare(before, after)
    found: dict[str, object] = {"baseline": before.path, "path": after.path}
    for item in differences:
        if item.change == "ratio":
            found[item.key] = {"before": item.before, "after": item.after, "ratio": item.ratio}
        elif item.change == "difference":
            found[item.key] = {"before": item.before, "after": item.after}
    found["precision"] = {
        item.key: {"before": item.before, "after": item.after}
        for item in differences
        if item.change == "points"
    }
    return found


CSV_COLUMNS: Final = ("baseline", "model", "figure", "before", "after", "ratio")


def as_csv_rows(
    before: ModelCost, after: ModelCost
) -> Iterator[tuple[str, str, str, float, float, float | None]]:
    """Yields a row of ``CSV_COLUMNS`` for each figure; only sizes and costs have a ratio."""
    for item in compare(before, after):
        share = item.change == "points"
        yield (
            before.path,
            after.path,
            f"precision.{item.key}" if share else item.key,
            item.before,
            item.after,
            item.ratio if item.change == "ratio" else None,
        )


def as_cells(item: Difference) -> tuple[str, str, str, str]:
    """Returns a figure as the cells of a table: name, before, after, change."""
    if item.change == "points":
        points = 100 * (item.after - item.before)
        before, after = f"{100 * item.before:.2f} %", f"{100 * item.after:.2f} %"
        return item.heading, before, after, f"{points:+.2f} points"
    numbers = f"{item.before:,}", f"{item.after:,}"
    if item.change == "difference":
        return item.heading, *numbers, f"{item.after - item.before:+,}"
    return item.heading, *numbers, "-" if item.ratio is None else f"x {item.ratio:.3f}"
