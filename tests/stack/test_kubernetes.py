"""What deploy/kubernetes applies is what the API servers of Kubernetes and of both Operators take, and refers to what is there."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import kubernetes_validate
import pytest
import yaml

from tests.stack.processes import ROOT

pytestmark = pytest.mark.servers

FOLDER: Final = ROOT / "deploy" / "kubernetes"
NEWEST: Final = kubernetes_validate.latest_version()
OPERATORS: Final = {
    "prometheusrule-monitoring-v1": "monitoring.coreos.com_prometheusrules.yaml",
    "podmonitor-monitoring-v1": "monitoring.coreos.com_podmonitors.yaml",
}
_TEXT: Final = {"type": "string"}
_OBJECT: Final = {"type": "object"}
_VARIABLE: Final = {
    "type": "object", "required": ["name"], "properties": {"name": _TEXT, "value": _TEXT, "valueFrom": _OBJECT},
}  # fmt: skip
_PROPAGATORS: Final = [
    "tracecontext",
    "baggage",
    "b3",
    "b3multi",
    "jaeger",
    "xray",
    "ottrace",
    "none",
]
INSTRUMENTATION: Final = {
    "type": "object", "required": ["apiVersion", "kind", "metadata", "spec"],
    "properties": {
        "apiVersion": {"const": "opentelemetry.io/v1alpha1"}, "kind": _TEXT, "metadata": _OBJECT,
        "spec": {
            "type": "object",
            "properties": {
                "exporter": {"type": "object", "properties": {"endpoint": _TEXT}},
                "propagators": {"type": "array", "items": {"enum": _PROPAGATORS}},
                "python": {
                    "type": "object", "properties": {"image": _TEXT, "env": {"type": "array", "items": _VARIABLE}},
                },
            },
        },
    },
}  # fmt: skip
"""The fields that are used of the OpenTelemetry Operator's resource, as of its version 0.158.0: its Go module is not served."""


def strict(schema: Any) -> Any:
    """Returns a schema that takes no fields that it does not name."""
    if isinstance(schema, list):
        return [strict(each) for each in schema]
    if not isinstance(schema, dict):
        return schema
    made = {key: strict(each) for key, each in schema.items()}
    is_open = {"additionalProperties", "x-kubernetes-preserve-unknown-fields"} & schema.keys()
    return {**made, "additionalProperties": False} if "properties" in schema and not is_open else made  # fmt: skip


@pytest.fixture(scope="module")
def schemas(binaries: dict[str, str], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the schemas of all kinds, as kubeconform finds them: the package's refer to a page of the internet."""
    folder = tmp_path_factory.mktemp("schemas")
    package = Path(kubernetes_validate.__file__).parent / "kubernetes-json-schema"
    for path in (package / f"v{NEWEST}-local-strict").glob("*.json"):
        text = path.read_text().replace("/api/_definitions.json#", "_definitions.json#")
        made = json.loads(text)
        made.pop("$id", None)
        (folder / path.name).write_text(json.dumps(made))
    own = {"instrumentation-opentelemetry-v1alpha1": INSTRUMENTATION}
    for name, file in OPERATORS.items():
        (version,) = yaml.safe_load(Path(binaries[file]).read_text())["spec"]["versions"]
        own[name] = version["schema"]["openAPIV3Schema"]
        own[name]["properties"]["metadata"] = _OBJECT
    for name, schema in own.items():
        (folder / f"{name}.json").write_text(json.dumps(strict(schema)))
    return folder


def problems(resources: Sequence[Any], binaries: dict[str, str], schemas: Path) -> list[str]:
    """Returns what kubeconform finds wrong."""
    done = subprocess.run(
        [
            binaries["kubeconform"], "-strict", "-output", "json",
            "-schema-location", schemas / "{{.ResourceKind}}{{.KindSuffix}}.json",
        ],
        input=yaml.safe_dump_all(resources), capture_output=True, text=True, check=False,
    )  # fmt: skip
    return [f"{each['kind']}: {each['msg']}" for each in json.loads(done.stdout)["resources"]]


@pytest.fixture(scope="module")
def resources(binaries: dict[str, str]) -> list[dict[str, Any]]:
    built = subprocess.run(
        [binaries["kustomize"], "build", FOLDER], capture_output=True, text=True, check=False
    )
    assert (built.returncode, built.stderr) == (0, "")
    return list(yaml.safe_load_all(built.stdout))


def test_every_resource_is_valid(
    resources: list[dict[str, Any]], binaries: dict[str, str], schemas: Path
) -> None:
    every = [*resources, *yaml.safe_load_all((FOLDER / "job.yaml").read_text())]
    assert problems(every, binaries, schemas) == []
    kinds = {each["kind"] for each in every}
    assert kinds >= {"Instrumentation", "PrometheusRule", "PodMonitor"}
    assert kinds >= {"DaemonSet", "StatefulSet", "Service", "ConfigMap", "Job", "ClusterRole"}


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
    resources: list[dict[str, Any]], binaries: dict[str, str], schemas: Path, kind: str, path: tuple[Any, ...], value: Any
) -> None:  # fmt: skip
    resource = yaml.safe_load(
        yaml.safe_dump(next(each for each in resources if each["kind"] == kind))
    )
    inner = resource
    for name in path[:-1]:
        inner = inner[name]
    inner[path[-1]] = value
    (found,) = problems([resource], binaries, schemas)
    assert found.startswith(f"{kind}: ")


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
