"""Locks: who is computing what, when several processes and machines share one store.

A lock is a file ``<root>/.locks/<kind>-<key>``, kept by filelock: its holder renews it, and it
ends when the holder releases it, has died, or has not renewed it for the length of a lease. Two
holders at once would cost time but no result, as an artefact appears under its name only once.
"""

from __future__ import annotations

import contextlib
import os
import socket
import time
from collections.abc import Iterator
from pathlib import Path

from filelock import OwnerRecord, SoftFileLease, Timeout

from memloc.errors import cannot_write

FOLDER = ".locks"
LEASE = 60.0
"""Seconds without a sign of life after which a lock has ended."""


class Locks:
    """The locks of the store in a folder."""

    def __init__(self, root: Path, lease: float = LEASE) -> None:
        self.folder, self.lease = root / FOLDER, lease
        self.watched: dict[str, SoftFileLease] = {}
        """Locks of others: how long one has not been renewed is known to whoever watches it."""

    @contextlib.contextmanager
    def hold(self, kind: str, key: str) -> Iterator[bool]:
        """Lock an artefact for as long as the block lasts; False if somebody else has it.

        Raises:
            StoreError: If the store cannot be written.
        """
        lock = self._lock(f"{kind}-{key}")
        if not self._acquire(lock):
            yield False
            return
        try:
            yield True
        finally:
            with contextlib.suppress(OSError):
                lock.release()

    def held(self, kind: str, key: str) -> bool:
        """Whether somebody has a lock; asked again and again, it notices when a lease has ended."""
        name = f"{kind}-{key}"
        lock = self.watched.setdefault(name, self._lock(name))
        if not self._acquire(lock):
            return True
        lock.release()
        del self.watched[name]
        return False

    def holders(self) -> dict[str, int]:
        """Everything that is being computed now, as ``<kind>-<key>``, and by which process."""
        found = {}
        for name, owner in self._owners():
            with contextlib.suppress(OSError):
                renewed = (self.folder / name).stat().st_mtime
                if time.time() - renewed < self.lease and not _has_ended(owner):
                    found[name] = owner.pid
        return found

    def sweep(self) -> None:
        """Remove the locks of processes of this machine that have died."""
        for name, owner in self._owners():
            if _has_ended(owner):
                self._lock(name).force_break()

    def _owners(self) -> Iterator[tuple[str, OwnerRecord]]:
        with contextlib.suppress(OSError):
            for name in os.listdir(self.folder):
                owner = self._lock(name).owner
                if owner is not None:
                    yield name, owner

    def _lock(self, name: str) -> SoftFileLease:
        return SoftFileLease(self.folder / name, lease_duration=self.lease, thread_local=False)

    def _acquire(self, lock: SoftFileLease) -> bool:
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            lock.acquire(timeout=0)
        except Timeout:
            return False
        except OSError as error:
            raise cannot_write(self.folder, error) from None
        return True


def _has_ended(owner: OwnerRecord) -> bool:
    """Whether the holder is a process of this machine that has died."""
    host = owner.hostname.partition("?")[0]  # in a container, the process namespace follows
    return host == socket.gethostname() and is_gone(owner.pid)


def is_gone(pid: int) -> bool:
    """Whether no process of this machine has this number, or only one that has ended."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return True
    except PermissionError:
        return False
    with contextlib.suppress(OSError):
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] in "ZX"
    return False
