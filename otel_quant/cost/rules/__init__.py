"""What an operation costs: one table entry per operator, two rule sets by name."""
