"""`python -m frameloom` and the `frameloom` command.

Imports the command line inside `main`: Ctrl-C may come while Python still reads it, and must not
end in a traceback.
"""

import sys

_INTERRUPTED = 130
"""As shells report a program that Ctrl-C ended: 128 and the number of SIGINT."""


def main() -> int:
    """Run the command line; the process's exit code (see `frameloom.cli.main`)."""
    try:
        from frameloom.cli import main as run

        return run()
    except KeyboardInterrupt:
        return _INTERRUPTED


if __name__ == "__main__":
    sys.exit(main())
