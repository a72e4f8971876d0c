"""Makes the alerts a resource of the Prometheus Operator, for deploy/kubernetes."""

from __future__ import annotations

from typing import Final

from scripts.workspace import ROOT

(RULES,) = (ROOT / "grafana" / "alerts").glob("*.yaml")
RESOURCE: Final = ROOT / "deploy" / "kubernetes" / "rules.yaml"
_HEAD: Final = """\
# Made of grafana/alerts/quant.yaml by scripts/docs.py.
apiVersion: monitoring.coreos.com/v1
kind: PrometheusRule
metadata: {name: otel-quant}
spec:
"""


def resource(rules: str) -> str:
    """Returns the resource with the text of the rules."""
    _, _, groups = rules.partition("\ngroups:\n")
    lines = f"groups:\n{groups}".splitlines()
    return _HEAD + "".join(f"  {line}\n" if line else "\n" for line in lines)
