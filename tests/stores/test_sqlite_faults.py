"""Faults of the library and of the file system, as errors that say what is wrong."""

import errno
import sqlite3

import pytest

from duly.errors import StoreCorruptedError, StoreError
from duly.stores.sqlite.faults import naming_faults


def named(fault: BaseException) -> StoreError:
    """The error that becomes of a fault."""
    with pytest.raises(StoreError) as caught, naming_faults("/x.db", "write"):
        raise fault
    assert caught.value.__cause__ is fault
    assert caught.value.details["store"] == "/x.db"
    return caught.value


def test_the_file_system_is_quoted_without_its_number() -> None:
    """A person reads it; an error that has no such text is quoted as it is."""
    assert named(OSError(errno.EIO, "Input/output error")).message == "Store /x.db cannot be used: Input/output error"
    assert named(OSError("odd")).message == "Store /x.db cannot be used: odd"


def test_a_text_that_is_not_utf8_is_damage() -> None:
    """SPEC 5.5: bytes that are not UTF-8 are not what duly wrote."""
    error = named(UnicodeDecodeError("utf-8", b"\xff", 0, 1, "invalid start byte"))
    assert isinstance(error, StoreCorruptedError)
    assert error.message == "Store /x.db is damaged"


def test_an_error_of_sqlite_without_a_name_is_quoted() -> None:
    """Errors that the Python module raises itself have no code."""
    error = named(sqlite3.ProgrammingError("Cannot operate on a closed database."))
    assert error.message == "Store /x.db failed: Cannot operate on a closed database."
    assert (error.details["operation"], error.details["code"]) == ("write", "")


def test_text_of_a_row_that_is_not_utf8_is_damage_too() -> None:
    """SPEC 5.5: the Python module says so in an error of its own, which has no code; one that has is another fault."""
    text = "Could not decode to UTF-8 column 'cron' with text '0 0\ufffd'"
    error = named(sqlite3.OperationalError(text))
    assert isinstance(error, StoreCorruptedError)
    assert error.message == "Store /x.db is damaged: it holds text that is not UTF-8"
    assert error.details["operation"] == "write"
    fault = sqlite3.OperationalError(text)
    fault.sqlite_errorname = "SQLITE_FULL"
    assert named(fault).message == "Store /x.db cannot grow: the disk is full"
