"""Reading archives that may be hostile.

An archive is a plain tar file, perhaps gzipped, of regular files alone, as `memloc store export`
writes it. Headers are read one by one and none of tar's extensions is understood: links, devices,
sparse files and extended headers, which can say anything about a name or a size, are refused.
"""

from __future__ import annotations

import contextlib
import gzip
import io
import os
import re
import tarfile
import unicodedata
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, cast

from memloc.engine.store.contents import FILE, KEY, KINDS
from memloc.errors import StoreError
from memloc.tables import REPORT

BLOCK = tarfile.BLOCKSIZE
CHUNK = 2**20
MOST_FILES = 500_000
LONGEST_PADDING = 2**20
"""Bytes of zeros at the end."""
TYPES = {
    tarfile.LNKTYPE: "a hard link",
    tarfile.SYMTYPE: "a symbolic link",
    tarfile.CHRTYPE: "a device",
    tarfile.BLKTYPE: "a device",
    tarfile.DIRTYPE: "a directory",
    tarfile.FIFOTYPE: "a pipe",
    tarfile.GNUTYPE_SPARSE: "a sparse file",
}
RESULT_NAME = re.compile(r"\w[\w .,;+=@()&'%!~-]*(?<![ .])")
LONGEST_NAME = 140
"""Bytes of the name of a result; a tar header has no room for more."""
NO_RESULTS = ("store", "sweeps")
"""Folders beside the results, with a meaning of their own."""


class BadArchive(StoreError):
    """An archive is damaged, or not what `memloc store export` writes."""

    def __init__(self, words: str, remedy: str | None = None) -> None:
        super().__init__(words)
        self.remedy = remedy


def result_name_problem(name: str) -> str | None:
    """Why a folder of results cannot be exchanged under its name; None if it can."""
    if name.casefold() in NO_RESULTS:
        return "this name has a meaning of its own"
    if len(name.encode(errors="replace")) > LONGEST_NAME:
        return "its name is too long"
    if not RESULT_NAME.fullmatch(name) or unicodedata.normalize("NFC", name) != name:
        return "a name may have letters, digits, spaces and simple punctuation"
    return None


@dataclass(frozen=True)
class Place:
    """Where a file of an archive belongs: in an artefact of a kind, or in a folder of results."""

    kind: str | None
    folder: str
    file: str

    @classmethod
    def parse(cls, name: str) -> Place:
        """From its name in the archive.

        Raises:
            BadArchive: If the name is not exactly one of the two forms.
        """
        match name.split("/"):
            case ["store", kind, key, file] if (
                kind in KINDS and KEY.fullmatch(key) and FILE.fullmatch(file)
            ):
                return cls(kind, key, file)
            case ["results", folder, file] if not result_name_problem(folder) and (
                file == REPORT or (FILE.fullmatch(file) and not file.endswith(".safetensors"))
            ):
                return cls(None, folder, file)
        raise BadArchive(f"{shown(name)} is not the name of a file of a store or of results")

    def below(self, root: Path) -> Path:
        """The folder it goes to."""
        return root / "results" / self.folder if self.kind is None else (
            root / "store" / self.kind / self.folder
        )  # fmt: skip


def unpack(archive: Path, to: Path, limit: int) -> None:
    """Write the files of an archive below a new folder, under `store` and `results`.

    Args:
        archive: The file.
        to: An empty folder of our own.
        limit: Bytes that the files may have together.

    Raises:
        BadArchive: If anything is wrong; what was written until then is left to the caller.
    """
    names: set[str] = set()
    spellings: dict[str, str] = {}
    try:
        with archive.open("rb") as raw, _plain(raw) as stream:
            for name, size in _members(stream, limit):
                place = Place.parse(name)
                if name.casefold() in names:
                    raise BadArchive(f"{shown(name)} is in it twice")
                names.add(name.casefold())
                if spellings.setdefault(place.folder.casefold(), place.folder) != place.folder:
                    raise BadArchive(f"{shown(name)} differs from another only in case")
                if place.file == REPORT:  # a page is made anew from the tables
                    _copy(stream, size, None)
                    continue
                folder = place.below(to)
                folder.mkdir(parents=True, exist_ok=True)
                with (folder / place.file).open("xb") as target:
                    _copy(stream, size, target)
                    target.flush()
                    os.fsync(target.fileno())
    except (EOFError, gzip.BadGzipFile, zlib.error) as error:
        raise BadArchive(f"it is damaged or cut off ({error or 'it ends too early'})") from None
    if not names:
        raise BadArchive("it is empty")


@contextlib.contextmanager
def _plain(raw: BinaryIO) -> Iterator[BinaryIO]:
    """What is in the file, whether it is gzipped or not."""
    start = raw.read(2)
    raw.seek(0)
    if start == b"\x1f\x8b":
        with gzip.GzipFile(fileobj=raw, mode="rb") as stream:
            yield cast(BinaryIO, stream)
    else:
        yield raw


def _members(stream: BinaryIO, limit: int) -> Iterator[tuple[str, int]]:
    """Names and sizes; whoever asks for the next one has read all of the last one."""
    total = number = 0
    while True:
        header = _read(stream, BLOCK)
        if not any(header):
            break
        try:
            member = tarfile.TarInfo.frombuf(header, "utf-8", "strict")
        except (tarfile.HeaderError, ValueError):
            raise BadArchive("it is not a tar file, or damaged") from None
        if member.type != tarfile.REGTYPE:
            what = TYPES.get(member.type, "of an unknown type")
            raise BadArchive(f"{shown(member.name)} is {what}, not a regular file")
        number, total = number + 1, total + member.size
        if number > MOST_FILES:
            raise BadArchive(f"it has more than {MOST_FILES:,} files")
        if member.size < 0 or total > limit:
            raise BadArchive(
                f"its files have more than {limit / 2**30:.3g} GB together",
                "if you trust it, give a larger --max-size, such as 100GB",
            )
        yield member.name, member.size
    padding = 0
    while rest := stream.read(CHUNK):  # to the end, so that gzip's own checksum is checked
        padding += len(rest)
        if any(rest) or padding > LONGEST_PADDING:
            raise BadArchive("something follows after its end")


def _copy(stream: BinaryIO, size: int, target: io.BufferedIOBase | None) -> None:
    left = size
    while left:
        part = _read(stream, min(left, CHUNK))
        left -= len(part)
        if target is not None:
            target.write(part)
    _read(stream, -size % BLOCK)


def _read(stream: BinaryIO, size: int) -> bytes:
    """Exactly so many bytes.

    Raises:
        BadArchive: If there are fewer.
    """
    parts = []
    while size:
        part = stream.read(size)
        if not part:
            raise BadArchive("it is cut off")
        parts.append(part)
        size -= len(part)
    return b"".join(parts)


def shown(name: str) -> str:
    """A name from an archive, safe to print."""
    return ascii(name[:100])
