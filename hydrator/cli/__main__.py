"""Entry of ``python -m hydrator.cli``."""

from .app import main

if __name__ == "__main__":
    main()
