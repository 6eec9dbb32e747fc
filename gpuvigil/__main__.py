"""Run the command line as `python -m gpuvigil`."""

import sys

from .command_line import main

sys.exit(main())
