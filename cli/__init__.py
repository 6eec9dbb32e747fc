"""The fleet in a terminal: `gpuvigil status | top | idle | who | usage`.

The commands ask once for the view that the pages show and print tables: worst first and in 80 columns
for people, JSON or CSV for programs. A missing measurement is `-` for people, null or empty for programs.
"""
