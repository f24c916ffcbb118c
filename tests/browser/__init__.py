"""Scenarios of the dashboard in a browser."""
