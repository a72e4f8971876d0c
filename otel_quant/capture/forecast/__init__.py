"""Where an open step will be at its end: time left, and memory that grows with its samples."""
