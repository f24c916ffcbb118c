"""Renew, reap and report claims: what workers, supervisors and reservations have in common."""
