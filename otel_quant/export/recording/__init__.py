"""The folder that a run leaves: its files, and the sink that writes them."""
