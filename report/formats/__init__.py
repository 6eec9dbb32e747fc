"""How a report is written: one file for each format, with the tables and charts of HTML."""
