"""Print what the image installs: the dependencies of pyproject.toml, and those of the extras named.

Run at build time, before the code is copied, so that a change of the code installs nothing anew.

    python deploy/requirements.py [EXTRA...]
"""

import sys
import tomllib
from pathlib import Path

PROJECT = Path(__file__).parents[1] / "pyproject.toml"


def requirements(extras: list[str]) -> list[str]:
    """Requirement lines as they stand in pyproject.toml; KeyError for an unknown extra."""
    project = tomllib.loads(PROJECT.read_text(encoding="utf-8"))["project"]
    found = list(project["dependencies"])
    for extra in extras:
        found += project["optional-dependencies"][extra]
    return found


if __name__ == "__main__":
    print("\n".join(requirements(sys.argv[1:])))
