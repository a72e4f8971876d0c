"""Fixtures that tests of every kind share."""

from __future__ import annotations

import signal

from hypothesis import HealthCheck, settings

# How long an example takes is up to what else the machine does.
settings.register_profile("busy", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("busy")

# A shell has its background jobs ignore these, and `nohup` the last; programs that the tests start
# would do so too.
signal.signal(signal.SIGINT, signal.default_int_handler)
signal.signal(signal.SIGQUIT, signal.SIG_DFL)
signal.signal(signal.SIGHUP, signal.SIG_DFL)

pytest_plugins = [
    "tests.fixtures.browser",
    "tests.fixtures.commands",
    "tests.fixtures.azurite",
    "tests.fixtures.control_groups",
    "tests.fixtures.object_store",
    "tests.fixtures.otlp_receiver",
    "tests.fixtures.programs",
    "tests.fixtures.selection",
    "tests.fixtures.spark",
]
