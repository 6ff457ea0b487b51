"""Random questions to a real Hermes and to our library about one random home.

Every difference must have one of the `REASONS`, which docs/hermes-differences.md describes.
"""

from __future__ import annotations

import random
import re
from collections import Counter
from collections.abc import Callable, Iterable
from functools import cached_property
from typing import Any

from session_core.state.sqlite.session_db import SessionDB
from session_core.types import SessionFilter, SessionSummary
from tests.interop.expected_results import Rows, our_pages, their_ids
from tests.interop.hermes import Hermes, Refused

CONVERSATION = "Filters look at the conversation"
COUNTED = "Messages are counted, not read from a counter"
UNKNOWN_LINK = "A child of an unknown kind is listed"
TIP_ACTIVITY = "A conversation is as recent as its newest session"
NEWEST_CHILD = "The tip of a conversation is never a branch or a delegate"
PATTERN = "A percent sign and an underscore are text"
FOLDER = "A continuation shows the folder of its conversation"
PREVIEW = "The preview is readable text"
REWOUND = "Rewound messages are not found"
MARKUP = "Markup is not text"
PARTS = "Text in parts is found in every script"
SHORT = "Several short words in Chinese or Japanese must all occur"
LADDER = "Plain words that find nothing are loosened"
NOT_SCOPE = "NOT leaves out only the next word"
OPERATORS = "Operators, phrases and prefixes work in every script"
TEXT = "A query that cannot be parsed is searched as text"
REASONS = (
    CONVERSATION, COUNTED, UNKNOWN_LINK, TIP_ACTIVITY, NEWEST_CHILD, PATTERN, FOLDER, PREVIEW,
    REWOUND, MARKUP, PARTS, SHORT, LADDER, NOT_SCOPE, OPERATORS, TEXT,
)  # fmt: skip

ALL = 1000
_CJK = re.compile(r"[\u3000-\u30ff\u3400-\u9fff\uac00-\ud7af]")
_OPERATOR = re.compile(r"\b(AND|OR|NOT)\b")
_NOT_OF_SEVERAL = re.compile(r"\bNOT (\"[^\"]*\"|[^\s\"]+) [^\s]")
_SYNTAX = re.compile(r"\b(AND|OR|NOT)\b|[\"*()]")
Options = dict[str, Any]


class Comparison:
    """The comparison of one home: matching answers and explained differences."""

    def __init__(self, theirs: Hermes, ours: SessionDB, seed: int) -> None:
        self.theirs, self.ours = theirs, ours
        self.chance = random.Random(seed)
        self.agreed = 0
        self.explained: Counter[str] = Counter()
        self.differing = 0
        self.unexplained: list[str] = []
        columns = [row[1] for row in theirs.sql("PRAGMA table_info(sessions)")]
        rows = theirs.sql("SELECT * FROM sessions")
        self.sessions = {row[0]: dict(zip(columns, row, strict=True)) for row in rows}
        self.sources = sorted({row["source"] for row in self.sessions.values()})
        self.stored = Rows(theirs)

    def ask(self, count: int) -> None:
        """Ask a number of random questions."""
        questions: list[Callable[[], None]] = [
            self._ask_list,
            self._ask_list,
            self._ask_count,
            self._ask_rows,
            self._ask_line,
            self._ask_search,
            self._ask_search,
            self._ask_search,
        ]
        if self.theirs.has("list_prune_candidates"):
            questions.append(self._ask_candidates)
        for _ in range(count):
            self.chance.choice(questions)()

    @property
    def asked(self) -> int:
        """The number of questions."""
        return self.agreed + self.differing

    @cached_property
    def _list_options(self) -> set[str]:
        return set(self.theirs.job("options", method="list_sessions_rich"))

    def _note(self, question: str, reasons: Iterable[str | None]) -> None:
        """Record a question. Without differences, both answers are equal."""
        found = set(reasons)
        if not found:
            self.agreed += 1
            return
        self.differing += 1
        if None in found:
            self.unexplained.append(question)
        self.explained.update(reason for reason in found if reason is not None)

    # -- lists ---------------------------------------------------------------------------------

    def _options(self) -> Options:
        """Return random list filters in the form of Hermes."""
        chance = self.chance
        chosen: Options = {}
        if chance.random() < 0.3:
            chosen["source"] = chance.choice(self.sources)
        elif chance.random() < 0.3:
            chosen["exclude_sources"] = chance.sample(self.sources, k=min(2, len(self.sources)))
        if chance.random() < 0.3 and "cwd_prefix" in self._list_options:
            folders = ("/srv", "/srv/app", "/srv/app/", "/home/sam", "/home", "/nowhere")
            chosen["cwd_prefix"] = chance.choice(folders)
        if chance.random() < 0.25:
            chosen["min_message_count"] = chance.randint(1, 6)
        if chance.random() < 0.3:
            chosen[chance.choice(("include_archived", "archived_only"))] = True
        return chosen

    def _where(self, options: Options) -> SessionFilter:
        """Return the same filters in our form."""
        source = options.get("source")
        sources = None if source is None else (source,)
        if "exclude_sources" in options:
            sources = tuple(set(self.sources) - set(options["exclude_sources"]))
        is_all, is_archived = options.get("include_archived"), options.get("archived_only")
        return SessionFilter(
            source=sources,
            cwd_prefix=options.get("cwd_prefix"),
            min_messages=options.get("min_message_count"),
            status="archived" if is_archived else "all" if is_all else None,
        )

    def _their_list(self, options: Options, *, recent: bool, limit: int, offset: int) -> list[Any]:
        rows: list[Any] = self.theirs.call(
            "list_sessions_rich",
            **options,
            order_by_last_active=recent,
            limit=limit,
            offset=offset,
        )
        return rows

    def _our_list(self, options: Options, *, recent: bool, most: int) -> list[SessionSummary]:
        lines: list[SessionSummary] = []
        cursor = None
        limit = self.chance.randint(3, 40)
        while len(lines) < most:
            page = self.ours.list_sessions(
                self._where(options),
                order="recent" if recent else "started",
                limit=limit,
                cursor=cursor,
            )
            lines += page.items
            cursor = page.next_cursor
            if cursor is None:
                break
        return lines[:most]

    def _ask_list(self) -> None:
        options, recent = self._options(), self.chance.random() < 0.5
        limit, offset = self.chance.choice((1, 5, 20, ALL)), self.chance.choice((0, 0, 1, 7))
        rows = self._their_list(options, recent=recent, limit=limit, offset=offset)
        lines = self._our_list(options, recent=recent, most=limit + offset)[offset:]
        same = [(row["id"], row["started_at"]) for row in rows] == [
            (line.id, line.started_at) for line in lines
        ]
        reasons = [] if same else self._explain_list(options, recent=recent)
        self._note(f"list {options} recent={recent} {limit}+{offset}", reasons)

    def _explain_list(self, options: Options, *, recent: bool) -> list[str | None]:
        rows = self._their_list(options, recent=recent, limit=ALL, offset=0)
        lines = self._our_list(options, recent=recent, most=ALL)
        their_tips = {row.get("_lineage_root_id") or row["id"]: row["id"] for row in rows}
        our_tips = {line.root_id: line.id for line in lines}
        reasons = [
            self._explain_member(root, options) for root in their_tips.keys() ^ our_tips.keys()
        ]
        common = their_tips.keys() & our_tips.keys()
        newest = NEWEST_CHILD if self.theirs.version == "0.17.0" else None
        reasons += [newest for root in common if their_tips[root] != our_tips[root]]
        their_order = [root for root in their_tips if root in common]
        our_order = [root for root in our_tips if root in common]
        if their_order != our_order:
            alone = [root for root in their_order if not self._is_chain(root)]
            same = alone == [root for root in our_order if not self._is_chain(root)]
            reasons.append(TIP_ACTIVITY if recent and same else None)
        return reasons or [None]

    def _is_chain(self, root: str) -> bool:
        return self.ours.get_compression_tip(root) != root

    def _explain_member(self, root: str, options: Options) -> str | None:
        """Return the reason why only one of two lists contains a conversation."""
        if self.ours.get_link_kind(root) == "other":
            return UNKNOWN_LINK
        tip = self.ours.get_compression_tip(root)
        if self._passes_alone(root, options) == self._passes_inherited(tip, options):
            return None
        return COUNTED if tip == root else CONVERSATION

    def _passes_alone(self, session_id: str, options: Options) -> bool:
        """Return True if a row matches filters by its own columns, as in Hermes."""
        row = self.sessions[session_id]
        return _is_selected(
            options, row["source"], row["cwd"], row["message_count"], row["archived"]
        )

    def _passes_inherited(self, session_id: str, options: Options) -> bool:
        """Return True if a row matches filters by inherited values and live messages, as we do."""
        row = self.sessions[session_id]
        lineage = self.ours.get_compression_lineage(session_id)
        above = [self.sessions[one] for one in lineage[lineage.index(session_id) :: -1]]
        sources = [one["source"] for one in above if one["source"] != "unknown"]
        folders = [one["cwd"] for one in above if one["cwd"]]
        source = sources[0] if sources else row["source"]
        folder = folders[0] if folders else None
        return _is_selected(options, source, folder, self._count_live(session_id), row["archived"])

    def _count_live(self, session_id: str) -> int:
        return sum(row[1] == session_id and bool(row[7]) for row in self.stored.by_id.values())

    def _has_drifted(self, session_id: str) -> bool:
        """Return True if the counter of a session differs from its number of live messages."""
        return bool(self._count_live(session_id) != self.sessions[session_id]["message_count"])

    def _ask_count(self) -> None:
        options = self._options()
        theirs = self.theirs.call("session_count", **options, exclude_children=True)
        ours = len(self._our_list(options, recent=False, most=ALL))
        reasons = [] if theirs == ours else self._explain_list(options, recent=False)
        self._note(f"count {options}: {theirs} {ours}", reasons)

    def _ask_rows(self) -> None:
        """Compare sessions of every kind, including children."""
        options = self._options()
        rows = self.theirs.call("list_sessions_rich", **options, include_children=True, limit=ALL)
        ours = set(self.ours.find_sessions(self._where(options)))
        different = {row["id"] for row in rows} ^ ours
        self._note(
            f"rows {options}: {sorted(different)}",
            [self._explain_member_row(session_id, options) for session_id in different],
        )

    def _explain_member_row(self, session_id: str, options: Options) -> str | None:
        if self._passes_alone(session_id, options) == self._passes_inherited(session_id, options):
            return None
        is_continuation = self.ours.get_link_kind(session_id) == "continuation"
        return CONVERSATION if is_continuation else COUNTED

    def _explain_row(self, session_id: str, options: Options) -> str | None:
        inherited = {"source", "cwd_prefix", "user_id", "chat_id", "chat_type"}
        if self.ours.get_link_kind(session_id) == "continuation" and inherited & set(options):
            return CONVERSATION
        if {"min_messages", "max_messages"} & set(options) and self._has_drifted(session_id):
            return COUNTED
        if any("_" in text or "%" in text for text in _list_patterns(options)):
            return PATTERN
        return None

    def _ask_candidates(self) -> None:
        """Compare the ended sessions that match filters of pruning."""
        given: Options = {
            "source": self.chance.choice(self.sources),
            "title_like": self.chance.choice(
                ("deploy", "50%", "A_B", "МИГРАЦИЯ", "数据库", "plan")
            ),
            "end_reason": self.chance.choice(("compression", "idle", "done")),
            "cwd_prefix": self.chance.choice(("/srv/app", "/home", "/srv/app/web/")),
            "min_messages": self.chance.randint(0, 5),
            "max_messages": self.chance.randint(1, 5),
            "model_like": self.chance.choice(("large", "small_1", "e_1", "LARGE-1")),
            "user_id": self.chance.choice(("u1", "u2")),
            "chat_id": "77",
            "chat_type": self.chance.choice(("dm", "group")),
            "started_before": self._time(),
            "started_after": self._time(),
            "min_tool_calls": self.chance.randint(0, 2),
        }
        names = self.chance.sample(sorted(given), k=self.chance.randint(1, 3))
        options = {name: given[name] for name in names}
        rows = self.theirs.call("list_prune_candidates", **options)
        ours = dict(options, status="all")
        if "source" in ours:
            ours["source"] = (ours["source"],)
        ended = {one for one, row in self.sessions.items() if row["ended_at"] is not None}
        found = set(self.ours.find_sessions(SessionFilter(**ours))) & ended
        different = {row["id"] for row in rows} ^ found
        self._note(
            f"candidates {options}: {sorted(different)}",
            [self._explain_row(session_id, options) for session_id in different],
        )

    def _time(self) -> float:
        return float(self.chance.choice(list(self.sessions.values()))["started_at"])

    def _ask_line(self) -> None:
        """Compare every field of one line of the list."""
        rows = self._their_list({"include_archived": True}, recent=False, limit=ALL, offset=0)
        row = self.chance.choice(rows)
        line = self.ours.summarize_session(row["id"])
        root = row.get("_lineage_root_id") or row["id"]
        reasons: list[str | None] = []
        if self.ours.get_compression_tip(root) != row["id"]:
            self._note("", [NEWEST_CHILD if self.theirs.version == "0.17.0" else None])
            return
        theirs = (row["title"], row["started_at"], row["ended_at"])
        if theirs != (line.title, line.started_at, line.ended_at):
            reasons.append(None)
        if row["source"] != line.source:
            is_own = self.sessions[line.id]["source"] == line.source
            reasons.append(CONVERSATION if root != line.id and is_own else None)
        if (row.get("git_repo_root") or row.get("cwd")) != line.project:
            reasons.append(FOLDER if root != line.id else None)
        if row["message_count"] != line.messages:
            reasons.append(COUNTED if self._has_drifted(line.id) else None)
        begins = line.preview.startswith(row["preview"].removesuffix("..."))
        if not begins or bool(line.preview) != bool(row["preview"]):
            reasons.append(self._explain_preview(line.id))
        self._note(f"line {row['id']}: {row['preview']!r} {line}", reasons)

    def _explain_preview(self, session_id: str) -> str | None:
        """Return the reason of different previews: a message in parts, or a rewound message."""
        said = [row for row in self.stored.by_id.values() if row[1] == session_id]
        asked = [row for row in sorted(said, key=lambda row: row[6]) if row[2] == "user"]
        first = asked[0] if asked else None
        if first is None:
            return None
        is_odd = _has_encoded_content(first) or not first[7]
        return PREVIEW if is_odd else None

    # -- search --------------------------------------------------------------------------------

    def _ask_search(self) -> None:
        query = self._query()
        options: Options = {}
        if self.chance.random() < 0.25:
            options["source_filter"] = self.chance.sample(self.sources, k=2)
        elif self.chance.random() < 0.2:
            options["exclude_sources"] = self.chance.sample(self.sources, k=1)
        if self.chance.random() < 0.25:
            options["role_filter"] = self.chance.choice((["user"], ["tool"], ["assistant", "tool"]))
        sort = self.chance.choice((None, "newest", "oldest"))
        try:
            theirs = their_ids(self.theirs, query, sort=sort, **options)
        except Refused as refused:
            self._note(f"search {query!r}: {refused}", [None])
            return
        pages = our_pages(self.ours, query, **self._our_options(options))
        ours = [hit.message_id for page in pages for hit in page.hits]
        their_texts, our_texts = self.stored.said(theirs), self.stored.said(ours)
        matched = pages[0].matched
        reasons = [
            self._explain_hit(
                self.stored.by_id[one], query, options, matched, is_theirs=one in theirs
            )
            for one in {*theirs, *ours}
            if not self.stored.said([one]) <= their_texts & our_texts
        ]
        if reasons and None in reasons:
            wrong = sorted({*theirs} ^ {*ours})
            self._note(f"search {query!r} {options} {matched}: {wrong[:5]}", reasons)
        else:
            self._note("", reasons)

    def _our_options(self, options: Options) -> Options:
        found: Options = {}
        if "source_filter" in options:
            found["source"] = options["source_filter"]
        if "exclude_sources" in options:
            found["source"] = sorted(set(self.sources) - set(options["exclude_sources"]))
        if "role_filter" in options:
            found["roles"] = options["role_filter"]
        return found

    def _explain_hit(
        self, row: Any, query: str, options: Options, matched: str, *, is_theirs: bool
    ) -> str | None:
        """Return the reason why only one of the two finds a message."""
        if {"source_filter", "exclude_sources"} & set(options) and (
            self.ours.get_link_kind(row[1]) == "continuation"
        ):
            return CONVERSATION
        if matched == "text":
            return TEXT
        if _NOT_OF_SEVERAL.search(query) and not _CJK.search(query):
            return NOT_SCOPE
        if is_theirs:
            return self._explain_theirs(row, query)
        if matched in ("conversation", "prefix", "any"):
            return LADDER
        if _has_encoded_content(row) and not query.isascii():
            return PARTS
        if "NOT" in query and (_has_encoded_content(row) or row[5]):
            return MARKUP
        if _CJK.search(query) and _SYNTAX.search(query):
            return OPERATORS
        return None

    def _explain_theirs(self, row: Any, query: str) -> str | None:
        if not self.stored.shown(row[0]):
            return REWOUND
        words = [word for word in query.split() if not _OPERATOR.fullmatch(word)]
        if _CJK.search(query) and len(words) > 1:
            return OPERATORS if _SYNTAX.search(query) else SHORT
        if _has_encoded_content(row) or row[5]:
            return MARKUP
        return None

    def _query(self) -> str:
        """Return a random query of words, phrases, prefixes and operators in any script."""
        texts = [self.stored.text(row) for row in self.stored.by_id.values()]

        def words(pattern: str) -> list[str]:
            while True:
                found = re.findall(pattern, self.chance.choice(texts))
                if found:
                    return list(found)

        def latin() -> str:
            found = words(r"\b[^\W\d_]{4,20}\b(?![^\x00-\u024f])")
            at = self.chance.randrange(len(found))
            phrase = " ".join(found[at : at + 2])
            return self.chance.choice([found[at], f'"{found[at]}"', f"{found[at][:4]}*", phrase])

        def cjk() -> str:
            run = self.chance.choice(words(r"[\u3040-\u30ff\u4e00-\u9fff\uac00-\ud7af]{2,}"))
            size = self.chance.randint(1, 6)
            at = self.chance.randrange(max(1, len(run) - size + 1))
            return run[at : at + size]

        def other() -> str:
            return self.chance.choice(words(r"[\u0430-\u044f]{4,}|[\u0620-\u064a]{3,}"))

        def atom() -> str:
            return self.chance.choice((latin, latin, latin, cjk, other))()

        shape = self.chance.choice(
            ("{}", "{}", "{}", "{} {}", "{} AND {}", "{} OR {}", "{} NOT {}", "a1b2-c3", "foo_bar",
             "v2.10.1", '"make test"', '"{} {}', "({}")
        )  # fmt: skip
        return shape.format(atom(), atom())


def _list_patterns(options: Options) -> list[str]:
    return [value for name, value in options.items() if name.endswith("_like")]


def _is_selected(
    options: Options, source: str, folder: str | None, count: int, archived: int
) -> bool:
    prefix = options.get("cwd_prefix", "").rstrip("/")
    return (
        options.get("source", source) == source
        and source not in options.get("exclude_sources", ())
        and (not prefix or f"{folder or ''}/".startswith(f"{prefix}/"))
        and count >= options.get("min_message_count", 0)
        and (bool(archived) if options.get("archived_only") else True)
        and (not archived or bool({"archived_only", "include_archived"} & set(options)))
    )


def _has_encoded_content(row: Any) -> bool:
    return isinstance(row[3], str) and row[3].startswith("\x00json:")
