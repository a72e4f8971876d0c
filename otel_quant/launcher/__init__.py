"""Runs a program and watches it from outside, so that a record remains when it is killed."""
