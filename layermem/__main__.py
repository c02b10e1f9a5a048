"""`python -m layermem` is the `layermem` command."""

import sys

from layermem.cli import main

if __name__ == "__main__":
    sys.exit(main())
