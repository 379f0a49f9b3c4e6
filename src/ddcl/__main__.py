"""``python -m ddcl``."""

import sys

from ddcl.cli import main

if __name__ == "__main__":
    sys.exit(main())
