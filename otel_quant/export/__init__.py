"""What leaves a measured program: telemetry, the recording, Quark's file."""
