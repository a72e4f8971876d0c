"""The report: a recording as one HTML page that needs no network."""
