"""Simulated work, its checks, and the commands: see docs/explanation/simulation.md."""
