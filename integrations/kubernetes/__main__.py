"""`python -m integrations.kubernetes`: the same as `gpuvigil kubernetes`."""

import sys

from .service import main

sys.exit(main(sys.argv[1:]))
