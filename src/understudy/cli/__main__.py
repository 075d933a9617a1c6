"""`python -m understudy.cli …`: the console script, for processes that are started with the same Python."""

import sys

from understudy.cli import main

sys.exit(main())
