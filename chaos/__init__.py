"""Faults by the dozen, and a checker that reads what was done meanwhile: `python -m chaos --help`."""
