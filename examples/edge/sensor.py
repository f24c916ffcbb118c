"""Take a number of readings from two sensors and enqueue them: `python sensor.py 20`.

It is the same program offline, on a file, and later, on a server: only PENSTOCK_URL differs.
"""

from __future__ import annotations

import random
import sys
import time
from datetime import UTC, datetime
from itertools import cycle, islice

from jobs import Reading, app

SENSORS = ("north", "south")


def main(count: int) -> None:
    with app:
        readings = app.queue("readings")
        for sensor in islice(cycle(SENSORS), count):
            reading = Reading(sensor, datetime.now(UTC), round(random.uniform(15, 25), 1))
            id = f"{sensor}@{reading.taken_at.isoformat(timespec='microseconds')}"
            job = readings.enqueue(reading, id=id, group=sensor)
            print(job.id)  # from here on it survives a crash of this process
            time.sleep(0.05)


if __name__ == "__main__":
    main(int(sys.argv[1]))
