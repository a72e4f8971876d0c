"""What every room stands on: the boundary for our own failures, the logger, threads, files."""
