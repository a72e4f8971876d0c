"""Telemetry: spans, metrics and log records, their names, and their delivery."""
