"""Probes: each reads one resource and does not depend on its callers.

A probe is a callable. It takes the process ids of this process's descendants and returns its
reading, or None (or an empty tuple) if the resource cannot be measured here. It may raise:
the error is logged once and that reading lacks the resource.
"""
