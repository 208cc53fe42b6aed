"""`python -m frameloom` is `frameloom`."""

import sys

from frameloom.cli import main

sys.exit(main())
