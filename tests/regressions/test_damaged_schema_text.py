"""A flipped bit in the text of the schema led to a UnicodeDecodeError.

SQLite's message about a malformed schema quotes it, and the sqlite3 module cannot decode the quotation.
"""

import asyncio
import random
from datetime import timedelta
from pathlib import Path

import duly


async def _nothing() -> None:
    pass


async def _start(store: Path) -> None:
    scheduler = duly.Scheduler(store)
    await scheduler.initialize([("a", "0 0 1 1 *", _nothing, timedelta(hours=1))])
    await scheduler.stop()


def test_every_highest_bit_of_the_schemas_text_is_damage_in_our_words(tmp_path: Path) -> None:
    """SPEC 5.5: either refused as damaged, with the file unchanged, or the bit makes no difference."""
    store = tmp_path / "state.db"
    asyncio.run(_start(store))
    sound = store.read_bytes()
    first = sound.index(b"CREATE TABLE")
    refused = 0
    for position in random.Random(0).sample(range(first, 4096), 150):
        damaged = bytearray(sound)
        damaged[position] ^= 0x80
        store.write_bytes(damaged)
        try:
            asyncio.run(_start(store))
        except duly.DulyError:
            refused += 1
            assert store.read_bytes() == damaged
    assert refused > 75
