"""Probes: each reads one resource and knows nothing of who asks.

A probe is a callable without arguments that returns its reading, or None (an empty
tuple) for what cannot be measured here. It may raise: the recorder logs that once and
goes on without it.
"""
