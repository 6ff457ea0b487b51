"""A fact counts as kept or stale by its needles alone."""

from __future__ import annotations

import dataclasses

import pytest

from tests.bench.long_life.facts import PlantedFact, is_kept, is_stale

NEW_PORT = PlantedFact("K1", "correction", 1, (("8443",),), (0,), ("8080",))


@pytest.mark.parametrize(
    ("summary", "stale"),
    [
        ("The port is 8443.", False),
        ("The port is 8080.", True),
        ("The port is 8080. Later: the port is 8443.", False),
        ("The port is 8443. The port is 8080.", True),
        ("Port 8443, not 8080.", False),
        ("The port is no longer 8080.", False),
        ("It is not 8080.", False),
        ("8080 -> see below", False),
        ("Port 8443 (8080)", False),
        ("The build has number 18080.", False),
    ],
)
def test_old_value_is_stale_if_current(summary: str, stale: bool) -> None:
    assert is_stale(NEW_PORT, summary) is stale


def test_needles_ignore_case_width_and_emphasis() -> None:
    fact = dataclasses.replace(NEW_PORT, needles=(("Port \u201c8443\u201d", "/port:? 84+3/"),))
    assert is_kept(fact, 'the **PORT**  "\uff18443"')
    assert is_kept(fact, "port: 8443")
    assert not is_kept(fact, 'port "84430"')
