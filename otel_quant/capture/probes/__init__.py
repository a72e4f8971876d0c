"""Probes: each reads one resource and does not depend on its callers; see ``Probe`` in :mod:`.readers`."""
