"""Deterministic simulation: real workers and clients in one thread, on virtual time, with faults by a seed."""
