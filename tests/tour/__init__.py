"""A tour of Penstock: one idea per test, to be read from the first file to the last. docs/tour.md shows it."""
