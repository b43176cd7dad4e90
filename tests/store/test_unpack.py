"""Archives that were made to do harm."""

from __future__ import annotations

import gzip
import io
import tarfile
import time
from pathlib import Path

import pytest

from memloc.engine.store.archive import import_archive
from memloc.errors import StoreError

KEY = "0123456789abcdef" * 2
GOOD = f"store/train/{KEY}/outcome.json"


def member(name: str, content: bytes = b"1", kind: bytes = tarfile.REGTYPE, **more: object):
    info = tarfile.TarInfo(name)
    info.type, info.size = kind, len(content)
    for key, value in more.items():
        setattr(info, key, value)
    return info, content


def archive(path: Path, *members: tuple[tarfile.TarInfo, bytes], form: int = tarfile.USTAR_FORMAT):
    with tarfile.open(path, "w", format=form, encoding="utf-8") as tar:
        for info, content in members:
            tar.addfile(info, io.BytesIO(content))
    return path


def refused(path: Path, words: str, **options: int) -> None:
    """Refused with these words; nothing is written in the folder, above it, or anywhere beside."""
    there = path.parent / "deep" / "deeper" / "runs"
    with pytest.raises(StoreError) as caught:
        import_archive(path, there, **options)
    assert words in str(caught.value)
    assert "\n" not in str(caught.value)
    assert [p for p in path.parent.rglob("*") if p.is_file()] == [path]


NAMES = {
    "up": "../../outside.json",
    "up inside": f"store/train/{KEY}/../../../../outside.json",
    "absolute": "/tmp/outside.json",
    "backslash": f"store\\train\\{KEY}\\outcome.json",
    "unknown kind": f"store/evil/{KEY}/outcome.json",
    "resume": f"store/resume/{KEY}/outcome.json",
    "short key": "store/train/0123/outcome.json",
    "upper-case key": f"store/train/{KEY.upper()}/outcome.json",
    "code": f"store/train/{KEY}/evil.py",
    "pickle": f"store/train/{KEY}/weights.bin",
    "hidden": f"store/train/{KEY}/.json",
    "deeper": f"store/train/{KEY}/more/outcome.json",
    "shallow": "store/outcome.json",
    "dots": "results/../settings.json",
    "dot": "results/./settings.json",
    "nothing": "results//settings.json",
    "the store": "results/store/settings.json",
    "The Store": "results/Store/settings.json",
    "hidden result": "results/.git/settings.json",
    "weights in results": "results/mine/weights.safetensors",
    "newline": "results/a\nb/settings.json",
    "escape": "results/a\x1b[31m/settings.json",
    "not normalised": "results/e\u0301/settings.json",
    "trailing dot": "results/mine./settings.json",
    "elsewhere": "etc/passwd",
}


@pytest.mark.parametrize("what", NAMES)
def test_a_name_that_leads_anywhere_else_is_refused(tmp_path: Path, what: str) -> None:
    path = archive(tmp_path / "a.tar", member(GOOD), member(NAMES[what]))
    refused(path, "is not the name of a file of a store or of results")


def test_a_name_with_a_nul_ends_there_and_is_refused(tmp_path: Path) -> None:
    info, content = member(GOOD)
    header = bytearray(info.tobuf(tarfile.USTAR_FORMAT))
    header[20] = 0
    header[148:156] = b" " * 8
    header[148:156] = b"%06o\0 " % sum(header)
    path = tmp_path / "a.tar"
    path.write_bytes(bytes(header) + content.ljust(512, b"\0") + bytes(1024))
    refused(path, "is not the name of a file")


@pytest.mark.parametrize(
    "kind",
    [
        *(tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.CHRTYPE, tarfile.BLKTYPE, tarfile.FIFOTYPE),
        *(tarfile.DIRTYPE, tarfile.CONTTYPE),
    ],
)
def test_only_regular_files_are_taken(tmp_path: Path, kind: bytes) -> None:
    path = archive(tmp_path / "a.tar", member(GOOD, b"", kind, linkname="/etc/passwd"))
    refused(path, "is not a regular file")


def test_a_link_through_which_a_later_file_would_be_written_is_refused(tmp_path: Path) -> None:
    link = member(f"store/train/{KEY}", b"", tarfile.SYMTYPE, linkname=str(tmp_path))
    refused(archive(tmp_path / "a.tar", link, member(GOOD)), "is not a regular file")


def test_a_name_in_an_extended_header_is_checked_too(tmp_path: Path) -> None:
    headers = {"path": "../../outside.json"}
    path = archive(tmp_path / "a.tar", member(GOOD, pax_headers=headers), form=tarfile.PAX_FORMAT)
    refused(path, "'../../outside.json' is not the name of a file")


@pytest.mark.parametrize(
    ("names", "words"),
    [
        ((GOOD, GOOD), "is in it twice"),
        ((GOOD, GOOD.replace("outcome", "Outcome")), "is in it twice"),
    ],
)
def test_two_files_for_one_place_are_refused(
    tmp_path: Path, names: tuple[str, ...], words: str
) -> None:
    refused(archive(tmp_path / "a.tar", *map(member, names)), words)


def test_a_bomb_is_stopped_before_it_unfolds(tmp_path: Path) -> None:
    size = 40 * 2**30
    info, _ = member(GOOD, size=size)
    path = tmp_path / "a.tar.gz"
    with gzip.open(path, "wb") as stream:
        stream.write(info.tobuf(tarfile.GNU_FORMAT))
        for _ in range(64):
            stream.write(bytes(2**20))
    started = time.monotonic()
    refused(path, "more than 20 GB together; if you trust it, allow a larger size")
    assert time.monotonic() - started < 5
    refused(path, "cut off", max_size=2 * size)  # less there than the header says


def test_many_small_files_count_together(tmp_path: Path) -> None:
    names = [GOOD.replace("outcome", f"n{index}") for index in range(5)]
    path = archive(tmp_path / "a.tar", *(member(name, bytes(300)) for name in names))
    refused(path, "more than", max_size=1499)


def test_too_many_files_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("memloc.engine.store.archive.MOST_FILES", 4)
    names = [GOOD.replace("outcome", f"n{index}") for index in range(5)]
    refused(archive(tmp_path / "a.tar", *map(member, names)), "more than 4 files")


def test_a_negative_size_is_refused(tmp_path: Path) -> None:
    info, _ = member(GOOD, size=-512)
    path = tmp_path / "a.tar"
    path.write_bytes(info.tobuf(tarfile.GNU_FORMAT) + bytes(1024))
    refused(path, "was not imported")


@pytest.mark.parametrize(
    "content", [b"", b"\0" * 1024, b"hello" * 300, b"\x1f\x8b\x08\x00", b"PK\x03\x04" * 300]
)
def test_what_is_no_archive_is_one_sentence(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "a.tar.gz"
    path.write_bytes(content)
    refused(path, "was not imported: it is")


def test_a_missing_file_is_one_sentence(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match="there is no file"):
        import_archive(tmp_path / "none.tar", tmp_path)


def test_a_page_in_an_archive_is_never_taken(tmp_path: Path) -> None:
    path = archive(tmp_path / "a.tar", member("results/mine/report.html", b"<script>"))
    refused(path, "is not the name of a file")
