"""The history of a device: offline, a power cut, a link at last, the move to the server, and online from then on."""

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
    """Run the sensors and return the ids of accepted readings; a power cut kills them after `cut_after`."""
    command = [sys.executable, "sensor.py", str(count)]
    there = {**os.environ, "PENSTOCK_URL": url}
    with subprocess.Popen(command, env=there, text=True, stdout=subprocess.PIPE) as taking:
        assert taking.stdout is not None
        accepted = {line.strip() for line in islice(taking.stdout, cut_after)}
        if cut_after is not None:
            taking.kill()
            accepted |= {line.strip() for line in taking.stdout}  # printed before the cut
    return accepted


def shell(command: str, **values: str) -> None:
    """Print a shell command and run it."""
    print(f"$ {command}")
    script = "set -o pipefail; penstock() { " + shlex.quote(sys.executable) + ' -m penstock "$@"; }; ' + command
    subprocess.run(["bash", "-c", script], env={**os.environ, **values}, check=True)


def archived() -> dict[str, list[str]]:
    """Return the ids of readings in the archive by sensor, in the order of their arrival."""
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
    print(f"{len(accepted)} readings on the device, none sent yet: the archive has {len(archived())}")

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
