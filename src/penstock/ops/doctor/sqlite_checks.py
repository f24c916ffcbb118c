"""What the way an SQLite file is kept means for the jobs in it."""

from __future__ import annotations

from collections.abc import Iterable

from penstock.model.storage_info import FileInfo
from penstock.ops.doctor.findings import MEGABYTE, Finding, fine, note, warning

__all__ = ["judge_file"]

#: File systems on which SQLite's shared memory does not work between machines, and those that forget.
NETWORK = {"nfs", "nfs4", "cifs", "smb3", "smbfs", "9p", "fuse.sshfs", "ceph", "glusterfs", "fuse.glusterfs", "afs"}
FORGETFUL = {"tmpfs", "ramfs"}


def judge_file(vitals: FileInfo) -> tuple[list[Finding], list[str]]:
    """What the way a file is kept means, and what can be lost with it."""
    findings = [fine("schema", f"version {vitals.schema}, SQLite {vitals.version}")]
    if not vitals.path:
        return [*findings, warning("place", "the jobs are in this process's memory", "use sqlite:PATH")], [
            "Every job, when the process ends."
        ]
    findings += [*judge_journal(vitals), *judge_access(vitals), *judge_disk(vitals), *judge_whole(vitals)]
    if vitals.synchronous == "FULL":
        lost = "Nothing that was accepted: not when a process is killed, and not when the power fails."
    else:
        lost = (
            "The last moments before a power cut; nothing when a process is killed. "
            "`?synchronous=FULL` in the URL closes that, and makes each commit slower."
        )
    return findings, [lost, "Everything, when the disk is lost: there is no copy. `penstock export` makes one."]


def judge_journal(vitals: FileInfo) -> Iterable[Finding]:
    if vitals.journal_mode != "wal":
        yield warning("journal", f"the journal mode is {vitals.journal_mode}: readers and writers block each other",
                      "let nothing else set PRAGMA journal_mode; Penstock sets WAL")  # fmt: skip
    else:
        yield fine("journal", f"WAL, synchronous={vitals.synchronous}")
    if vitals.log_size > max(256 * MEGABYTE, vitals.size):
        yield warning("log", f"the write-ahead log has {vitals.log_size // MEGABYTE:,} MB",
                      "look for a process that keeps a transaction open on this file")  # fmt: skip


def judge_access(vitals: FileInfo) -> Iterable[Finding]:
    if vitals.mode & 0o077:
        yield warning("permissions", f"{vitals.mode:o}: others on this machine can reach payloads and results",
                      f"chmod 600 {vitals.path}, and its -wal and -shm")  # fmt: skip
    else:
        yield fine("permissions", f"{vitals.mode:o}, for its owner only")
    if not vitals.own:
        yield note("owner", "the file belongs to another user", "run everything that uses it as one user")
    if vitals.filesystem in NETWORK:
        yield warning("file system", f"{vitals.filesystem}: SQLite's locks and shared memory fail over a network",
                      "use a local disk, or a Redis server")  # fmt: skip
    elif vitals.filesystem in FORGETFUL:
        yield warning("file system", f"{vitals.filesystem}: it is gone when the machine restarts", "use a real disk")
    elif vitals.filesystem == "overlay":
        yield note("file system", "overlay: it is gone when its container is removed", "put the file on a volume")
    else:
        yield fine("file system", vitals.filesystem or "unknown")


def judge_disk(vitals: FileInfo) -> Iterable[Finding]:
    says = f"the file has {vitals.size / MEGABYTE:,.1f} MB, and {vitals.free // MEGABYTE:,} MB are free"
    if vitals.free < max(200 * MEGABYTE, vitals.size // 2):
        yield warning("disk", says, "make room: without it jobs are refused")
    else:
        yield fine("disk", says)


def judge_whole(vitals: FileInfo) -> Iterable[Finding]:
    if vitals.faults:
        more = f" and {len(vitals.faults) - 1} more" if len(vitals.faults) > 1 else ""
        yield warning("integrity", f"the file is damaged: {vitals.faults[0]}{more}",
                      "stop the workers, `penstock export` what can be read, import it into a new file")  # fmt: skip
    elif vitals.faults is not None:
        yield fine("integrity", "whole")
