"""Shape and type rules of the operators, one table per family."""
