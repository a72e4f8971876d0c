"""The local profile: AMD Quark's file, written while a run goes on and read afterwards."""
