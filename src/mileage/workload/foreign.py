"""foreign_kind(): what a file is that is no text of lines, by its first bytes."""

from __future__ import annotations

from typing import Final

__all__ = ["foreign_kind"]

_AS_TEXT: Final = "write its rows as CSV or as JSON lines"
_KINDS: Final = (
    (b"PAR1", "a Parquet file", _AS_TEXT),
    (b"ARROW1", "an Arrow file", _AS_TEXT),
    (b"ORC", "an ORC file", _AS_TEXT),
    (b"Obj\x01", "an Avro file", _AS_TEXT),
    (b"\x89HDF\r\n", "an HDF5 file", _AS_TEXT),
    (b"SQLite format 3\0", "a database", "name the directory of a ledger"),
    (b"MILEAGEJ", "a journal", "name its directory or file"),
    (b"\x28\xb5\x2f\xfd", "packed with zstd", "unpack it with `zstd -d`, or use gzip"),
    (b"BZh", "packed with bzip2", "unpack it with `bunzip2`, or use gzip"),
    (b"\xfd7zXZ\0", "packed with xz", "unpack it with `unxz`, or use gzip"),
    (b"\x04\x22\x4d\x18", "packed with lz4", "unpack it with `lz4 -d`, or use gzip"),
    (b"PK\x03\x04", "a zip archive, or a workbook", "unpack it, or write its rows as CSV"),
    (b"%PDF-", "a PDF", _AS_TEXT),
    (b"\xff\xfe", "text in UTF-16", "write it as UTF-8"),
    (b"\xfe\xff", "text in UTF-16", "write it as UTF-8"),
)
_TEXT_BYTES: Final = 1024


def foreign_kind(head: bytes) -> str | None:
    """What it is and what to do, as the rest of a sentence; None for what may be text.

    `head` are the first bytes of the file, 1 KiB where there are so many.
    """
    for magic, what, remedy in _KINDS:
        if head.startswith(magic) and _is_more_than(magic, head):
            return f"is {what}, which is not read here: {remedy}"
    if b"\0" in head[:_TEXT_BYTES]:
        return "is no text: expected a table or JSON lines, in UTF-8"
    return None


def _is_more_than(magic: bytes, head: bytes) -> bool:
    """Magic numbers that are letters only may begin a column's name: no text has other bytes."""
    if not magic.isalnum():
        return True
    return any(byte < 9 or byte > 126 for byte in head[:_TEXT_BYTES])
