"""The word of a seal was outside its hash: `open` edited to `clean` changed a verdict unnoticed."""

import io
import json

import pytest

from duly.errors import TraceError
from duly.formal.checking import check
from duly.formal.properties import Value
from duly.formal.trace import Header, Writer
from tests.formal.story import story


def sealed(*, clean: bool, version: int) -> bytes:
    lines: list[bytes] = []
    writer = Writer(lines.append, Header("s", version=version))
    writer.add_all(story("IS IE Due RS REs SS SE"))
    writer.seal(clean=clean)
    return b"".join(lines)


@pytest.mark.parametrize(("word", "other"), [("open", "clean"), ("clean", "open")])
def test_a_seal_whose_word_was_edited_is_refused(word: str, other: str) -> None:
    """FORMAL A2: a clean end makes what is pending violated, so the word is evidence."""
    data = sealed(clean=word == "clean", version=2)
    value = check(io.BytesIO(data)).verdicts["S1"].value
    assert value is (Value.SATISFIED if word == "clean" else Value.HOLDING)
    with pytest.raises(TraceError, match="the seal, was changed") as refused:
        check(io.BytesIO(data.replace(word.encode(), other.encode())))
    assert refused.value.details["fault"] == "hash"


def test_a_seal_with_two_words_is_refused() -> None:
    """The last one would have counted."""
    data = sealed(clean=False, version=2).replace(b'{"seal":"open"', b'{"seal":"clean","seal":"open"')
    with pytest.raises(TraceError, match="it has 'seal' twice"):
        check(io.BytesIO(data))


def test_the_word_of_an_older_seal_is_taken_as_it_is() -> None:
    """Version 1 did not hash it; what was written then can still be read."""
    data = sealed(clean=False, version=1)
    assert json.loads(data.splitlines()[0])["version"] == 1
    assert not check(io.BytesIO(data)).ended
    assert check(io.BytesIO(data.replace(b'"seal":"open"', b'"seal":"clean"'))).ended
