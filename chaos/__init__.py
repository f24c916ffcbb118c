"""Workers and producers under faults, and a checker of the promises that must hold: `python -m chaos --help`."""
