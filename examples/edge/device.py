"""The life of a device: offline, a power cut, a link at last, the move, and online from then on."""

from __future__ import annotations

import os
import shlex
import sqlite3
import subprocess
import sys
import time
from contextlib import closing
from itertools import islice

from jobs import ARCHIVE
from jobs import URL as CENTRAL

DEVICE = f"sqlite:{ARCHIVE.parent}/device.db"


def take_readings(count: int, url: str, cut_after: int | None = None) -> set[str]:
    """Run the sensors; gives what was accepted. A power cut gives them no chance to say goodbye."""
    command = [sys.executable, "sensor.py", str(count)]
    there = {**os.environ, "PENSTOCK_URL": url}
    with subprocess.Popen(command, env=there, text=True, stdout=subprocess.PIPE) as taking:
        assert taking.stdout is not None
        accepted = {line.strip() for line in islice(taking.stdout, cut_after)}
        if cut_after is not None:
            taking.kill()
            accepted |= {line.strip() for line in taking.stdout}  # said before it was dark
    return accepted


def shell(command: str, **values: str) -> None:
    """Do what somebody would type."""
    print(f"$ {command}")
    words = "set -o pipefail; penstock() { " + shlex.quote(sys.executable) + ' -m penstock "$@"; }; ' + command
    subprocess.run(["bash", "-c", words], env={**os.environ, **values}, check=True)


def archived() -> dict[str, list[str]]:
    """The readings that the central has, by sensor, in the order in which it got them."""
    found: dict[str, list[str]] = {}
    if ARCHIVE.exists():
        with closing(sqlite3.connect(ARCHIVE)) as archive:
            for sensor, id in archive.execute("select sensor, id from readings order by number"):
                found.setdefault(sensor, []).append(id)
    return found


def main() -> None:
    urls = {"DEVICE": DEVICE, "CENTRAL": CENTRAL}
    accepted = take_readings(1000, DEVICE, cut_after=12)
    print(f"power cut after {len(accepted)} readings")
    accepted |= take_readings(8, DEVICE)
    print(f"{len(accepted)} readings, and nobody heard of them yet: the archive has {len(archived())}")

    print("a link!")
    shell("penstock export readings --url $DEVICE | penstock import --url $CENTRAL", **urls)
    print("once more, as if the link had broken off in the middle")
    shell("penstock export readings --url $DEVICE | penstock import --url $CENTRAL", **urls)
    shell("penstock queue delete readings --yes --url $DEVICE", **urls)

    accepted |= take_readings(10, CENTRAL)
    print("10 more, online")
    while accepted.difference(*archived().values()):
        time.sleep(0.1)
    for sensor, ids in sorted(archived().items()):
        print(f"{sensor}: {len(ids)} readings, {'in order' if ids == sorted(ids) else 'OUT OF ORDER'}")
    print("nothing that was accepted is missing")


if __name__ == "__main__":
    main()
