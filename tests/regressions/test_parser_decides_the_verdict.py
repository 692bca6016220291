"""The checker's idea of a trace depended on whether orjson was installed.

The standard library's json takes a lone surrogate, NaN, integers of any size and UTF-16; orjson refuses them. Both take
an object that has one name twice, and NUL in a task's name.
"""

import importlib
import io
import json

import pytest

from duly.errors import TraceError
from duly.formal import reader
from duly.formal.reader import events
from duly.formal.trace import RE, RS, Header, encode_header
from tests.conftest import require

HEADER = encode_header(Header("s"))
START = b'["RS",1,1748865600000000,"x",1,1,"cron",0]\n'


@pytest.fixture(params=["orjson", "json"], autouse=True)
def parser(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every test runs with both parsers."""
    require(request.param, 'pip install "duly[cli]"')
    loads = reader.standard_loads if request.param == "json" else importlib.import_module(request.param).loads
    monkeypatch.setattr(reader, "_loads", loads)


def refused(data: bytes) -> str:
    """The reason for which a trace is refused."""
    with pytest.raises(TraceError) as caught:
        list(events(io.BytesIO(data)))
    assert caught.value.details["fault"] == "malformed"
    return str(caught.value)


@pytest.mark.parametrize("filler", [0, 400], ids=["alone", "in a block"])
@pytest.mark.parametrize(
    ("wrong", "reason"),
    [
        (START.replace(b'"x"', b'"\\ud800"'), "not JSON"),
        (START.replace(b'"x"', b'"\\udc00\\ud800"'), "not JSON"),
        (START.replace(b'"x"', b'"\xed\xa0\x80"'), "not JSON"),
        (START.replace(b'"x"', b'"\\u0000"'), "a text contains NUL"),
        (START.replace(b'"x"', b'"a\\u0000b"'), "a text contains NUL"),
        (START.replace(b",0]", b",-4]"), "slots is a number of callbacks"),
        (START.replace(b",0]", b",NaN]"), "not JSON"),
        (START.replace(b",0]", b",Infinity]"), "not JSON"),
        (START.replace(b",1,1,", b",1,18446744073709551616,"), "run of RS is a number with a fraction or too large"),
        (START.replace(b",1,1,", b",1,-9223372036854775809,"), "run of RS is a number with a fraction or too large"),
        (START.replace(b",1,1,", b",1," + b"9" * 6_000 + b","), "Line"),
    ],
)
def test_what_one_parser_refuses_the_other_refuses(wrong: bytes, reason: str, filler: int) -> None:
    """SPEC 1.4: such names cannot be declared, and the numbers cannot be stored."""
    before = [b'["WK",%d,0,0]\n' % number for number in range(1, filler + 1)]
    line = wrong.replace(b'"RS",1,', b'"RS",%d,' % (filler + 1))
    assert reason in refused(HEADER + b"".join(before) + line)


@pytest.mark.parametrize("name", ["\U0001f600", "\\u0000", "\\ud800", "9" * 40, "ä" * 30, "\uffff", "-" + "1" * 30])
def test_names_that_look_like_it_are_read(name: str) -> None:
    """A pair of surrogates, a backslash before the letters, digits in a text."""
    text = json.dumps(name).encode()
    start, end = START.replace(b'"x"', text), b'["RE",2,1748865600000000,%s,1,1,true]\n' % text
    found = list(events(io.BytesIO(HEADER + start + end)))
    assert [event.task for event in found if isinstance(event, RS | RE)] == [name, name]


def test_the_longest_numbers_are_read() -> None:
    """64 bits, as far as orjson reads integers."""
    for number in (18446744073709551615, -9223372036854775808, 9999999999999999999):
        (found,) = events(io.BytesIO(HEADER + START.replace(b",1,1,", b",1,%d," % number)))
        assert isinstance(found, RS)
        assert found.run == number


def test_a_header_in_another_encoding_is_refused() -> None:
    """A trace is UTF-8."""
    assert "not JSON" in refused(HEADER.decode().encode("utf-16-be") + b"\n")
    assert "not JSON" in refused(b"\xef\xbb\xbf" + HEADER)


def test_an_object_has_each_name_once() -> None:
    """Which of two values counts would be the reader's choice."""
    twice = HEADER.replace(b'"segment":1', b'"segment":2,"segment":1')
    assert "it has 'segment' twice" in refused(twice)
    nested = HEADER.replace(b'"registers":null', b'"registers":{"tasks":[],"tasks":[]}')
    assert "it has 'tasks' twice" in refused(nested)
    assert "not JSON" in refused(HEADER.replace(b'"first":1', b'"first":NaN'))
    assert "not JSON" in refused(HEADER.replace(b'"s"', b'"\\ud800"'))
    assert "contains NUL" in refused(HEADER.replace(b'"s"', b'"\\u0000"'))


def test_a_hostile_line_is_refused_in_time() -> None:
    """A hundred thousand names, the last of them twice; a text with NUL beside arrays a thousand deep."""
    names = ",".join(f'"{number}":0' for number in range(100_000))
    assert "it has '7' twice" in refused(f'{{"trace":"duly",{names},"7":0}}\n'.encode())
    deep = b'["\\u0000",' + b"[" * 1_000 + b"]" * 1_000 + b"]\n"
    assert refused(HEADER + deep)
