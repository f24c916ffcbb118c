"""The dashboard: pages about queues, jobs, workers and failures, for a browser.

Needs `pip install "penstock[dashboard]"`.
"""

from penstock.dashboard.app import Dashboard
from penstock.dashboard.auth import Viewer, anyone, basic, hash_password, token

__all__ = ["Dashboard", "Viewer", "anyone", "basic", "hash_password", "token"]
