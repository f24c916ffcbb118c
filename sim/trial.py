"""One trial of a package with a fault: `python -m sim.trial URL SEED …` runs seeds until one breaks a promise.

It prints a JSON array for each seed before its run, and one with the broken promise after it: the parent process
(`sim.mutants`) knows the seed that was under way when this process was killed because a run does not end.
"""

from __future__ import annotations

import gc
import json
import logging
import signal
import sys

from penstock.testing.simulation.plan import Plan
from sim.run import run_seed

#: Processor time after which a run is ended (seconds): a whole one needs a tenth of it.
LONGEST = 60.0


def main() -> None:
    """Run the seeds."""
    url, seeds = sys.argv[1], [int(seed) for seed in sys.argv[2:]]
    logging.disable(logging.CRITICAL)  # the outages of a run are on purpose
    gc.freeze()  # what was imported is no garbage
    for seed in seeds:
        print(json.dumps([seed]), flush=True)
        signal.setitimer(signal.ITIMER_PROF, LONGEST)  # its signal ends the process
        report = run_seed(Plan.of_seed(seed), url)
        signal.setitimer(signal.ITIMER_PROF, 0)
        if report.violations:
            print(json.dumps([seed, report.violations[0].text]), flush=True)
            return
        del report
        gc.collect()


if __name__ == "__main__":
    main()
