"""The page of cost rules is made from the operators' records."""

from __future__ import annotations

from otel_quant.cost.operators import all_operators
from scripts.cost_rules_docs import document


def test_every_rule_is_on_the_page_except_duplicates_of_another_domain() -> None:
    page = document()
    missing = [
        kind
        for kind in all_operators()
        if not kind.startswith("com.vai.quantize:") and f"`{kind.rpartition(':')[2]}`" not in page
    ]
    assert missing == []
