"""Self-contained HTML pages: sections of tables and pictures, in the style of all reports."""
