"""What the Collector's files say must agree with each other."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import yaml

ROOT = Path(__file__).resolve().parents[3]
CONFIGS = ROOT / "collector"
SECTIONS = ("receivers", "processors", "exporters", "extensions")
NAMES = ("config", "agent", "gateway")

# Component type in a configuration -> last part of its module's path.
MODULES = {
    "otlp": "otlpreceiver",
    "memory_limiter": "memorylimiterprocessor",
    "resource_detection": "resourcedetectionprocessor",
    "tail_sampling": "tailsamplingprocessor",
    "otlp_grpc": "otlpexporter",
    "otlp_http": "otlphttpexporter",
    "load_balancing": "loadbalancingexporter",
    "health_check": "healthcheckextension",
    "file_storage": "filestorage",
    "bearertokenauth": "bearertokenauthextension",
}


def load(name: str) -> dict[str, Any]:
    return yaml.safe_load((CONFIGS / f"{name}.yaml").read_text())


def test_the_manifest_holds_the_components_of_the_configurations_and_no_others() -> None:
    named = {
        (section, MODULES[component.split("/")[0]])
        for name in NAMES
        for section in SECTIONS
        for component in load(name).get(section, {})
    }
    built = {
        (section, module["gomod"].split()[0].rsplit("/", 1)[1])
        for section in SECTIONS
        for module in load("builder")[section]
    }
    assert built == named


def test_the_manifest_is_of_one_release() -> None:
    version = load("builder")["dist"]["version"]
    versions = {
        module["gomod"].split()[1] for section in SECTIONS for module in load("builder")[section]
    }
    assert versions == {f"v{version}"}


@pytest.mark.parametrize("name", NAMES)
def test_the_memory_limiter_is_first_in_every_pipeline(name: str) -> None:
    pipelines = load(name)["service"]["pipelines"]
    assert {kind: pipe["processors"][0] for kind, pipe in pipelines.items()} == dict.fromkeys(
        pipelines, "memory_limiter"
    )


@pytest.mark.parametrize("name", NAMES)
def test_every_exporter_queues_on_disk_in_batches_and_traces_and_logs_retry_without_end(
    name: str,
) -> None:
    config = load(name)
    found = {
        exporter: (
            settings["sending_queue"]["storage"],
            "batch" in settings["sending_queue"],
            settings["retry_on_failure"]["max_elapsed_time"],
        )
        for exporter, settings in config["exporters"].items()
    }
    endless = dict.fromkeys(found, ("file_storage", True, "0s"))
    metrics = {"otlp_http/prometheus": ("file_storage", True, "1h")}
    assert found == endless | {key: value for key, value in metrics.items() if key in found}


def test_metrics_are_retried_for_as_long_as_prometheus_takes_them() -> None:
    prometheus = yaml.safe_load((CONFIGS / "backends" / "prometheus.yaml").read_text())
    retried = load("config")["exporters"]["otlp_http/prometheus"]["retry_on_failure"]
    window = prometheus["storage"]["tsdb"]["out_of_order_time_window"]
    assert window == retried["max_elapsed_time"]


@pytest.mark.parametrize("name", NAMES)
def test_what_has_no_authentication_listens_on_this_host_only(name: str) -> None:
    config = load(name)
    text = (CONFIGS / f"{name}.yaml").read_text()
    listeners = {
        "OTELCOL_HEALTH": "localhost:13133",
        "OTELCOL_METRICS_HOST": "localhost",
        "OTELCOL_OTLP_GRPC": "localhost:4317",
        "OTELCOL_OTLP_HTTP": "localhost:4318",
    }
    if name == "gateway":
        del listeners["OTELCOL_OTLP_HTTP"]
        listeners["OTELCOL_OTLP_GRPC"] = "0.0.0.0:4317"
        grpc = config["receivers"]["otlp"]["protocols"]["grpc"]
        assert grpc["auth"] == {"authenticator": "bearertokenauth"}
        assert grpc["tls"].keys() >= {"cert_file", "key_file"}
    found = re.findall(r"\$\{env:(OTELCOL_(?:HEALTH|METRICS_HOST|OTLP_\w+)):-(\S+)\}", text)
    assert dict(found) == listeners
    endpoints = re.findall(r"^ +(?:endpoint|host|hostname): (.+)$", text, re.MULTILINE)
    assert [endpoint for endpoint in endpoints if not endpoint.startswith("${env:")] == []


def test_an_agent_shows_its_token_and_checks_the_gateways_certificate() -> None:
    exporters = load("agent")["exporters"]
    for found in (exporters["otlp_grpc/gateway"], exporters["load_balancing"]["protocol"]["otlp"]):
        assert found["auth"] == {"authenticator": "bearertokenauth"}
        assert found["tls"] == {
            "ca_file": "${env:OTELCOL_GATEWAY_CA:-}",
            "server_name_override": "${env:OTELCOL_GATEWAY_HOST:-gateway}",
        }


@pytest.mark.parametrize("name", NAMES)
def test_only_the_queues_batch(name: str) -> None:
    assert not any(re.match(r"batch(/|$)", key) for key in load(name)["processors"])
