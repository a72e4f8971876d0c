# The automatic instrumentation image of the OpenTelemetry Operator: it copies /autoinstrumentation into
# a pod and puts it on PYTHONPATH, so that quantizations in that pod are recorded.
#
#     docker build --tag otel-quant-instrumentation .
#
# and in the Instrumentation resource: spec.python.image: otel-quant-instrumentation
ARG PYTHON=3.11
FROM python:${PYTHON}-slim AS build
COPY pyproject.toml README.md LICENSE CHANGELOG.md /source/
COPY otel_quant /source/otel_quant
RUN pip install --no-cache-dir --target /autoinstrumentation "/source[otlp]"

FROM busybox:stable
COPY --from=build /autoinstrumentation /autoinstrumentation
RUN chmod -R go+r /autoinstrumentation
