"""What the libraries share. ``calls`` and ``hooks`` are loaded with the instrumentor, the rest with a library."""
