"""What went wrong in a run: a table of defects, each recognised in the kernels that ran."""
