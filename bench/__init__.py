"""Benchmarks: one file per workload, each measured on servers of its own."""
