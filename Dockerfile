# The automatic instrumentation image of the OpenTelemetry Operator: it copies /autoinstrumentation into
# a pod and puts it on PYTHONPATH, so that quantizations in that pod are recorded, by any Python from 3.11 on.
#
#     docker build --tag otel-quant-instrumentation .
#
# and in the Instrumentation resource (deploy/kubernetes/instrumentation.yaml): spec.python.image
FROM python:3.13-slim AS build
COPY pyproject.toml README.md LICENSE CHANGELOG.md /source/
COPY otel_quant /source/otel_quant
COPY scripts/autoinstrumentation.py /source/scripts/
RUN python /source/scripts/autoinstrumentation.py /autoinstrumentation

FROM busybox:stable
COPY --from=build /autoinstrumentation /autoinstrumentation
RUN chmod -R go+r /autoinstrumentation
