"""Entry point of `python -m penstock`, the same as the command `penstock`."""

from __future__ import annotations

from penstock.cli import main

if __name__ == "__main__":
    main(prog_name="penstock")
