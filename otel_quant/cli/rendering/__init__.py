"""What commands print: tables, JSON, CSV and Markdown."""
