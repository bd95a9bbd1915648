"""A workbook of Excel: the cells of its one sheet, as they were last calculated."""

from __future__ import annotations

import io

from dwsweep.errors import InputError, install
from dwsweep.fit.data import delimited
from dwsweep.text import join, printable


def read(what: str, content: bytes) -> delimited.Read:
    """Columns of the sheet that has cells.

    what: begins the line of an error, ``table: runs.xlsx;``.

    Raises:
        InputError: openpyxl, of the extra ``xlsx``, is not installed; several sheets have cells.
    """
    try:
        import openpyxl
    except ImportError:
        raise InputError(
            f"{what} a workbook, which needs openpyxl: {install('xlsx')}; or save the sheet as CSV"
        ) from None
    book = openpyxl.load_workbook(io.BytesIO(content), read_only=True, data_only=True)
    try:
        sheets = {}
        for sheet in book.worksheets:
            # the size that a sheet declares counts formatted cells: one far cell would make 17 billion blanks
            sheet.reset_dimensions()
            rows = [row for row in sheet.iter_rows(values_only=True) if any(value is not None for value in row)]
            if rows:
                sheets[sheet.title] = rows
    finally:
        book.close()
    if len(sheets) > 1:
        held = join(map(printable, sheets), 6)
        raise InputError(f"{what} a workbook of {len(sheets)} sheets ({held}); must have one, or save one as CSV")
    return delimited.of_fields(what, next(iter(sheets.values()), []))
