// Builds the Caddy that docker-compose.yml runs.
module otel-quant/servers/caddy

go 1.26

tool github.com/caddyserver/caddy/v2/cmd/caddy

require github.com/caddyserver/caddy/v2 v2.11.7
