"""Checks of a Redis or Valkey server: the settings that can lose jobs or stop work."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from penstock.model.storage_info import NodeInfo, ServerInfo, describe_eviction
from penstock.ops.doctor.findings import MEGABYTE, Finding, Level, fine, note, warning

__all__ = ["check_server", "startup_warnings"]

#: The oldest version that Penstock supports: older ones know no flags of scripts.
MIN_VERSION = (7, 0)


def check_server(info: ServerInfo) -> tuple[list[Finding], list[str]]:
    """Return the findings about a server, and sentences about what can be lost with its settings."""
    findings = [fine("schema", f"version {info.schema}")]
    lost: list[str] = []
    for node in info.nodes:
        name = f" of {node.where}" if len(info.nodes) > 1 else ""
        for finding in (
            *check_version(node),
            *check_memory(node),
            *check_clock(node),
            *check_connections_and_disk(node),
        ):
            findings.append(msgspec.structs.replace(finding, about=finding.about + name))
        kept, loses = check_persistence(node)
        findings.append(msgspec.structs.replace(kept, about=kept.about + name))
        copied, also = check_replicas(node, info.cluster)
        findings.append(msgspec.structs.replace(copied, about=copied.about + name))
        lost += [line for line in (loses, also) if line not in lost]
    return findings, lost


def check_version(node: NodeInfo) -> Iterable[Finding]:
    title = f"{'Valkey' if node.software == 'valkey' else 'Redis'} {node.version}"
    try:
        known = tuple(int(part) for part in node.version.split(".")[:2])
    except ValueError:
        known = MIN_VERSION
    if known < MIN_VERSION:
        yield warning("version", f"{title} is older than what Penstock is tested with", "use Redis 7.0 or newer")
    else:
        yield fine("version", title)
    if node.role != "master":
        yield warning("role", "this server is a replica: it refuses writes", "give the URL of the primary")


def check_memory(node: NodeInfo) -> Iterable[Finding]:
    """Check eviction and memory: eviction is the one setting that loses jobs without an error."""
    limit = f"{node.max_memory // MEGABYTE:,} MB" if node.max_memory else ""
    if node.policy is None:
        yield note("eviction", "the server hides its setting for a full memory",
                   "make sure that maxmemory-policy is noeviction")  # fmt: skip
    elif node.policy != "noeviction":
        yield warning("eviction", describe_eviction(node), "CONFIG SET maxmemory-policy noeviction")
    elif limit:
        yield fine("eviction", f"noeviction: at {limit} the server refuses new jobs instead of dropping old ones")
    else:
        yield fine("eviction", "noeviction")
    used, room = node.used_memory, node.max_memory or node.machine_memory
    share = used / room if room else 0.0
    usage = f"{used // MEGABYTE:,} of {room // MEGABYTE:,} MB in use ({share:.0%})"
    if node.max_memory and used >= node.max_memory:
        yield warning("memory", f"full: {usage}; the server refuses new jobs, and workers go on",
                      "let workers finish jobs, delete jobs or queues, or raise maxmemory")  # fmt: skip
    elif share > 0.8:
        yield warning("memory", usage, "give it more memory, or keep results for a shorter time (result_ttl)")
    elif not node.max_memory and room:
        yield note("memory", f"{usage}; no maxmemory is set, so a full machine kills the server",
                   "set maxmemory below the machine's memory, with noeviction")  # fmt: skip
    else:
        yield fine("memory", usage)


def check_clock(node: NodeInfo) -> Iterable[Finding]:
    ahead = node.ahead_ms / 1000
    if abs(ahead) > 2:
        side = "ahead of" if ahead > 0 else "behind"
        yield warning("clock", f"the server's clock is {abs(ahead):,.1f} s {side} this machine's: a run_at that is "
                      "computed here means another moment there (delays are not affected)",
                      "run a time service on both machines")  # fmt: skip
    else:
        yield fine("clock", f"within {max(abs(ahead), 0.001):.3f} s of this machine's")
    latency = f"{node.latency_ms:.2f} ms per round trip"
    if node.latency_ms > 50:
        yield warning("latency", latency, "run workers closer to the server")
    else:
        yield (
            note("latency", latency, "about one millisecond is usual within a data centre")
            if node.latency_ms > 5
            else fine("latency", latency)
        )


def check_connections_and_disk(node: NodeInfo) -> Iterable[Finding]:
    if node.max_clients and node.clients > 0.8 * node.max_clients:
        yield warning("connections", f"{node.clients:,} of {node.max_clients:,} are in use", "raise maxclients")
    if not node.writes_work:
        yield warning("disk", "the server's last write to its disk failed", "look at its log; it may refuse jobs")


def check_persistence(node: NodeInfo) -> tuple[Finding, str]:
    """Return the finding about persistence, and a sentence about what is lost when the server dies."""
    if node.aof:
        if node.appendfsync == "always":
            return fine("persistence", "append-only file, flushed with every write"), (
                "Nothing that was accepted, when the server or its machine dies."
            )
        if node.appendfsync == "no":
            return warning("persistence", "append-only file, flushed by the operating system (appendfsync no)",
                           "CONFIG SET appendfsync everysec"), (
                "Up to about 30 seconds of jobs and outcomes, when the server's machine dies."
            )  # fmt: skip
        shown = "every second" if node.appendfsync == "everysec" else "by a hidden setting, usually every second"
        return fine("persistence", f"append-only file, flushed {shown}"), (
            "Up to about one second of jobs and outcomes, when the server's machine dies. Nothing when only the "
            "server is restarted. `appendfsync always` closes that gap."
        )
    if node.save == "":
        return warning("persistence", "none: the server keeps everything in memory only",
                       "CONFIG SET appendonly yes"), (
            "Every job, when the server is restarted or dies."
        )  # fmt: skip
    rules = f" (save {node.save})" if node.save else ""
    return warning("persistence", f"snapshots from time to time{rules}, no append-only file",
                   "CONFIG SET appendonly yes, and appendonly yes in its configuration"), (
        "Everything since the last snapshot, when the server dies: minutes, up to an hour with the usual settings. "
        f"{node.changes:,} changes are unsaved now."
    )  # fmt: skip


def check_replicas(node: NodeInfo, cluster: bool) -> tuple[Finding, str]:
    if not node.replicas:
        text = "no replicas: while the server is down, nothing is enqueued or run"
        return (note if cluster else fine)("replicas", text), (
            "Everything, when the disk of the server is lost: there is no copy."
        )
    needs = node.needs_replicas or 0
    acked = f"; writes need {needs} of them connected" if needs else ""
    return fine("replicas", f"{node.replicas} connected{acked}"), (
        "The last moments before a failover: the server answers before its replicas have the write."
    )


def startup_warnings(info: ServerInfo) -> list[str]:
    """Return the warnings to log before any job is claimed: a server that may drop jobs, or accepts none."""
    lines: list[str] = []
    for node in info.nodes:
        found = (*check_version(node), *check_memory(node), *check_connections_and_disk(node))
        severe = [f for f in found if f.level is Level.WARNING and f.about in ("eviction", "role", "disk")]
        lines += [f"{node.where}: {f.message}; {f.fix}" for f in severe]
    return lines
