"""`python -m reluscope` is the command line."""

import sys

from reluscope.cli import main

sys.exit(main())
