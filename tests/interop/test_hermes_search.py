"""Our search finds the same as Hermes, except for the documented corrections."""

from __future__ import annotations

import json
import random
import re

import pytest

from tests.interop.expected_results import Rows, our_ids, their_ids
from tests.interop.hermes import Hermes

WORDS = (
    "deploy", "Deployed revision", '"revision 4711"', "deploy*", "revis*", "zebra AND step",
    "zebra OR okapi", "zebra NOT step", "foo_bar.baz", "a1b2-c3", "make deploy_all", "terminal",
    "ÅNGSTRÖM", "angstrom", "naive", "größe", "café", "marmot", "lemurs", "hotel Lisbon",
    "said twice", '"said twice"', "bytes", "4711",
)  # fmt: skip

SCRIPTS = (
    "Миграция", "миграцию базы", "البيانات", "قاعدة البيانات", "데이터베이스", "마이그레이션이",
    "数据库架构", "事件日志", "データベース", "東京リージョン", "データベースを移行",
)  # fmt: skip

SHORT = ("数据", "移行", "东", "库", "끝", "日志 已经")

BROKEN = (
    '"unbalanced deploy', "deploy AND", "deploy (", "(deploy", "deploy: now", "* deploy",
    "AND deploy", "deploy^2", "NEAR(deploy", "{deploy}", "deploy +", "de'ploy deploy",
)  # fmt: skip


@pytest.fixture
def stored(theirs: Hermes) -> Rows:
    return Rows(theirs)


@pytest.mark.requirement("interop:search")
def test_query_syntax_results_match_hermes(theirs, ours, stored):
    wrong = {}
    for query in WORDS:
        found, expected = our_ids(ours, query), their_ids(theirs, query)
        if stored.said(found) != stored.said(expected):
            wrong[query] = (stored.said(found) ^ stored.said(expected), len(found), len(expected))
    assert wrong == {}
    assert len(WORDS) > 20


def test_random_query_results_match_hermes(theirs, ours, stored):
    """Queries come from prose. The syntax of JSON counts as words in Hermes only."""
    chance = random.Random(theirs.version)
    texts = [stored.text(row) for row in stored.by_id.values() if stored.is_prose(row)]
    for _ in range(100):
        query = make_random_query(chance, texts)
        found, expected = our_ids(ours, query), their_ids(theirs, query)
        if expected or ours.search(query, status="all").matched == "all":
            assert stored.said(found) == stored.said(expected), query


def make_random_query(chance: random.Random, texts: list[str]) -> str:
    """Return words, phrases and prefixes from the texts, some with an operator."""

    def atom() -> str:
        words = re.findall(r"[a-z]{4,20}", chance.choice(texts))
        at = chance.randrange(len(words))
        phrase = " ".join(words[at : at + chance.randint(2, 3)])
        return chance.choice([words[at], f'"{phrase}"', f"{words[at][:4]}*"])

    return chance.choice(["{}", "{} {}", "{} AND {}", "{} OR {}", "{} NOT {}"]).format(
        atom(), atom()
    )


def test_every_script_search_matches_hermes(theirs, ours, stored):
    for query in SCRIPTS:
        expected = [one for one in their_ids(theirs, query) if stored.shown(one)]
        ids = our_ids(ours, query)
        assert expected, query
        assert stored.said(ids) == stored.said(expected), query


def test_short_query_results_match_hermes(theirs, ours, stored):
    for query in SHORT:
        words = query.split()
        ids = our_ids(ours, query)
        # Hermes joins the words with OR, finds rewound messages and no text in parts.
        assert stored.said(ids) == stored.said(stored.with_all(*words)), query
        if len(words) == 1:
            shown = {one for one in their_ids(theirs, query) if stored.shown(one)}
            assert stored.said(shown) <= stored.said(ids), query


def test_rewound_message_is_found_only_by_hermes(theirs, ours, stored):
    assert not all(stored.shown(one) for one in their_ids(theirs, "撤回"))
    for query in ("撤回", "撤回这个数据库问题", "take the marmot back"):
        assert all(stored.shown(one) for one in our_ids(ours, query))


def test_multipart_text_is_found_in_every_script(theirs, ours, stored):
    assert stored.said(our_ids(ours, "wombat photo")) == stored.said(
        stored.with_all("wombat", "photo")
    )
    assert their_ids(theirs, "图片里有什么") == []
    assert stored.said(our_ids(ours, "图片里有什么")) == stored.said(
        stored.with_all("图片里有什么")
    )
    assert our_ids(ours, "quokka") == stored.with_all("quokka")


def test_compacted_message_is_found_once(theirs, ours, stored):
    if not theirs.has("archive_and_compact"):
        return
    query = '"all zebra steps are done"'
    copies = their_ids(theirs, query)
    assert len(copies) > 1
    assert len(stored.said(copies)) == 1
    assert len(our_ids(ours, query)) == 1


def test_invalid_query_is_searched_as_text(ours):
    assert [query for query in BROKEN if not our_ids(ours, query)] == []


def test_search_filters_match_hermes(theirs, ours, stored):
    for source in (["cli"], ["telegram", "slack"], ["nothing"]):
        expected = their_ids(theirs, "hello OR deploy OR marmot", source_filter=source)
        ids = our_ids(ours, "hello OR deploy OR marmot", source=source)
        assert stored.said(ids) == stored.said(expected), source
    for roles in (["user"], ["tool"], ["assistant", "tool"]):
        expected = their_ids(theirs, "deploy OR revision OR hello", role_filter=roles)
        ids = our_ids(ours, "deploy OR revision OR hello", roles=roles)
        assert stored.said(ids) == stored.said(expected), roles


def test_conversation_is_single_hit_with_tip(ours):
    hits = ours.search("Lisbon", per="conversation").hits
    assert [hit.session_id for hit in hits].count("chain_3") <= 1
    assert json.dumps([hit.title for hit in hits])
    assert len({hit.session_id for hit in hits}) == len(hits) == 1
