"""What the commands in `cli/table_commands.py` print: one module for each table, and the terminal it is drawn on."""
