"""Packing of a file: gz, xz, bz2 or zip around a table, told by its first bytes; and the encoding of its text."""

from __future__ import annotations

import bz2
import codecs
import gzip
import io
import lzma
import zipfile
import zlib
from typing import IO, Any

from dwsweep.errors import InputError
from dwsweep.text import join, printable

MOST_BYTES = 2**31
"""Largest content of a packed file: a few kilobytes can unpack to fill the memory."""
SUFFIXES = (".gz", ".xz", ".bz2", ".zip")
MAGIC = {b"\x1f\x8b": gzip.open, b"\xfd7zXZ\x00": lzma.open, b"BZh": bz2.open}
ZIP = b"PK\x03\x04"
ERRORS = (OSError, EOFError, zlib.error, lzma.LZMAError, zipfile.BadZipFile, NotImplementedError, RuntimeError)
"""Exceptions of a packed file that is damaged, or closed by a password."""
BOMS = {
    codecs.BOM_UTF8: "utf-8-sig",
    codecs.BOM_UTF32_LE: "utf-32",
    codecs.BOM_UTF32_BE: "utf-32",
    codecs.BOM_UTF16_LE: "utf-16",
    codecs.BOM_UTF16_BE: "utf-16",
}
"""Encodings by the mark that a text begins with; one mark begins another, which comes after it."""
HEAD = 4096
CONTROLS = frozenset(range(32)) - set(b"\t\n\r\f\x1b\x1a")


def unpacked(content: bytes, name: str) -> tuple[bytes, str]:
    """The content of the one file that ``content`` packs, and the name it has there; both unchanged if nothing is
    packed. An Excel workbook, a zip too, stays as it is.

    Raises:
        InputError: a zip of several files; more than ``MOST_BYTES``. One of ``ERRORS``: it is damaged.
    """
    for magic, opened in MAGIC.items():
        if content.startswith(magic):
            made: Any = opened
            bare = name[: -len(name.rpartition(".")[2]) - 1] if name.lower().endswith(SUFFIXES) else name
            with made(io.BytesIO(content)) as file:
                return _bounded(file, name), bare
    if not content.startswith(ZIP):
        return content, name
    with zipfile.ZipFile(io.BytesIO(content)) as archive:
        every = [info for info in archive.infolist() if not info.is_dir()]
        if any(info.filename == "[Content_Types].xml" for info in every):
            return content, name
        files = [info for info in every if not info.filename.rpartition("/")[2].startswith(".")]
        files = [info for info in files if not info.filename.startswith("__MACOSX/")]
        if len(files) != 1:
            held = join((printable(info.filename) for info in files), 6) or "none"
            raise InputError(f"table: {name}; a zip of {len(files)} files ({held}); must hold one table")
        with archive.open(files[0]) as file:
            return _bounded(file, name), files[0].filename


def _bounded(file: IO[bytes], name: str) -> bytes:
    content = file.read(MOST_BYTES + 1)
    if len(content) > MOST_BYTES:
        raise InputError(f"table: {name}; unpacks to more than {MOST_BYTES:,} bytes; give it unpacked")
    return content


def text_of(content: bytes) -> str:
    """The text of a file: in the encoding that its first bytes name, else UTF-16 where every other byte is zero, else
    UTF-8, else that of Western Windows.

    Raises:
        UnicodeDecodeError: it is no text.
    """
    for mark, encoding in BOMS.items():
        if content.startswith(mark):
            return content.decode(encoding)
    head = content[:HEAD]
    for encoding, zeros in (("utf-16-le", head[1::2]), ("utf-16-be", head[::2])):
        if zeros and 2 * zeros.count(0) > len(zeros):
            return content.decode(encoding)
    try:
        return content.decode("utf-8")
    except UnicodeDecodeError:
        if CONTROLS & set(head):
            raise
    try:
        return content.decode("cp1252")
    except UnicodeDecodeError:
        return content.decode("latin-1")
