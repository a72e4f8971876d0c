"""Sinks: each receives checkpoints and finished steps and knows nothing of who measured."""
