"""What quantization bought: two models' costs side by side."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, Literal, NamedTuple

from otel_quant.cost import ModelCost
from otel_quant.views.cost_rows import TOTALS, Column

Change = Literal["ratio", "difference", "points"]


class Difference(NamedTuple):
    """One figure of two models."""

    key: str  # Its name in JSON
    heading: str  # Its name in tables
    before: float  # The first model's
    after: float  # The other's
    # How the two are best compared: as a ratio, a difference of counts, or, of shares, a
    # difference in percentage points
    change: Change

    @property
    def ratio(self) -> float | None:
        """After by before; None if there was nothing before, or it is no number of 64 bits."""
        try:
            return self.after / self.before if self.before else None
        except OverflowError:
            return None


_SIZES: Final = (
    "file_bytes",
    "weight_bytes",
    "params",
    "macs",
    "macs_contraction",
    "memory_bytes",
    "peak_activation_bytes",
)
_COUNTS: Final = ("nodes", "quantize_nodes", "dequantize_nodes", "uncosted_nodes")
_COLUMNS: Final = {
    column.key: column
    for column in (
        *TOTALS,
        Column(
            "uncosted_nodes",
            "nodes without known MACs",
            lambda model: sum(model.uncosted_ops.values()),
        ),
    )
}


def compare(before: ModelCost, after: ModelCost) -> list[Difference]:
    """Returns the figures of two models, the precisions that either executes in last."""
    found: list[Difference] = []
    for key in (*_SIZES, *_COUNTS):
        column = _COLUMNS[key]
        then, now = column.value(before), column.value(after)
        assert isinstance(then, int)
        assert isinstance(now, int)
        change: Change = "ratio" if key in _SIZES else "difference"
        found.append(Difference(key, column.heading, then, now, change))
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
