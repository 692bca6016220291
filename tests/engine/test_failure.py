"""The record of an exception: its text with what it was raised from, and the end of its traceback."""

import os
import traceback

import pytest

import duly
from duly.engine.failure import (
    TRACEBACK_BYTES_MAX,
    TRACEBACK_FRAMES_MAX,
    error_text,
    own_frames_left_out,
    traceback_text,
)


class UnspeakableError(Exception):
    """Cannot be put into words."""

    def __str__(self) -> str:
        raise RuntimeError("no")


def raised(error: Exception) -> Exception:
    """An exception that was really raised."""
    try:
        raise error
    except Exception as caught:
        return caught


def wrapped() -> Exception:
    """An exception with a cause of a cause."""
    try:
        try:
            try:
                raise OSError("disk full")
            except OSError as error:
                raise ValueError("no row") from error
        except ValueError as error:
            raise RuntimeError("import failed") from error
    except RuntimeError as error:
        return error


def while_handling() -> BaseException:
    """An exception that came while another one was handled."""
    try:
        try:
            raise KeyError("name")
        except KeyError:
            raise TypeError("not a name")  # noqa: B904
    except TypeError as error:
        return error


def hidden() -> BaseException:
    """An exception raised `from None`."""
    try:
        try:
            raise KeyError("name")
        except KeyError:
            raise TypeError("not a name") from None
    except TypeError as error:
        return error


def in_a_circle() -> Exception:
    """Two exceptions that cause each other."""
    first, second = ValueError("first"), ValueError("second")
    first.__cause__, second.__cause__ = second, first
    return first


def caused(error: Exception, cause: BaseException) -> Exception:
    """An exception that was raised from another one."""
    error.__cause__ = cause
    return error


def group_of_what_it_handled() -> BaseException:
    """A group that was raised while its only member was handled."""
    try:
        try:
            raise KeyError("name")
        except KeyError as error:
            raise ExceptionGroup("one failed", [error])  # noqa: B904
    except ExceptionGroup as group:
        return group


@pytest.mark.parametrize(
    ("error", "text"),
    [
        pytest.param(ValueError("plain"), "ValueError: plain", id="alone"),
        pytest.param(
            wrapped(),
            "RuntimeError: import failed; caused by ValueError: no row; caused by OSError: disk full",
            id="from",
        ),
        pytest.param(
            while_handling(), "TypeError: not a name; raised while handling KeyError: 'name'", id="while handling"
        ),
        pytest.param(hidden(), "TypeError: not a name", id="from None"),
        pytest.param(
            ExceptionGroup("two failed", [ValueError("bad row"), OSError("disk full")]),
            "ExceptionGroup: two failed (2 sub-exceptions); first: ValueError: bad row",
            id="group",
        ),
        pytest.param(
            ExceptionGroup("outer", [ExceptionGroup("inner", [wrapped()])]),
            "ExceptionGroup: outer (1 sub-exception); first: ExceptionGroup: inner (1 sub-exception); "
            "first: RuntimeError: import failed; caused by ValueError: no row; caused by OSError: disk full",
            id="groups and causes",
        ),
        pytest.param(
            caused(ExceptionGroup("two failed", [wrapped(), OSError()]), ZeroDivisionError("by zero")),
            "ExceptionGroup: two failed (2 sub-exceptions); first: RuntimeError: import failed; "
            "caused by ValueError: no row; caused by OSError: disk full; "
            "the group caused by ZeroDivisionError: by zero",
            id="group with a cause",
        ),
        pytest.param(
            caused(
                ExceptionGroup("outer", [caused(ExceptionGroup("inner", [in_a_circle()]), KeyError("inner's"))]),
                caused(ZeroDivisionError("outer's"), OSError("disk full")),
            ),
            "ExceptionGroup: outer (1 sub-exception); first: ExceptionGroup: inner (1 sub-exception); "
            "first: ValueError: first; caused by ValueError: second; "
            "the group caused by ZeroDivisionError: outer's; caused by OSError: disk full; "
            'the group caused by KeyError: "inner\'s"',
            id="groups with causes",
        ),
        pytest.param(
            group_of_what_it_handled(),
            "ExceptionGroup: one failed (1 sub-exception); first: KeyError: 'name'",
            id="group of what was handled",
        ),
        pytest.param(in_a_circle(), "ValueError: first; caused by ValueError: second", id="circle"),
    ],
)
def test_the_text_goes_on_to_the_first_of_a_group_and_along_the_causes(error: BaseException, text: str) -> None:
    """The text for tables and events says why it failed, not only that it did."""
    assert error_text(error) == text


def test_a_traceback_has_causes_and_members_and_no_frames_of_duly() -> None:
    """As Python would print it, but for the frames that tell a reader nothing."""
    error = raised(ExceptionGroup("two failed", [wrapped(), raised(OSError("disk full"))]))
    text = traceback_text(error)
    assert text == "".join(traceback.format_exception(error)).rstrip("\n")
    for part in ('raise OSError("disk full")', "direct cause", "RuntimeError: import failed", "| OSError: disk full"):
        assert part in text


def test_of_a_long_traceback_the_end_is_kept() -> None:
    """The innermost frames and the message stand there; whole lines, at most 8 KiB, whatever is in them."""

    def deeper(left: int) -> None:
        if left:
            deeper(left - 1)
        raise ValueError("ä" * 100 + "\0\udc80 the end")

    with pytest.raises(ValueError, match="the end") as caught:
        deeper(900)
    text = traceback_text(caught.value)
    assert text.endswith("\\0\\udc80 the end")
    assert len(text.encode()) <= TRACEBACK_BYTES_MAX
    noted = ValueError("what it is about")
    noted.add_note("\n".join(f"line {number} ä" for number in range(5_000)))
    long = traceback_text(noted)
    assert TRACEBACK_BYTES_MAX - 100 < len(long.encode()) <= TRACEBACK_BYTES_MAX
    assert long.splitlines()[0] == "…"
    assert long.splitlines()[1].startswith("line ")
    assert long.endswith("line 4999 ä")


@pytest.mark.parametrize("between", [" ", "\n"])
def test_a_long_message_loses_its_middle_and_no_frame(between: str) -> None:
    """One of a statement with thousands of values, say, in one line or in many."""
    message = "begin ä " + between.join(f"value {number} ä" for number in range(5_000)) + " end ä"
    for error in (ValueError(message), ExceptionGroup("two failed", [raised(ValueError(message)), OSError()])):
        text = traceback_text(raised(error))
        assert "in raised" in text
        assert "ValueError: begin ä value 0 ä" in text
        assert "…" in text
        assert "value 2500 ä" not in text
        assert "value 4999 ä end ä" in text
        assert len(text.encode()) < 3_000


def test_an_exception_that_cannot_be_put_into_words_has_its_class() -> None:
    """SPEC 3.11: a callback that raises anything has failed, and its end is recorded."""
    assert "UnspeakableError" in error_text(UnspeakableError())
    assert "UnspeakableError" in traceback_text(UnspeakableError())


def chain(length: int) -> Exception:
    """An exception with a chain of causes."""
    error = Exception("0")
    for number in range(1, length):
        following = Exception(str(number))
        following.__cause__ = error
        error = following
    return error


@pytest.mark.parametrize(("length", "named"), [(9, 9), (10, 10), (11, 10), (50, 10)])
def test_a_chain_of_causes_is_named_up_to_the_tenth(length: int, named: int) -> None:
    """A chain may be as long as somebody's loop of retries."""
    assert len(error_text(chain(length)).split("; caused by ")) == named


def test_frames_of_duly_are_left_out_of_causes_and_members_too() -> None:
    """They say nothing about a callback that calls duly and wraps what that raises."""

    def refused() -> Exception:
        try:
            duly.parse_cron("at noon")
        except duly.DulyError as error:
            return error
        raise AssertionError

    caused = RuntimeError("no schedule")
    caused.__cause__ = refused()
    handled = RuntimeError("no schedule")
    handled.__context__ = refused()
    for error in (caused, handled, ExceptionGroup("two", [refused()])):
        text = traceback_text(raised(error))
        assert "test_failure.py" in text
        assert "InvalidCronExpressionError" in text
        assert os.path.join("duly", "core") not in text


def test_an_exception_that_cannot_be_formatted_is_named() -> None:
    """A failure is recorded whatever it is made of."""

    class OddError(Exception):
        @property
        def __notes__(self) -> list[str]:  # type: ignore[override]
            raise RuntimeError("no notes")

    assert "OddError" in error_text(OddError("odd"))
    assert "OddError" in traceback_text(raised(OddError("odd")))


@pytest.mark.parametrize("hidden", [False, True])
def test_what_was_being_handled_is_named_unless_it_was_hidden(hidden: bool) -> None:
    """`raise ... from None` says that it has nothing to do with it."""
    error = RuntimeError("import failed")
    error.__context__ = KeyError("row")
    error.__suppress_context__ = hidden
    expected = "RuntimeError: import failed"
    assert error_text(error) == expected + ("" if hidden else "; raised while handling KeyError: 'row'")


def test_a_text_has_at_most_four_kibibytes_and_a_traceback_eight() -> None:
    """Failures are kept by the thousand; of a traceback that is too long the end is kept, in whole lines."""
    assert len(error_text(Exception("x" * 10_000))) == 4_096

    def noted(end: str) -> Exception:
        error = Exception("x" * (99 - len("Exception: ")))
        error.add_note("\n".join(["x" * 99] * 80) + "\n" + end)
        return error

    exact = traceback_text(noted("y" * (8_192 - 81 * 100)))
    assert len(exact) == 8_192
    assert exact.startswith("Exception: xxx")
    cut = traceback_text(noted("y" * (8_192 - 81 * 100 + 1)))
    assert cut.startswith("…\n" + "x" * 99 + "\n")
    assert cut.endswith("yy")
    assert 8_000 < len(cut.encode()) <= 8_192


def test_of_a_deep_recursion_the_last_fifty_frames_are_kept() -> None:
    """They show where it ended."""

    def deeper(left: int) -> None:
        if not left:
            raise ValueError("deep enough")
        deeper(left - 1)

    try:
        deeper(150)
    except ValueError as error:
        shown = own_frames_left_out(error, TRACEBACK_FRAMES_MAX)
        assert TRACEBACK_FRAMES_MAX == len(shown.stack) == 50
        assert shown.stack[-1].line == 'raise ValueError("deep enough")'
