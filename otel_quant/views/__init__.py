"""What commands and runs print: tables, JSON, CSV, Markdown and HTML."""
