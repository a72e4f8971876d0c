"""Recordings: the folder that a run leaves, and how its files are written and read.

The format is documented in ``docs/recording.md``.
"""
