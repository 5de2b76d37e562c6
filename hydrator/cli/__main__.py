"""Entry of ``python -m hydrator.cli``."""

from .app import main

main()
