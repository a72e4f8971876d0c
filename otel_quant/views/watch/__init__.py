"""The live view of a recording. It reads files only, so any number may look, from anywhere."""
