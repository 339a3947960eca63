"""`python -m locore`, the same as the command `locore`."""

import sys

from locore.cli import main

if __name__ == "__main__":
    sys.exit(main())
