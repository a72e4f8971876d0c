"""Which provider got which nodes, as onnxruntime 1.24 and later tell: nodes before fusion."""

from __future__ import annotations

from typing import Any, Final

RECORD: Final = "session.record_ep_graph_assignment_info"
"""The entry of a session's configuration that makes it remember."""


def assigned_nodes(session: Any) -> list[list[str]] | None:
    """Returns provider, name and operator of each node; None where onnxruntime cannot tell."""
    ask = getattr(session, "get_provider_graph_assignment_info", None)
    if ask is None:
        return None
    return [
        [part.ep_name, node.name, f"{node.domain}:{node.op_type}" if node.domain else node.op_type]
        for part in ask()
        for node in part.get_nodes()
    ]
