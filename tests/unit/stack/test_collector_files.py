"""The Collector's files and the compose file agree, bind ports only to this host and lose no data."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from otel_quant.sending.send import TAKEN_DAYS

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
    "k8s_attributes": "k8sattributesprocessor",
}


def load(name: str) -> dict[str, Any]:
    return yaml.safe_load((CONFIGS / f"{name}.yaml").read_text())


def test_the_manifest_has_exactly_the_configured_components_of_one_release() -> None:
    named = {
        (section, MODULES[component.split("/")[0]])
        for name in (*NAMES, "kubernetes")
        for section in SECTIONS
        for component in load(name).get(section, {})
    }
    builder = load("builder")
    modules = [(s, *module["gomod"].split()) for s in SECTIONS for module in builder[s]]
    assert {(section, path.rsplit("/", 1)[1]) for section, path, _ in modules} == named
    assert {version for *_, version in modules} == {f"v{builder['dist']['version']}"}


@pytest.mark.parametrize("name", NAMES)
def test_memory_is_limited_first_and_every_exporter_queues_on_disk_in_batches_and_retries(
    name: str,
) -> None:
    config = load(name)
    pipelines = config["service"]["pipelines"].values()
    assert {pipe["processors"][0] for pipe in pipelines} == {"memory_limiter"}
    assert not any(re.match(r"batch(/|$)", key) for key in config["processors"])
    found = {
        exporter: (
            settings["sending_queue"]["storage"],
            "batch" in settings["sending_queue"],
            settings["retry_on_failure"]["max_elapsed_time"],
        )
        for exporter, settings in config["exporters"].items()
    }
    assert found == dict.fromkeys(found, ("file_storage", True, "0s"))


def test_stores_take_what_is_as_old_as_send_says() -> None:
    prometheus, loki = (
        yaml.safe_load((CONFIGS / "backends" / f"{name}.yaml").read_text())
        for name in ("prometheus", "loki")
    )
    days = f"{TAKEN_DAYS}d"
    assert prometheus["storage"]["tsdb"]["out_of_order_time_window"] == days
    assert loki["limits_config"]["reject_old_samples_max_age"] == days
    assert loki["ingester"]["max_chunk_age"] == f"{2 * 24 * TAKEN_DAYS}h"  # it takes half of it
    assert loki["querier"]["query_ingesters_within"] == "0s"


@pytest.mark.parametrize("name", NAMES)
def test_servers_without_authentication_listen_only_on_this_host(name: str) -> None:
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


SERVERS = ROOT / "scripts" / "servers"


@pytest.fixture(scope="module")
def compose() -> dict[str, Any]:
    return yaml.safe_load((ROOT / "docker-compose.yml").read_text())


def version_of(image: str) -> str:
    """Returns the version that an image is pinned to; a digest may follow it."""
    (version,) = re.findall(r":(v?\d+\.\d+\.\d+)(?:-alpine)?(?:@sha256:[0-9a-f]{64})?$", image)
    return str(version)


def required(server: str, module: str) -> str:
    """Returns the version of a Go module that a server of the tests is built from."""
    text = (SERVERS / server / "go.mod").read_text()
    (version,) = re.findall(rf"^require {re.escape(module)} v(\S+)$", text, re.MULTILINE)
    return version


def test_images_are_pinned_by_digest(compose: dict[str, Any]) -> None:
    images = [each["image"] for each in compose["services"].values()]
    assert [image for image in images if "@sha256:" not in image] == []


def test_compose_uses_the_tested_versions(compose: dict[str, Any]) -> None:
    manifest = yaml.safe_load((ROOT / "collector" / "builder.yaml").read_text())
    package = json.loads((SERVERS / "grafana" / "package.json").read_text())
    # Prometheus' module has the version 0.XYY.Z for the release X.YY.Z.
    _, minor, patch = required("prometheus", "github.com/prometheus/prometheus").split(".")
    prometheus = f"{int(minor) // 100}.{int(minor) % 100}.{patch}"
    images = {name: version_of(service["image"]) for name, service in compose["services"].items()}
    assert {
        "otelcol": manifest["dist"]["version"],
        "prometheus": f"v{prometheus}",
        "loki": required("loki", "github.com/grafana/loki/v3"),
        "alertmanager": f"v{required('alertmanager', 'github.com/prometheus/alertmanager')}",
        "queries": required("caddy", "github.com/caddyserver/caddy/v2"),
    }.items() <= images.items()
    # Panels are shown by the library of the composed Grafana.
    library = package["dependencies"]["@grafana/data"].rsplit(".", 1)[0]
    assert library == images["grafana"].rsplit(".", 1)[0]
    provisioned = ROOT / "grafana" / "provisioning" / "datasources" / "datasources.yaml"
    sources = {s["type"]: s for s in yaml.safe_load(provisioned.read_text())["datasources"]}
    assert sources["prometheus"]["jsonData"]["prometheusVersion"] == prometheus


def test_only_the_collector_and_grafana_have_ports_on_this_host(compose: dict[str, Any]) -> None:
    ports = {name: each["ports"] for name, each in compose["services"].items() if "ports" in each}
    # No store: a GET of any web page could stop one.
    assert ports.keys() == {"otelcol", "grafana"}
    published = [port for each in ports.values() for port in each]
    assert [port for port in published if not port.startswith("127.0.0.1:")] == []
    collector = compose["services"]["otelcol"]
    opened = {key: value for key, value in collector["environment"].items() if "0.0.0.0" in value}
    assert opened == {
        "OTELCOL_OTLP_GRPC": "0.0.0.0:4317",
        "OTELCOL_OTLP_HTTP": "0.0.0.0:4318",
        "OTELCOL_HEALTH": "0.0.0.0:13133",
        "OTELCOL_METRICS_HOST": "0.0.0.0",
    }


def test_grafana_reaches_the_stores_through_the_proxy_alone(compose: dict[str, Any]) -> None:
    networks = {
        name: set(each.get("networks", ["default"]))
        for name, each in compose["services"].items()
        if "network_mode" not in each
    }
    reached = {name for name, of_it in networks.items() if of_it & networks["grafana"]}
    assert reached == {"grafana", "queries"}
    provisioned = ROOT / "grafana" / "provisioning" / "datasources" / "datasources.yaml"
    urls = [source["url"] for source in yaml.safe_load(provisioned.read_text())["datasources"]]
    text = (ROOT / "collector" / "backends" / "queries.caddyfile").read_text()
    listens = re.findall(r"^:(\d+) \{\n.*\n\timport only_allowed \w+:\1$", text, re.MULTILINE)
    assert sorted(urls) == sorted(f"http://queries:{port}" for port in listens)


def test_every_mounted_path_exists_and_every_volume_is_named(compose: dict[str, Any]) -> None:
    texts = [text for s in compose["services"].values() for text in s.get("volumes", [])]
    mounts = [re.sub(r"\$\{\w+:-(\w+)\}", r"\1", text).split(":") for text in texts]
    paths = [source for source, *_ in mounts if source.startswith(".")]
    volumes = {source for source, *_ in mounts if not source.startswith(".")}
    assert [path for path in paths if not (ROOT / path).exists()] == []
    assert volumes == set(compose["volumes"])
    assert [m for m in mounts if m[0].startswith(".") and m[-1] != "ro"] == []


def test_every_server_restarts_and_has_limits_and_minimal_rights(compose: dict[str, Any]) -> None:
    for name, service in compose["services"].items():
        if name == "otelcol-storage":  # hands over a volume and exits
            continue
        assert service["restart"] == "unless-stopped", name
        assert service["cap_drop"] == ["ALL"], name
        assert service["security_opt"] == ["no-new-privileges:true"], name
        assert {"mem_limit", "cpus"} <= service.keys(), name
        assert ("healthcheck" in service) == (name != "otelcol"), name


def test_profiles_are_received_and_stored_only_on_request(compose: dict[str, Any]) -> None:
    services = compose["services"]
    assert {name: s["profiles"] for name, s in services.items() if "profiles" in s} == {
        "pyroscope": ["pyroscope"]
    }
    asked = "--config=/etc/otelcol/profiles.yaml --feature-gates=service.profilesSupport"
    assert services["otelcol"]["command"] == (
        f"--config=/etc/otelcol/config.yaml ${{COMPOSE_PROFILES:+{asked}}}"
    )


def test_grafana_needs_no_internet_and_its_visitors_can_only_view(compose: dict[str, Any]) -> None:
    grafana = compose["services"]["grafana"]
    version = tuple(map(int, version_of(grafana["image"]).split(".")))
    assert version >= (13, 2, 3)  # before, a data source whose update failed was not registered
    environment = grafana["environment"]
    assert {
        key: value for key, value in environment.items() if re.match("GF_(PLUGINS|ANALYTICS|NEWS)", key)
    } == {
        "GF_PLUGINS_PREINSTALL_AUTO_UPDATE": "false",
        "GF_PLUGINS_PREINSTALL_DISABLED": "true",
        "GF_PLUGINS_PUBLIC_KEY_RETRIEVAL_DISABLED": "true",
        "GF_ANALYTICS_REPORTING_ENABLED": "false",
        "GF_ANALYTICS_CHECK_FOR_UPDATES": "false",
        "GF_ANALYTICS_CHECK_FOR_PLUGIN_UPDATES": "false",
        "GF_NEWS_NEWS_FEED_ENABLED": "false",
    }  # fmt: skip
    assert environment["GF_SECURITY_DISABLE_GRAVATAR"] == "true"
    assert environment["GF_AUTH_ANONYMOUS_ORG_ROLE"] == "Viewer"
    assert environment["GF_SECURITY_DISABLE_INITIAL_ADMIN_CREATION"] == "true"
    assert not [key for key in environment if "PASSWORD" in key]


def test_alerts_go_to_a_webhook_that_the_environment_names(compose: dict[str, Any]) -> None:
    (mounted,) = compose["services"]["alertmanager"]["configs"]
    files = {"webhook": "url_file", "slack": "api_url_file", "teams": "webhook_url_file"}
    for kind, file in files.items():
        config = yaml.safe_load((ROOT / f"collector/backends/alertmanager-{kind}.yaml").read_text())
        (receiver,) = config["receivers"]
        assert receiver["name"] == config["route"]["receiver"] == kind
        ((settings,),) = (value for key, value in receiver.items() if key != "name")
        assert settings[file] == mounted["target"]
    assert "${ALERT_WEBHOOK:-" in compose["configs"][mounted["source"]]["content"]
