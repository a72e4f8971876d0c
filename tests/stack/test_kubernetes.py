"""What deploy/kubernetes applies is what the API servers of Kubernetes and of both Operators take, and refers to what is there."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

import jsonschema
import kubernetes_validate
import pytest
import yaml

from tests.stack.processes import ROOT

pytestmark = pytest.mark.servers

FOLDER: Final = ROOT / "deploy" / "kubernetes"
NEWEST: Final = kubernetes_validate.latest_version()
OPERATORS: Final = {
    "PrometheusRule": "monitoring.coreos.com_prometheusrules.yaml",
    "PodMonitor": "monitoring.coreos.com_podmonitors.yaml",
}
_TEXT: Final = {"type": "string"}
INSTRUMENTATION: Final = {
    "properties": {
        "apiVersion": {"const": "opentelemetry.io/v1alpha1"}, "kind": _TEXT, "metadata": {"type": "object"},
        "spec": {
            "properties": {
                "exporter": {"properties": {"endpoint": _TEXT}},
                "propagators": {"items": {"enum": ["tracecontext", "baggage", "b3", "b3multi", "jaeger", "xray", "ottrace", "none"]}},
                "python": {"properties": {"image": _TEXT, "env": {"items": {"properties": {"name": _TEXT, "value": _TEXT, "valueFrom": {"type": "object"}}}}}},
            },
        },
    },
}  # fmt: skip
"""The fields that are used of the Operator's resource, as of v0.140: its Go module is not served."""


def strict(schema: Any) -> Any:
    """Returns a schema that takes no fields that it does not name."""
    if isinstance(schema, list):
        return [strict(each) for each in schema]
    if not isinstance(schema, dict):
        return schema
    # A pattern of Go's that Python does not have is left out.
    made = {
        key: strict(each)
        for key, each in schema.items()
        if "(?i)" not in str(each) or key != "pattern"
    }
    is_open = {"additionalProperties", "x-kubernetes-preserve-unknown-fields"} & schema.keys()
    return {**made, "additionalProperties": False} if "properties" in schema and not is_open else made  # fmt: skip


@pytest.fixture(scope="module")
def resources(binaries: dict[str, str]) -> list[dict[str, Any]]:
    built = subprocess.run(
        [binaries["kustomize"], "build", FOLDER], capture_output=True, text=True, check=False
    )
    assert (built.returncode, built.stderr) == (0, "")
    return list(yaml.safe_load_all(built.stdout))


def test_every_resource_is_valid(resources: list[dict[str, Any]], binaries: dict[str, str]) -> None:
    own = {"Instrumentation": INSTRUMENTATION}
    for kind, file in OPERATORS.items():
        (version,) = yaml.safe_load(Path(binaries[file]).read_text())["spec"]["versions"]
        own[kind] = version["schema"]["openAPIV3Schema"]
        own[kind]["properties"]["metadata"] = {"type": "object"}
    seen = set()
    for each in [*resources, *yaml.safe_load_all((FOLDER / "job.yaml").read_text())]:
        seen.add(each["kind"])
        if each["kind"] in own:
            schema = strict(own[each["kind"]])
            schema["properties"].pop("metadata", None)
            jsonschema.validate(
                {name: value for name, value in each.items() if name != "metadata"}, schema
            )
        else:
            kubernetes_validate.validate(each, NEWEST, strict=True)
    assert seen >= {*own, "DaemonSet", "StatefulSet", "Service", "ConfigMap", "Job"}


@pytest.mark.parametrize(
    ("kind", "path", "value"),
    [
        ("DaemonSet", ("spec", "template", "spec", "tolerationss"), []),
        ("PrometheusRule", ("spec", "groups", 0, "rules", 0, "fore"), "5m"),
        ("Instrumentation", ("spec", "python", "images"), "x"),
        ("PodMonitor", ("spec", "podMetricsEndpoints", 0, "port"), 8888),
    ],
)
def test_a_resource_with_a_mistake_is_not(
    resources: list[dict[str, Any]], binaries: dict[str, str], kind: str, path: tuple[Any, ...], value: Any
) -> None:  # fmt: skip
    resource = yaml.safe_load(
        yaml.safe_dump(next(each for each in resources if each["kind"] == kind))
    )
    inner = resource
    for name in path[:-1]:
        inner = inner[name]
    inner[path[-1]] = value
    with pytest.raises((jsonschema.ValidationError, kubernetes_validate.ValidationError)):
        test_every_resource_is_valid([resource], binaries)


def _values(resource: Any, name: str) -> Iterator[Any]:
    """Yields the values of a field, at any depth."""
    if isinstance(resource, Mapping):
        yield from [resource[name]] if name in resource else []
        resource = list(resource.values())
    if isinstance(resource, list):
        for each in resource:
            yield from _values(each, name)


def test_pods_refer_to_what_is_applied_or_made_before(resources: list[dict[str, Any]]) -> None:
    page = (ROOT / "docs" / "kubernetes.md").read_text()
    maps = {each["metadata"]["name"] for each in resources if each["kind"] == "ConfigMap"}
    assert {each["name"] for each in _values(resources, "configMap")} <= maps
    secrets = {each["secretName"] for each in _values(resources, "secret")}
    secrets |= {each["name"] for each in _values(resources, "secretKeyRef")}
    assert secrets == {"otel-quant-pods", "otel-quant-gateway", "otel-quant-headers"}
    assert [name for name in secrets if f"create secret generic {name} " not in page] == []
    services = {each["metadata"]["name"] for each in resources if each["kind"] == "Service"}
    assert services == {"otel-quant-agent", "otel-quant-gateway"}


def test_images_are_those_of_the_compose_file(resources: list[dict[str, Any]]) -> None:
    compose = yaml.safe_load((ROOT / "docker-compose.yml").read_text())["services"]
    known = {service["image"] for service in compose.values()}
    assert {*_values(resources, "image")} - known == {"otel-quant-instrumentation"}


def test_the_rules_are_those_of_the_stack_under_the_operators_names_of_jobs(
    resources: list[dict[str, Any]], binaries: dict[str, str], tmp_path: Path
) -> None:
    (rule,) = (each for each in resources if each["kind"] == "PrometheusRule")
    (tmp_path / "rules.yaml").write_text(yaml.safe_dump(rule["spec"]))
    done = subprocess.run(
        [binaries["promtool"], "check", "rules", tmp_path / "rules.yaml"], check=False
    )
    assert done.returncode == 0
    plain = yaml.safe_load((ROOT / "grafana" / "alerts" / "quant.yaml").read_text())
    changed = [
        each.get("record") or each["alert"]
        for own, its in zip(rule["spec"]["groups"], plain["groups"], strict=True)
        for each, other in zip(own["rules"], its["rules"], strict=True)
        if each != other
    ]
    assert changed == ["quant:collectors_up", "quant:prometheus_up", "StackServerDown"]


def test_dashboards_are_where_the_sidecar_of_grafanas_chart_looks(
    resources: list[dict[str, Any]],
) -> None:
    (found,) = (each for each in resources if each["metadata"]["name"] == "otel-quant-dashboards")
    assert found["metadata"]["labels"]["grafana_dashboard"] == "1"
    files = {path.name: path.read_text() for path in (ROOT / "grafana/dashboards").rglob("*.json")}
    assert found["data"] == files
