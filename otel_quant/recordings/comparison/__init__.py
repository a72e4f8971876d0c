"""Runs side by side: their figures, which steps are the same, what differs, and what is worse."""
