"""The local profile: a file in AMD Quark's format, written during a run and read afterwards."""
