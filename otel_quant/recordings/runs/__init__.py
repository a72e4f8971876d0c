"""Many runs: found below folders, one row each, filtered, sorted, and as a table of two of their names."""
