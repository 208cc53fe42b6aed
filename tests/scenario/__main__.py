"""`python -m tests.scenario`: the drill. In a file of this name, because the processes that the
drill forks run any other main module again."""

from __future__ import annotations

import sys

from tests.scenario.drill import main

if __name__ == "__main__":
    sys.exit(main())
