"""What the library returns and raises can be copied, and sent to another process."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Callable
from typing import Any

import pytest

from session_core import Appended, Busy, NotFound, Revision, TitleTaken

COPIES: dict[str, Callable[[Any], Any]] = {
    "copy": copy.copy,
    "deepcopy": copy.deepcopy,
    **{
        f"pickle {protocol}": lambda value, protocol=protocol: pickle.loads(  # noqa: S301 -- ours
            pickle.dumps(value, protocol)
        )
        for protocol in range(pickle.HIGHEST_PROTOCOL + 1)
    },
}


@pytest.mark.parametrize("copied", COPIES.values(), ids=COPIES)
def test_an_id_keeps_its_revisions_when_it_is_copied(copied: Callable[[Any], Any]) -> None:
    before, after = Revision(0, 0, 0, 0, None), Revision(7, 1, 0, 0, None)
    again = copied(Appended(7, before, after))
    assert (type(again), again, again.before, again.after) == (Appended, 7, before, after)


@pytest.mark.parametrize("copied", COPIES.values(), ids=COPIES)
def test_an_error_keeps_what_it_says_when_it_is_copied(copied: Callable[[Any], Any]) -> None:
    for error in (
        TitleTaken("Trip", "s"),
        Busy("held", holders=["hermes (pid 7)"]),
        NotFound("no session s", nearest=["t"]),
    ):
        again = copied(error)
        assert (type(again), str(again), vars(again)) == (type(error), str(error), vars(error))
