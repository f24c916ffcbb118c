"""Benchmarks: one module per workload, each measured on servers of its own."""
