"""A process that holds an open write transaction until it is killed: `python -m chaos.sqlite_writer PATH half|lock`."""

from __future__ import annotations

import sqlite3
import sys
import time


def main(path: str, how: str) -> None:
    db = sqlite3.connect(path, timeout=60, isolation_level=None)
    db.execute("BEGIN IMMEDIATE")
    if how == "half":
        # With so small a cache SQLite writes pages to the file before the commit, which never comes.
        db.execute("PRAGMA cache_size = 10")
        db.execute("UPDATE jobs SET payload = 'never committed', place = 7")
        db.execute("DELETE FROM jobs WHERE n % 2")
    print("written", flush=True)
    time.sleep(60)


if __name__ == "__main__":
    main(*sys.argv[1:3])
