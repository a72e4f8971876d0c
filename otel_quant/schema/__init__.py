"""Every figure, attribute, event and setting, spelled out once. Imports nothing of ours."""
