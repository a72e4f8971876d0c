"""Recordings sent: their events again, into the sinks of :mod:`otel_quant.export.otel`, with the recorded ids and times."""
