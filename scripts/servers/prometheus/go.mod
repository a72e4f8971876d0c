// Builds the Prometheus that docker-compose.yml runs; 0.314.0 is 3.14.0's module version.
// `exclude` and `replace` repeat what upstream's go.mod says, which Go heeds only here.
module otel-quant/servers/prometheus

go 1.26

tool (
	github.com/prometheus/prometheus/cmd/prometheus
	github.com/prometheus/prometheus/cmd/promtool
)

require github.com/prometheus/prometheus v0.314.0

exclude (
	github.com/grpc-ecosystem/grpc-gateway v1.14.7
	github.com/linode/linodego v1.0.0
	google.golang.org/api v0.30.0
)

replace cloud.google.com/go => cloud.google.com/go v0.123.0
