"""Trash as bytes: every value survives, and damage is detected."""

from __future__ import annotations

import random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from session_core.errors import Corrupt
from session_core.ledger.codec import PIECE_BYTES, pack_trash, unpack_trash
from session_core.ledger.types import TrashItem

VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False)
    | st.text()
    | st.binary()
    | st.sampled_from(["$bytes", "$", "\ud800", "\x00json:[]"]),
    lambda inner: (
        st.lists(inner)
        | st.dictionaries(st.text() | st.sampled_from(["$bytes", "$$bytes", "$"]), inner)
    ),
    max_leaves=8,
)


@pytest.mark.requirement("ledger:packing")
@given(st.lists(st.builds(TrashItem, st.text(), VALUES), max_size=6))
def test_trash_round_trips(kept: list[TrashItem]) -> None:
    items = list(unpack_trash(list(pack_trash(kept))))
    assert items == kept
    assert repr(items) == repr(kept)


@pytest.mark.requirement("ledger:packing")
@pytest.mark.parametrize("at", [50_000, 300_001, 650_002])
def test_damaged_trash_is_never_returned(at: int) -> None:
    kept = [TrashItem("row", random.Random(number).randbytes(100_000)) for number in range(24)]
    first, *rest = pack_trash(kept)
    damaged = first[:at] + bytes([first[at] ^ 255]) + first[at + 1 :]
    items: list[TrashItem] = []
    with pytest.raises(Corrupt):
        items.extend(unpack_trash([damaged, *rest]))
    assert items == kept[: len(items)]


def test_empty_trash_has_no_pieces() -> None:
    assert list(pack_trash([])) == []
    assert list(unpack_trash([])) == []


def test_large_trash_is_packed_in_pieces() -> None:
    noise = random.Random(1)
    seen: list[int] = []

    def kept() -> Any:
        for number in range(64):
            seen.append(number)
            yield TrashItem("file", {"number": number, "bytes": noise.randbytes(100_000)})

    pieces = pack_trash(kept())
    first = next(pieces)
    assert len(first) == PIECE_BYTES
    assert len(seen) < 20
    items = unpack_trash([first, *pieces])
    assert [item.value["number"] for item in items] == list(range(64))


def test_item_can_exceed_piece_size() -> None:
    large = [
        TrashItem("row", {"text": random.Random(2).randbytes(5 << 20)}),
        TrashItem("row", "x" * (9 << 20)),
    ]
    pieces = list(pack_trash(large))
    assert all(len(piece) <= PIECE_BYTES for piece in pieces[:-1])
    assert list(unpack_trash(pieces)) == large


@pytest.mark.parametrize("harm", ["cut", "missing", "flipped", "foreign"])
def test_damage_raises_corrupt(harm: str) -> None:
    pieces = list(
        pack_trash(TrashItem("row", random.Random(n).randbytes(300_000)) for n in range(9))
    )
    if harm == "cut":
        pieces[-1] = pieces[-1][:-4]
    elif harm == "missing":
        del pieces[1]
    elif harm == "flipped":
        pieces[1] = pieces[1][:500] + bytes([pieces[1][500] ^ 255]) + pieces[1][501:]
    else:
        pieces = [b"something else"]
    with pytest.raises(Corrupt, match="damaged"):
        list(unpack_trash(pieces))
