"""Fuzzing of the decoders, which read bytes that other programs may have written."""
