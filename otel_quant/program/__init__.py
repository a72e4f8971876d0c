"""Entry points: what starts a measured program, or measures inside one."""
