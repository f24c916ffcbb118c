"""Planted faults of claims, leases, settlements and child processes, which `sim.mutants` tries."""

from __future__ import annotations

from tests.mutants.test_mutants import Mutant

__all__ = ["PLANTED"]


def planted(name: str, file: str, old: str, new: str) -> Mutant:
    return Mutant(name, file, old, new, ())


PLANTED = [
    planted(
        "a renewal extends lost claims", "sqlite/renew.py",
        "return [kept.get(claim, _LOST) for claim in held]", "return [kept.get(claim, _KEPT) for claim in held]",
    ),
    planted(
        "a repeated settlement counts again", "sqlite/settle.py",
        "        return Settled(state_of(job, tx.now))\n    return _LOST",
        "        job.retries += 1\n        tx.save(queue, job)\n"
        "        return Settled(state_of(job, tx.now))\n    return _LOST",
    ),
    planted(
        "due jobs are not promoted", "sqlite/ordering.py",
        "    if queue.promoted:\n        return False\n    if not", "    return False\n    if not",
    ),
    planted(
        "a stall goes to the end of its lane", "sqlite/reap.py",
        "            job.stalls += 1\n",
        "            job.stalls += 1\n            job.time, job.seq = tx.now, queue.next_seq()\n",
    ),
    planted(
        "the settler drops a batch after an error", "worker/settler.py",
        "                self._pending = batch + self._pending\n", "                pass\n",
    ),
    planted(
        "a worker does not fence itself", "worker/leases.py",
        "        self.give_up(self.expired(list(self._held), now))\n", "",
    ),
    planted("a waiting worker does not look by itself", "worker/claimer.py", "SLOW_POLL = 5.0", "SLOW_POLL = 1e6"),
    planted(
        "the lease of a claim counts from its answer", "worker/claimer.py",
        "            got += self._accept(requests, answer, asked)\n",
        "            got += self._accept(requests, answer, self._loop.time())\n",
    ),
    planted(
        "one run too many fits", "worker/pool.py",
        "return self.allowed - self.busy", "return self.allowed - self.busy + 10",
    ),
    planted(
        "the lease of a renewal counts from its answer", "claims.py",
        "        renewed(batch, await storage.renew(worker, [claim.ref for claim in batch], lease_ms), asked)\n",
        "        renewed(batch, await storage.renew(worker, [claim.ref for claim in batch], lease_ms), clock())\n",
    ),
    planted(
        "a lost reply of the settler gives the outcome up", "worker/settler.py",
        "            except BaseException:\n", "            except ConnectionError:\n",
    ),
    planted(
        "a call does not look after its hint", "client/results.py",
        "                read_first = True\n                hint =",
        "                read_first = False\n                hint =",
    ),
    planted(
        "a dead child is not replaced", "worker/supervisor/supervisor.py",
        "        self._spawn(child.slot, delay)\n", "        del delay\n",
    ),
    planted(
        "a child whose run does not end is not killed", "worker/supervisor/supervisor.py",
        "                child.kill_with_stacks(overdue, now)\n", "                pass\n",
    ),
    planted(
        "a child keeps the runs that its parent could not renew", "worker/supervisor/child_leases.py",
        "        return super().expired(jobs, now)\n", "        return []\n",
    ),
    planted(
        "redis: due jobs are not promoted", "redis/lua/_shared.lua",
        "  if rawget(q, 'promoted') then return false end", "  if true then return false end",
    ),
    planted(
        "redis: a reaped stall is not counted", "redis/lua/reap.lua",
        "j.stalls, j.due = attempt, j.stalls + 1, now", "j.stalls, j.due = attempt, j.stalls, now",
    ),
    planted(
        "redis: a repeated settlement is not recognised", "redis/lua/settle.lua",
        "if j and j.settled == token .. kind then", "if false then",
    ),
]  # fmt: skip
