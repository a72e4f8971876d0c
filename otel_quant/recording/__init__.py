"""Recording: one run of a process, its steps and their peaks, and who receives them."""
