"""Search: every kind of query in every script, filters and hidden rows."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from session_core import InvalidInput, NotFound, StateDatabase
from tests.contract.engines import ForeignWriter, require_column
from tests.contract.searching import add_message_text, list_message_ids, search_message_ids

CALL = [{"id": "c1", "type": "function", "function": {"name": "run_query"}}]


@pytest.mark.requirement("search:queries")
@pytest.mark.parametrize(
    ("text", "query"),
    [
        ("the migration of the ledger", "ledger"),
        ("the migration of the ledger", "LEDGER migration"),
        ("the migration of the ledger", '"of the ledger"'),
        ("the migration of the ledger", "migr*"),
        ("the migration of the ledger", "ledger AND migration"),
        ("the migration of the ledger", "nothing OR ledger"),
        ("the migration of the ledger", "ledger NOT nothing"),
        ("the migration of the ledger", "(nothing OR ledger) AND migration"),
        ("the migration of the ledger", "ledg* AND (migration OR nothing) NOT (cat OR dog)"),
        ("see foo_bar.baz for it", "foo_bar.baz"),
        ("request a1b2-c3 failed", "a1b2-c3"),
        ("request a1b2-c3 failed", "a1b2-c*"),
        ("in src/app/main.py line 7", "src/app/main.py"),
        ("数据库架构的决定是什么", "架构"),
        ("数据库架构的决定是什么", "库"),
        ("数据库架构的决定是什么", "数据库架构"),
        ("数据库架构的决定是什么", "什么"),
        ("使用python开发数据库", "python"),
        ("使用python开发数据库", "python 数据"),
        ("データベースを移行する", "移行"),
        ("데이터베이스 마이그레이션", "마이"),
        ("서버에서 확인", "서버"),
        ("ในประเทศไทยมีงาน", "ประเทศ"),
        ("हिन्दी भाषा में", "हिन्दी"),
        ("قاعدة البيانات جاهزة", "البيانات"),
        ("проверь миграцию базы", "Миграцию"),
        ("Tiếng Việt rất hay", "việt"),
        ("un café noir", "cafe"),
        ("un cafe noir", "CAFÉ"),
        ("ship it 🚀 now", "🚀"),
        ("𠀀𠀁 rare ones", "𠀁"),
        ("Straße und Ärger", "ärger"),
    ],
)
def test_search_finds_text_by_query(db: StateDatabase, text: str, query: str) -> None:
    message_id = add_message_text(db, "one", text)
    add_message_text(db, "two", "entirely different talk")
    result = db.search(query)
    assert list_message_ids(result) == [message_id]
    assert result.matched in ("all", "text")


@pytest.mark.parametrize(
    ("text", "query"),
    [
        ("concatenate", "cat"),
        ("alpha beta", '"beta alpha"'),
        ("alpha beta", "alpha NOT beta"),
        ("alpha beta", "alpha AND gamma"),
        ("数据和库", '"数据库"'),
        ("abc def", '"abc de"'),
    ],
)
def test_search_syntax_query_finds_exact_matches(db: StateDatabase, text: str, query: str) -> None:
    add_message_text(db, "one", text)
    assert db.search(query if query != "cat" else '"cat"').hits == []


@pytest.mark.requirement("search:parts")
@pytest.mark.parametrize("query", ["大阪", "大", "tokyo", '"line two"', "two", "größe", "Привет"])
def test_search_finds_multi_part_content_by_text(db: StateDatabase, query: str) -> None:
    parts = [
        {"type": "text", "text": "plan for 大阪\nline\ntwo Größe, привет"},
        {"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA"}},
        {"type": "text", "text": "then Tokyo"},
    ]
    message_id = add_message_text(db, "one", parts)
    if query == '"line two"':
        query = '"line" "two"'
    assert list_message_ids(db.search(query)) == [message_id]


@pytest.mark.requirement("search:parts")
@pytest.mark.parametrize("query", ["image_url", "base64", "type", "json"])
def test_search_ignores_content_encoding(db: StateDatabase, query: str) -> None:
    parts = [
        {"type": "text", "text": "hello"},
        {"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA"}},
    ]
    add_message_text(db, "one", parts)
    assert db.search(f'"{query}"').hits == []


def test_search_finds_tool_result_by_tool_name(db: StateDatabase) -> None:
    message_id = add_message_text(db, "one", "ok", "tool", tool_name="terminal_runner")
    assert list_message_ids(db.search("terminal_runner")) == [message_id]


@pytest.mark.requirement("search:queries")
@pytest.mark.parametrize("needle", ["gration of", "GRATION", "t_id=7", "r.b", "据库", "的", "(x)"])
def test_search_finds_substring_anywhere(db: StateDatabase, needle: str) -> None:
    message_id = add_message_text(db, "one", "migration of user.baz where t_id=7 (x) 数据库的")
    add_message_text(db, "two", "nothing of the kind")
    result = db.search(needle, mode="substring")
    assert (list_message_ids(result), result.matched) == ([message_id], "substring")


def test_search_treats_sql_wildcards_as_text(db: StateDatabase) -> None:
    add_message_text(db, "one", "plain text")
    message_id = add_message_text(db, "two", "100% sure_thing")
    assert search_message_ids(db, "0% s", mode="substring") == {message_id}
    assert search_message_ids(db, "%", mode="substring") == {message_id}
    assert search_message_ids(db, "_", mode="substring") == {message_id}


@pytest.mark.requirement("search:syntax")
@pytest.mark.parametrize(
    "query",
    ['"unbalanced ledger', "AND ledger", "ledger AND", "NOT ledger", "ledger OR", "((ledger OR",
     "ledger AND OR x", "ledger) AND x", "NEAR(ledger", "ledger^2", "-ledger", "{ledger}",
     "+ledger", "col:ledger", "ledger:", "^ledger", "'ledger", 'le"dger" ledger', "ledger --",
     "* ledger"],
)  # fmt: skip
def test_search_treats_bad_syntax_as_text(db: StateDatabase, query: str) -> None:
    message_id = add_message_text(db, "one", "the ledger is here")
    assert list_message_ids(db.search(query)) == [message_id]


def test_search_reports_unparsed_query(db: StateDatabase) -> None:
    add_message_text(db, "one", "ledger and more")
    assert db.search("ledger AND").matched == "text"


@pytest.mark.parametrize("query", ["->", "***", "…", "¯\\_(ツ)_/¯"])
def test_search_finds_punctuation_literally(db: StateDatabase, query: str) -> None:
    message_id = add_message_text(db, "one", f"before {query} after")
    add_message_text(db, "two", "none of them")
    assert list_message_ids(db.search(query)) == [message_id]


@pytest.mark.parametrize("query", ["", "   ", "\x00", "\n\t"])
def test_search_empty_query_finds_no_hits(db: StateDatabase, query: str) -> None:
    add_message_text(db, "one", "text")
    assert db.search(query).hits == []
    assert db.search(query, mode="substring").hits == []


@pytest.mark.requirement("search:filters")
def test_search_filters_by_source_role_time_session(db: StateDatabase) -> None:
    db.create_session("a", "cli")
    db.create_session("b", "telegram")
    first = add_message_text(db, "a", "common word", timestamp=100.0)
    second = add_message_text(db, "a", "common word", "assistant", timestamp=200.0)
    third = add_message_text(db, "b", "common word", timestamp=300.0)
    assert search_message_ids(db, "common") == {first, second, third}
    assert search_message_ids(db, "common", source=["telegram"]) == {third}
    assert search_message_ids(db, "common", source=["cli", "telegram"]) == {first, second, third}
    assert search_message_ids(db, "common", roles=["assistant"]) == {second}
    assert search_message_ids(db, "common", since=200.0) == {second, third}
    assert search_message_ids(db, "common", until=200.0) == {first}
    assert search_message_ids(db, "common", since=150.0, until=250.0) == {second}
    assert search_message_ids(db, "common", session="a") == {first, second}
    assert search_message_ids(db, "common", session="b", source=["cli"]) == set()


@pytest.mark.requirement("search:filters")
def test_search_filters_by_project(db: StateDatabase) -> None:
    for name, cwd in (("a", "/srv/app"), ("b", "/srv/app/lib"), ("c", "/srv/apples"), ("d", None)):
        db.create_session(name, "cli", cwd=cwd)
        add_message_text(db, name, "common word")
    result = db.search("common", project="/srv/app/")
    assert {hit.session_id for hit in result.hits} == {"a", "b"}


def test_search_filters_by_status(db: StateDatabase) -> None:
    for name in ("open", "ended", "archived"):
        add_message_text(db, name, "common word")
    db.end_session("ended", "cli_close")
    db.set_session_archived("archived", archived=True)

    def named(status: str | None) -> set[str]:
        return {hit.session_id for hit in db.search("common", status=status).hits}

    assert named(None) == {"open", "ended"}
    assert named("open") == {"open"}
    assert named("ended") == {"ended"}
    assert named("archived") == {"archived"}
    assert named("all") == {"open", "ended", "archived"}


def test_search_status_filter_uses_conversation_tip(db: StateDatabase) -> None:
    add_message_text(db, "root", "ledger first")
    db.end_session("root", "compression")
    db.create_session("tip", "cli", parent_session_id="root")
    assert len(db.search("ledger", status="open").hits) == 1
    assert db.search("ledger", status="ended").hits == []


def test_search_returns_single_hit_per_conversation(db: StateDatabase) -> None:
    root = add_message_text(db, "root", "ledger of old")
    db.end_session("root", "compression")
    db.create_session("tip", "cli", parent_session_id="root")
    tip = add_message_text(db, "tip", "ledger ledger ledger")
    db.create_session("branch", "cli", parent_session_id="root",
                      model_config={"_branched_from": "root"})  # fmt: skip
    branch = add_message_text(db, "branch", "ledger of a branch")
    assert search_message_ids(db, "ledger") == {root, tip, branch}
    assert len(db.search("ledger").hits) == 2
    assert branch in list_message_ids(db.search("ledger"))


def test_search_hit_reports_location_and_match(db: StateDatabase) -> None:
    db.create_session("a", "telegram")
    db.set_session_title("a", "Money")
    long = "filler words here " * 40
    message_id = add_message_text(db, "a", f"{long} the ledger is balanced {long}", timestamp=50.0)
    (hit,) = db.search("ledger").hits
    assert (hit.session_id, hit.message_id, hit.role, hit.at) == ("a", message_id, "user", 50.0)
    assert (hit.title, hit.source, hit.compacted) == ("Money", "telegram", False)
    assert "the ledger is balanced" in hit.snippet
    assert len(hit.snippet) <= 210


@pytest.mark.requirement("search:flags")
def test_search_never_finds_rewound_messages(db: StateDatabase) -> None:
    add_message_text(db, "a", "first")
    second = add_message_text(db, "a", "ledger 数据库 part")
    db.rewind_to_message("a", second)
    for query in ("ledger", "数据", "led*", "part something"):
        assert db.search(query).hits == []
    assert db.search("edge", mode="substring").hits == []
    db.restore_rewound("a", second)
    assert list_message_ids(db.search("ledger")) == [second]


@pytest.mark.schemas(16, 30)
@pytest.mark.requirement("search:flags")
def test_search_finds_compacted_messages_once(db: StateDatabase) -> None:
    old = add_message_text(db, "a", "ledger gone", timestamp=1.0)
    add_message_text(db, "a", "ledger carried", timestamp=2.0)
    carried = {"role": "user", "content": "ledger carried", "timestamp": 2.0}
    summary = {"role": "user", "content": "a summary", "timestamp": 3.0}
    with require_column(db, "compacted"):
        copies = db.archive_and_compact("a", [summary, carried]).ids
        result = db.search("ledger", per="message")
        assert {(hit.message_id, hit.compacted) for hit in result.hits} == {
            (old, True),
            (copies[1], False),
        }


@pytest.mark.schemas(16, 30)
def test_search_hit_prefers_live_copy(db: StateDatabase) -> None:
    carried = {"role": "user", "content": "ledger carried", "timestamp": 2.0}
    add_message_text(db, "a", "ledger carried", timestamp=2.0)
    with require_column(db, "compacted"):
        (copy,) = db.archive_and_compact("a", [carried]).ids
        (hit,) = db.search("ledger").hits
        assert (hit.message_id, hit.compacted) == (copy, False)


def test_search_ignores_deleted_messages(db: StateDatabase) -> None:
    add_message_text(db, "a", "ledger")
    kept = add_message_text(db, "b", "ledger")
    db.delete_session("a")
    assert search_message_ids(db, "ledger") == {kept}


def test_search_finds_commits_of_different_instance(
    db: StateDatabase, other: StateDatabase
) -> None:
    assert other.search("ledger").hits == []
    first = add_message_text(db, "a", "ledger")
    assert search_message_ids(other, "ledger") == {first}
    second = add_message_text(db, "a", "ledger again")
    assert search_message_ids(other, "ledger") == {first, second}


def test_search_inside_transaction_follows_rollback(
    db: StateDatabase,
) -> None:
    add_message_text(db, "a", "something")

    def fail() -> None:
        with db.transaction():
            add_message_text(db, "a", "ledger")
            assert len(db.search("ledger").hits) == 1
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail()
    assert db.search("ledger").hits == []
    other = add_message_text(db, "a", "cashbook")
    assert db.search("ledger").hits == []
    assert search_message_ids(db, "cashbook") == {other}


@pytest.mark.parametrize(
    "options", [{"mode": "fuzzy"}, {"per": "word"}, {"limit": 0}, {"status": "lost"}]
)
def test_search_rejects_unknown_option(db: StateDatabase, options: Any) -> None:
    with pytest.raises(InvalidInput):
        db.search("ledger", **options)


def test_search_of_unknown_session_raises_not_found(db: StateDatabase) -> None:
    with pytest.raises(NotFound):
        db.search("ledger", session="nobody")


TYPED = st.text(max_size=60) | st.lists(
    st.sampled_from(
        ['"', "(", ")", "*", "AND", "OR", "NOT", "NEAR(", "col:", "a", "数据", "数", "🚀", "\x00",
         "\ud800", "-", "_", ".", " ", "x" * 300, "'", "\\", "%", "^", "{", "é", "שלום", "\u202e"]
    ),
    max_size=12,
).map("".join)  # fmt: skip


@pytest.mark.requirement("search:syntax")
@settings(
    max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(typed=TYPED)
def test_search_accepts_any_query_text(db: StateDatabase, typed: str) -> None:
    if not db.message_count():
        add_message_text(db, "one", "a 数据 🚀 x שלום")
        add_message_text(db, "one", [{"type": "text", "text": "é 数据"}])
    db.search(typed)
    db.search(typed, mode="substring", per="message")


PRINTED = st.characters(exclude_categories=["Cc", "Cs"])


@settings(
    max_examples=50, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(text=st.text(PRINTED, min_size=1, max_size=80), multi=st.booleans(), data=st.data())
def test_search_finds_message_by_any_word(
    db: StateDatabase, text: str, multi: bool, data: st.DataObject
) -> None:
    words = [word for word in text.replace('"', " ").split() if any(map(str.isalnum, word))]
    message_id = add_message_text(db, "one", [{"type": "text", "text": text}] if multi else text)
    if words:
        word = data.draw(st.sampled_from(words))
        result = db.search(f'"{word}"', per="message", limit=100)
        assert message_id in list_message_ids(result), result


def test_search_respects_foreign_flag_changes(db: StateDatabase, foreign: ForeignWriter) -> None:
    message_id = add_message_text(db, "one", "ledger")
    assert search_message_ids(db, "ledger") == {message_id}
    foreign.update_rows("messages", {"id": message_id}, active=0)
    assert db.search("ledger").hits == []


def test_search_rejects_string_as_filter_list(db: StateDatabase) -> None:
    with pytest.raises(InvalidInput):
        db.search("word", source="cli")
    with pytest.raises(InvalidInput):
        db.search("word", roles="user")


def test_search_finds_messages_of_named_archived_session(db: StateDatabase) -> None:
    db.append_message("a", "user", "a wombat", create={"source": "cli"})
    db.set_session_archived("a", archived=True)
    assert db.search("wombat").hits == []
    assert len(db.search("wombat", session="a").hits) == 1
    assert db.search("wombat", session="a", status="open").hits == []


@pytest.mark.requirement("search:filters")
@pytest.mark.parametrize(
    "query", ["apples -pears", "apples lemons -pears", "which apples are sweet? -pears"]
)
def test_search_excludes_words_after_minus(db: StateDatabase, query: str) -> None:
    kept = add_message_text(db, "one", "apples are sweet")
    add_message_text(db, "two", "apples and pears are sweet")
    assert list_message_ids(db.search(query)) == [kept]


@pytest.mark.requirement("search:filters")
def test_search_filters_by_tool(db: StateDatabase) -> None:
    call = {"id": "1", "function": {"name": "Read", "arguments": "{}"}}
    called = add_message_text(db, "s", "ledger", "assistant", tool_calls=[call])
    answered = add_message_text(db, "s", "ledger", "tool", tool_name="read")
    add_message_text(db, "s", "ledger", "tool", tool_name="write")
    add_message_text(db, "s", "ledger read")
    assert search_message_ids(db, "ledger", tool="READ") == {called, answered}


@pytest.mark.requirement("search:filters")
def test_search_leaves_out_excluded_sources(db: StateDatabase) -> None:
    kept = add_message_text(db, "one", "ledger")
    db.append_message("two", "user", "ledger", create={"source": "telegram"})
    assert search_message_ids(db, "ledger", exclude_source=["telegram", "slack"]) == {kept}


@pytest.mark.requirement("search:filters")
def test_search_roles_ignore_case(db: StateDatabase) -> None:
    kept = add_message_text(db, "one", "ledger", "assistant")
    add_message_text(db, "one", "ledger")
    assert search_message_ids(db, "ledger", roles=["Assistant"]) == {kept}
