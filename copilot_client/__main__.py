"""``python -m copilot_client``."""

import sys

from copilot_client.cli import main

if __name__ == "__main__":
    sys.exit(main())
