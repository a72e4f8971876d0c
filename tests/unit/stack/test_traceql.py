"""The replacement of Tempo returns what a query selects, and refuses unknown syntax."""

from __future__ import annotations

import pytest

from tests.fixtures.otlp_messages import Span
from tests.stack import traceql
from tests.unit.stack.dashboards import QUERIES, Query


def span(name: str, service: str, **attributes: object) -> Span:
    return Span(
        name=name,
        trace_id="1",
        span_id="2",
        parent_id="",
        kind=1,
        start_ns=0,
        end_ns=1,
        status="UNSET",
        status_message="",
        attributes={key.replace("__", "."): value for key, value in attributes.items()},
        dropped_attributes=0,
        events=(),
        scope="",
        scope_version="",
        schema_url="",
        resource={"service.name": service},
        arrived=2,
    )


RUN = span("quantization", "resnet", quant__memory__peak=7)
STEP = span("Calibration", "resnet", quant__step__name="Calibration", samples=8)
OTHER = span("quantization", "bert")


@pytest.mark.parametrize(
    ("condition", "found"),
    [
        ('name = "quantization"', [RUN, OTHER]),
        ('name = "quantization" && resource.service.name =~ "res.*"', [RUN]),
        ("span.quant.step.name != nil", [STEP]),
        ('span."quant.step.name" = "Calibration"', [STEP]),
        ("span.samples > 7", [STEP]),
        ("span.samples > 8", []),
    ],
)
def test_a_filter_keeps_the_spans_that_match(condition: str, found: list[Span]) -> None:
    assert traceql.found(f"{{ {condition} }}", [RUN, STEP, OTHER]) == found


@pytest.mark.parametrize(
    "query", ['{ name = "a" || name = "b" }', "{ duration > 1s }", '{ name = "a" } >> { }']
)
def test_a_query_with_unknown_syntax_is_refused(query: str) -> None:
    with pytest.raises(ValueError, match=r"known here|at most one stage"):
        traceql.found(query, [RUN])


@pytest.mark.parametrize(
    "query", [q for q in QUERIES if q.store == "tempo" and q.text != "${trace}"], ids=str
)
def test_every_query_of_the_dashboards_can_be_read(query: Query) -> None:
    traceql.found(query.text, [])
    assert traceql.fields(query.text)
