"""Fuzzing of what reads bytes that somebody else may have written."""
