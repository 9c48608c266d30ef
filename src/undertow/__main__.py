"""`python -m undertow` is `undertow`."""

from undertow.cli import main

main()
