"""What happens inside a measured program: probes, hooks of libraries, the recorder."""
