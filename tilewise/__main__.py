"""``python -m tilewise``: the command line."""

import sys

from tilewise.cli.main import main

if __name__ == "__main__":
    sys.exit(main())
