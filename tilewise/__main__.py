"""``python -m tilewise``: the command line."""

import sys

from tilewise_command import main

if __name__ == "__main__":
    sys.exit(main())
