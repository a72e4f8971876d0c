// Builds the Alertmanager that docker-compose.yml runs.
module otel-quant/servers/alertmanager

go 1.26

tool (
	github.com/prometheus/alertmanager/cmd/alertmanager
	github.com/prometheus/alertmanager/cmd/amtool
)

require github.com/prometheus/alertmanager v0.34.1
