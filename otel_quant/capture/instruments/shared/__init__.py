"""What the libraries share: the kind of their tables, and what their wrappers are made of.

``library`` and ``hooks`` are loaded with the instrumentor, the rest with the first library
that is hooked.
"""
