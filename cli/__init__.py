"""The fleet in a terminal: `gpuvigil status | top | idle | who | usage`.

The same view as the pages', asked for once, as tables: worst first, in 80 columns, for people, or as
JSON or CSV for programs. What was not measured is `-` for people and null or empty for programs.
"""
