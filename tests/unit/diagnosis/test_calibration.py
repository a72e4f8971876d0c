"""What is concluded from what reached the layers of a model."""

from __future__ import annotations

import math

import pytest

from otel_quant.capture.recorder.observed_layers import ObservedLayers
from otel_quant.diagnosis.calibration import attributes, findings
from otel_quant.schema import semconv
from otel_quant.schema.readings import LayerSeen


def seen(layer: str, samples: int = 64, tokens: int | None = 4096, **more: object) -> LayerSeen:
    return LayerSeen(layer, samples, tokens)._replace(**more)


def experts(layer: int, *tokens: int) -> list[LayerSeen]:
    """Returns the experts of a layer, in two parts each, by the tokens that reached them."""
    return [
        seen(f"model.layers.{layer}.mlp.experts.{number}.{part}", min(64, each), each)
        for number, each in enumerate(tokens)
        for part in ("up_proj", "down_proj")
    ]


HEALTHY = [seen("embed"), *experts(0, 900, 1100, 8, 4000), seen("head", 64, 64)]
SAME_RANGE = {"growth": 1.3, "settled": 60}


@pytest.mark.parametrize(
    ("layers", "expected"),
    [
        (HEALTHY, []),
        ([each._replace(**SAME_RANGE) for each in HEALTHY], []),
        ([seen("fc", 4, 4), seen("head", 4, 4)], []),  # all of what little there was
        ([seen("fc", 0, 0), seen("head", 0, 0)], []),  # another copy of the model was run
        (
            [seen("fc"), *experts(12, 500, 3, 0, 0, 700)],
            ["3 of 5 experts of layer 12 saw fewer than 8 tokens (2 of them none): 1, 2, 3"],
        ),
        (
            [*experts(3, 500, 3), *experts(4, 0, 9), *experts(5, 4000, 7, 9, 10)],
            ["1 of 2 experts of layer 3 saw fewer than 8 tokens: 1; in 2 more layers 2 of 6"],
        ),
        (
            [seen("fc"), *(seen(f"aux.{n}", 0, 0) for n in range(4)), seen("branch", 2, 2)],
            ["5 of 6 layers saw fewer than 8 tokens (4 of them none): aux.0, aux.1, aux.2 and 2 more"],
        ),
        (
            [seen("a"), seen("b", is_finite=False, sample=17), seen("c", is_finite=False, sample=9)],
            ["the first value that is not finite is at c, sample 9, then at 1 other layer"],
        ),
        (
            [seen("on a GPU", is_finite=False)],
            ["the first value that is not finite is at on a GPU"],
        ),
        (
            [seen("reduced", tokens=None, is_finite=False, sample=2)],
            ["one value, maybe not the first, that is not finite is at reduced, sample 2"],
        ),
        (
            [seen("a", growth=9.81), seen("b", growth=2.0), seen("c", growth=1.9)],
            ["in the last tenth of the samples the range of 2 of 3 layers grew, that of a 9.8 times as wide: more samples would change it"],
        ),
    ],
)  # fmt: skip
def test_what_is_wrong_is_told_and_nothing_else(
    layers: list[LayerSeen], expected: list[str]
) -> None:
    assert findings(layers, is_over=True) == expected


@pytest.mark.parametrize(
    ("layers", "expected"),
    [
        ([seen("fc"), seen("aux", 0, 0), seen("late", growth=9.0)], []),
        (experts(0, 7, 0), []),
        (experts(0, 64, 0), ["1 of 2 experts of layer 0 saw no token: 1"]),
        ([seen("a", 3, is_finite=False, sample=3)], ["the first value that is not finite is at a, sample 3"]),
    ],
)  # fmt: skip
def test_while_it_goes_on_only_what_more_samples_would_not_mend_is_told(
    layers: list[LayerSeen], expected: list[str]
) -> None:
    assert findings(layers, is_over=False) == expected


@pytest.mark.parametrize(
    ("layers", "expected"),
    [
        ([seen("a", settled=12), seen("b", settled=16), seen("c", settled=1)], 16),
        ([seen("a", settled=12), seen("never", 0, 0)], None),
        ([seen("a", settled=12), seen("b", settled=17)], None),
        ([seen("a", settled=12), seen("histogram")], None),
        ([seen("a", 31, settled=1)], None),
        ([], None),
    ],
)
def test_fewer_samples_would_do_where_every_range_has_settled(
    layers: list[LayerSeen], expected: int | None
) -> None:
    assert attributes(layers, is_over=True).get(semconv.CALIBRATION_SETTLED) == expected
    assert not attributes(layers, is_over=False)


def test_a_layer_has_its_samples_tokens_and_range() -> None:
    observed = ObservedLayers()
    first, second = observed.add("first", settles=True), observed.add("second")
    observed.add("never")
    for sample in range(1, 41):
        observed.sample = sample
        if sample % 2:
            observed.reached(second, 3)
            second.note_range(sample, 0.0, math.nan if sample == 21 else 1.0)
        for part in (1, 2):
            observed.reached(first, part)
        first.note_range(sample, -1.0 if sample < 4 else -1.2 if sample < 38 else -6.0, 0.5)

    assert observed.end() == [
        LayerSeen("second", 20, 60, sample=21, is_finite=False, growth=1.0),
        LayerSeen("first", 40, 120, growth=5.0, settled=38),
        LayerSeen("never", 0, 0),
    ]
