"""``python -m copilotd`` is ``copilotd``."""

from copilotd.cli import main

if __name__ == "__main__":
    main()
