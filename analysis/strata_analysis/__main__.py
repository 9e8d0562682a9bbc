"""`python -m strata_analysis`."""

import sys

from strata_analysis.cli import main

sys.exit(main())
