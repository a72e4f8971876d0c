"""Conclusions from stacks and figures, in the program and afterwards: where time and memory went, and what bounds a step."""
