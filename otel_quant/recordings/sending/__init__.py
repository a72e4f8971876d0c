"""Sends the telemetry of a recording, under its own times and ids."""
