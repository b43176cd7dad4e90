"""Claims: who is computing what, when several processes and machines share one store.

A claim is a file ``<root>/.claims/<kind>-<key>.<n>`` that its holder touches every few seconds. It
ends when the holder removes it, when the holder is known to be dead (a process of this machine that
is gone), or when it was not touched for the length of the lease. Whoever finds claim n ended makes
claim n+1; a file can be created only once, so one of several takers wins and nobody has to remove
what belongs to another. Ages are measured with the clock of the file system, so machines need not
agree on the time.
"""

from __future__ import annotations

import contextlib
import json
import os
import socket
import threading
import time
import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from memloc.errors import StoreError

CLAIMS = ".claims"
LEASE = 60.0
"""Seconds without a sign of life after which a claim has ended."""


@dataclass(frozen=True)
class Holder:
    """Who has a claim: for people, and to see whether the process still lives."""

    host: str
    machine: str
    pid: int
    started: str
    title: str = ""
    since: float = 0.0
    """By the clock of its machine."""

    def is_dead(self) -> bool:
        """Known to be gone; a process of another machine never is."""
        return self.machine == machine() and process_start(self.pid) != self.started


class Claims:
    """The claims of one store.

    Args:
        root: Folder of the store.
        lease: Seconds without a sign of life after which a claim has ended.
    """

    def __init__(self, root: Path, lease: float = LEASE) -> None:
        self.folder, self.lease = root / CLAIMS, lease
        self.held: set[Path] = set()
        self.pulse: threading.Thread | None = None

    @contextlib.contextmanager
    def hold(self, kind: str, key: str, title: str = "") -> Iterator[bool]:
        """Claim an artefact for as long as the block lasts; False if somebody else has it.

        Raises:
            StoreError: If the store cannot be written.
        """
        path = self._take(kind, key, title)
        if path is None:
            yield False
            return
        self._keep_alive(path)
        try:
            yield True
        finally:
            self.held.discard(path)
            for claim in self._of(kind, key):
                if _number(claim) <= _number(path):
                    claim.unlink(missing_ok=True)

    def holder(self, kind: str, key: str) -> Holder | None:
        """Who is computing this now."""
        claims = self._of(kind, key)
        return self._holder(claims[-1]) if claims else None

    def all(self) -> dict[str, Holder]:
        """Everybody who is computing something now, by ``<kind>-<key>``."""
        names = {path.name.rpartition(".")[0] for path in self._files("*")}
        # What is not called like a claim is none.
        parts = {name: name.rsplit("-", 1) for name in sorted(names) if "-" in name}
        found = {name: self.holder(kind, key) for name, (kind, key) in parts.items()}
        return {name: holder for name, holder in found.items() if holder is not None}

    def sweep(self) -> None:
        """Remove claims that have ended; their holders did not live to do it."""
        for path in self._files("*"):
            if self._holder(path) is None:
                with contextlib.suppress(OSError):
                    path.unlink(missing_ok=True)

    def _take(self, kind: str, key: str, title: str) -> Path | None:
        claims = self._of(kind, key)
        if claims and self._holder(claims[-1]) is not None:
            return None
        number = _number(claims[-1]) + 1 if claims else 1
        path = self.folder / f"{kind}-{key}.{number}"
        who = json.dumps(vars(_me(title)), ensure_ascii=False).encode()
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            try:
                descriptor = os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o644)
            except FileExistsError:
                return None
            try:
                os.write(descriptor, who)
            finally:
                os.close(descriptor)
            # Between looking and creating, a whole claim may have come and gone, and another taker
            # may count anew: of two who both have a file now, at least the later one sees it.
            if any(self._holder(claim) for claim in self._of(kind, key) if claim != path):
                path.unlink(missing_ok=True)
                return None
            return path
        except OSError as error:
            raise StoreError(
                f"cannot write to {str(self.folder)!r}: {error.strerror or error}; "
                "free some space or choose another folder with --runs DIR"
            ) from None

    def _holder(self, path: Path) -> Holder | None:
        """Who holds a claim, or None if it has ended."""
        now = self._now()
        try:
            age = now - path.stat().st_mtime
            text = path.read_text(encoding="utf-8", errors="replace")
        except OSError:
            return None  # removed meanwhile
        try:
            holder = Holder(**json.loads(text))
        except (ValueError, TypeError):
            # Its holder died while writing it, or is about to write: the lease decides.
            holder = Holder("", "", 0, "")
        # One from the future was touched by a clock that nobody else has; it will not be again.
        return None if abs(age) > self.lease or holder.is_dead() else holder

    def _now(self) -> float:
        """The time as the file system has it."""
        probe = self.folder / f".now-{uuid.uuid4().hex}"
        try:
            probe.touch()
            return probe.stat().st_mtime
        except OSError:
            return time.time()  # the disk is full, perhaps
        finally:
            with contextlib.suppress(OSError):
                probe.unlink(missing_ok=True)

    def _keep_alive(self, path: Path) -> None:
        """Touch a claim now and then, in a thread that all claims of this process share."""
        self.held.add(path)
        if self.pulse is None or not self.pulse.is_alive():
            self.pulse = threading.Thread(target=self._beat, daemon=True)
            self.pulse.start()

    def _beat(self) -> None:
        while True:
            time.sleep(self.lease / 6)
            for path in tuple(self.held):
                with contextlib.suppress(OSError):
                    os.utime(path)

    def _of(self, kind: str, key: str) -> list[Path]:
        return sorted(self._files(f"{kind}-{key}"), key=_number)

    def _files(self, name: str) -> list[Path]:
        try:
            names = os.listdir(self.folder)
        except OSError:
            return []
        parts = [(file, *file.rpartition(".")) for file in names]
        return [
            self.folder / file
            for file, stem, _, number in parts
            if number.isdecimal() and (stem == name or name == "*")
        ]


def _number(path: Path) -> int:
    return int(path.suffix[1:])


def _me(title: str) -> Holder:
    pid = os.getpid()
    return Holder(
        socket.gethostname(), machine(), pid, process_start(pid) or "", title, time.time()
    )


@cache
def machine() -> str:
    """What tells this machine, as it runs now, from others: process numbers mean nothing there."""
    parts = [socket.gethostname()]
    with contextlib.suppress(OSError):
        parts.append(Path("/proc/sys/kernel/random/boot_id").read_text().strip())
        parts.append(os.readlink("/proc/self/ns/pid"))
    return "/".join(parts)


def process_start(pid: int) -> str | None:
    """When a process began, in any unit, so that a reused number is recognised; None if gone."""
    try:
        fields: Any = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    except OSError:
        fields = None
    if fields is not None:
        return None if fields[0] in "ZX" else str(fields[19])
    if Path("/proc/self/stat").exists():
        return None
    return "" if _alive(pid) else None


def _alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True
