"""`python -m unstall VERB`, as `unstall VERB`."""

import sys

from unstall import main

sys.exit(main())
