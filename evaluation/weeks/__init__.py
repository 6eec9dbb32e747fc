"""The report on invented days, compared with the truth."""
