"""Installs packages of Debian that the tests use and nobody has to install by hand."""

from __future__ import annotations

import os
import shutil
import subprocess


def install(*packages: str) -> str:
    """Has apt-get install packages, as root or with a sudo that asks for no password.

    Returns the reason if it could not; an empty text if it did.
    """
    as_root = () if os.geteuid() == 0 else ("sudo", "-n")
    if not all(map(shutil.which, (*as_root[:1], "apt-get"))):
        return "there is no apt-get or no sudo"
    env = os.environ | {"DEBIAN_FRONTEND": "noninteractive"}
    for command in (("update", "-q"), ("install", "-qy", "--no-install-recommends", *packages)):
        done = subprocess.run(
            [*as_root, "apt-get", *command], env=env, capture_output=True, text=True
        )
        if done.returncode:
            return done.stderr
    return ""
