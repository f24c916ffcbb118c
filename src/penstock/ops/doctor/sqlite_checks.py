"""Checks of an SQLite file: journal, permissions, file system, disk space and damage."""

from __future__ import annotations

from collections.abc import Iterable

from penstock.model.storage_info import FileInfo
from penstock.ops.doctor.findings import GIGABYTE, MEGABYTE, Finding, fine, note, warning

__all__ = ["check_file"]

#: A disk with less free space (bytes) than this is full.
FULL_BELOW = 100_000

#: File systems on which SQLite's locks and shared memory fail between machines.
NETWORK = {"nfs", "nfs4", "cifs", "smb3", "smbfs", "9p", "fuse.sshfs", "ceph", "glusterfs", "fuse.glusterfs", "afs"}
#: File systems that lose their content with the machine.
VOLATILE = {"tmpfs", "ramfs"}


def check_file(info: FileInfo) -> tuple[list[Finding], list[str]]:
    """Return the findings about a file, and sentences about what can be lost."""
    findings = [fine("schema", f"version {info.schema}, SQLite {info.version}")]
    if not info.path:
        return [*findings, warning("place", "the jobs are in this process's memory", "use sqlite:PATH")], [
            "Every job, when the process ends."
        ]
    findings += [*check_journal(info), *check_access(info), *check_disk(info), *check_integrity(info)]
    if info.synchronous == "FULL":
        lost = "Nothing that was accepted: not when a process is killed, and not when the power fails."
    else:
        lost = (
            "The last moments before a power cut; nothing when a process is killed. "
            "`?synchronous=FULL` in the URL closes that gap, and makes each commit slower."
        )
    return findings, [lost, "Everything, when the disk is lost: there is no copy. `penstock export` makes one."]


def check_journal(info: FileInfo) -> Iterable[Finding]:
    if info.journal_mode != "wal":
        yield warning("journal", f"the journal mode is {info.journal_mode}: readers and writers block each other",
                      "let nothing else set PRAGMA journal_mode; Penstock sets WAL")  # fmt: skip
    else:
        yield fine("journal", f"WAL, synchronous={info.synchronous}")
    if info.log_size > max(256 * MEGABYTE, info.size):
        yield warning("log", f"the write-ahead log has {info.log_size // MEGABYTE:,} MB",
                      "look for a process that keeps a transaction open on this file")  # fmt: skip


def check_access(info: FileInfo) -> Iterable[Finding]:
    if info.obstacle:
        yield warning("access", f"the file cannot be written by this user: {info.obstacle.partition('; ')[0]}",
                      info.obstacle.partition("; ")[2])  # fmt: skip
    for exposure in info.exposures:
        yield warning("permissions", exposure,
                      "use a file and a directory of your own; chmod 600 the file and its -wal and -shm")  # fmt: skip
    if info.mode & 0o077 and not info.exposures:
        yield warning("permissions", f"{info.mode:o}: the group of the file can read payloads and results",
                      f"chmod 600 {info.path}, and its -wal and -shm")  # fmt: skip
    elif not info.exposures:
        yield fine("permissions", f"{info.mode:o}, for its owner only")
    if info.foreign_wake_directory:
        yield warning("wake-ups", f"{info.foreign_wake_directory} belongs to another user, so processes cannot wake "
                      "each other, and find new jobs up to a second later",
                      "remove it, or use a shorter path for the database")  # fmt: skip
    if info.filesystem in NETWORK:
        yield warning("file system", f"{info.filesystem}: SQLite's locks and shared memory fail over a network",
                      "use a local disk, or a Redis server")  # fmt: skip
    elif info.filesystem in VOLATILE:
        yield warning(
            "file system", f"{info.filesystem}: the file is lost when the machine restarts", "use a real disk"
        )
    elif info.filesystem == "overlay":
        yield note("file system", "overlay: the file is lost when its container is removed", "put the file on a volume")
    else:
        yield fine("file system", info.filesystem or "unknown")


def check_disk(info: FileInfo) -> Iterable[Finding]:
    free = f"{info.free / GIGABYTE:,.1f} GB" if info.free >= GIGABYTE else f"{info.free // MEGABYTE:,} MB"
    usage = f"the file has {info.size / MEGABYTE:,.1f} MB, and {free} are free"
    if info.free < FULL_BELOW:
        yield warning("disk", "the disk is full: jobs are refused, and outcomes wait until there is room", "make room")
    elif info.free < max(200 * MEGABYTE, info.size // 2):
        yield warning("disk", usage, "make room: on a full disk, jobs are refused")
    else:
        yield fine("disk", usage)


def check_integrity(info: FileInfo) -> Iterable[Finding]:
    if info.faults:
        more = f" and {len(info.faults) - 1} more" if len(info.faults) > 1 else ""
        yield warning("integrity", f"the file is damaged: {info.faults[0]}{more}",
                      "stop everything that uses it and copy it; `penstock export` writes the jobs that can be read, "
                      f"`sqlite3 {info.path} .recover | sqlite3 new.db` recovers more")  # fmt: skip
    elif info.faults is not None:
        yield fine("integrity", "no damage found")
