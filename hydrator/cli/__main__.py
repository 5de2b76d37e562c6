"""Entry of ``python -m hydrator.cli``."""

from hydrator.cli import main

if __name__ == "__main__":
    main()
