"""Recording: one run of a process, its steps, their peaks, and the sinks that receive them."""
