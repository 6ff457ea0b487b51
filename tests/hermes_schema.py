"""The tables, indexes and triggers of a Hermes database, by the schema that brought them."""

from __future__ import annotations

from collections.abc import Iterator

# A line is a column or a constraint; the number before it is the schema that brought it.
_TABLES = {
    "schema_version": """
        16 version INTEGER NOT NULL""",
    "system_prompts": """
        24 hash TEXT PRIMARY KEY
        24 prompt TEXT NOT NULL""",
    "sessions": """
        16 id TEXT PRIMARY KEY
        16 source TEXT NOT NULL
        23 created_source TEXT
        16 user_id TEXT
        17 session_key TEXT
        17 chat_id TEXT
        17 chat_type TEXT
        17 thread_id TEXT
        18 display_name TEXT
        18 origin_json TEXT
        18 expiry_finalized INTEGER DEFAULT 0
        16 model TEXT
        16 model_config TEXT
        16 system_prompt TEXT
        24 system_prompt_hash TEXT
        16 parent_session_id TEXT
        16 started_at REAL NOT NULL
        16 ended_at REAL
        16 end_reason TEXT
        16 message_count INTEGER DEFAULT 0
        16 tool_call_count INTEGER DEFAULT 0
        16 input_tokens INTEGER DEFAULT 0
        16 output_tokens INTEGER DEFAULT 0
        16 cache_read_tokens INTEGER DEFAULT 0
        16 cache_write_tokens INTEGER DEFAULT 0
        16 reasoning_tokens INTEGER DEFAULT 0
        16 cwd TEXT
        17 git_branch TEXT
        17 git_repo_root TEXT
        25 git_metadata_generation INTEGER NOT NULL DEFAULT 0
        16 billing_provider TEXT
        16 billing_base_url TEXT
        16 billing_mode TEXT
        16 estimated_cost_usd REAL
        16 actual_cost_usd REAL
        16 cost_status TEXT
        16 cost_source TEXT
        16 pricing_version TEXT
        16 title TEXT
        25 title_source TEXT
        26 last_activity_at REAL
        26 last_activity_description TEXT
        26 last_activity_provenance TEXT
        16 api_call_count INTEGER DEFAULT 0
        16 handoff_state TEXT
        16 handoff_platform TEXT
        16 handoff_error TEXT
        17 compression_failure_cooldown_until REAL
        17 compression_failure_error TEXT
        21 compression_fallback_streak INTEGER NOT NULL DEFAULT 0
        27 compression_ineffective_count INTEGER NOT NULL DEFAULT 0
        27 compression_recovery_deadline REAL
        27 compression_overload_streak INTEGER NOT NULL DEFAULT 0
        21 profile_name TEXT
        28 transport_profile TEXT
        16 rewind_count INTEGER NOT NULL DEFAULT 0
        16 archived INTEGER NOT NULL DEFAULT 0
        28 pinned INTEGER NOT NULL DEFAULT 0
        28 hidden INTEGER NOT NULL DEFAULT 0
        29 last_read_at REAL
        29 tool_names TEXT
        16 FOREIGN KEY (parent_session_id) REFERENCES sessions(id)
        24 FOREIGN KEY (system_prompt_hash) REFERENCES system_prompts(hash)""",
    "messages": """
        16 id INTEGER PRIMARY KEY AUTOINCREMENT
        16 session_id TEXT NOT NULL REFERENCES sessions(id)
        16 role TEXT NOT NULL
        16 content TEXT
        16 tool_call_id TEXT
        16 tool_calls TEXT
        16 tool_name TEXT
        21 effect_disposition TEXT
        16 timestamp REAL NOT NULL
        16 token_count INTEGER
        16 finish_reason TEXT
        16 reasoning TEXT
        16 reasoning_content TEXT
        16 reasoning_details TEXT
        16 codex_reasoning_items TEXT
        16 codex_message_items TEXT
        16 platform_message_id TEXT
        16 observed INTEGER DEFAULT 0
        27 _compressed_summary INTEGER NOT NULL DEFAULT 0
        16 active INTEGER NOT NULL DEFAULT 1
        17 compacted INTEGER NOT NULL DEFAULT 0
        21 api_content TEXT
        28 display_kind TEXT
        28 display_metadata TEXT
        30 display_identity BLOB
        30 display_order INTEGER""",
    "session_model_usage": """
        20 session_id TEXT NOT NULL REFERENCES sessions(id) ON DELETE CASCADE
        20 model TEXT NOT NULL
        20 billing_provider TEXT NOT NULL DEFAULT ''
        20 billing_base_url TEXT NOT NULL DEFAULT ''
        20 billing_mode TEXT NOT NULL DEFAULT ''
        22 task TEXT NOT NULL DEFAULT ''
        20 api_call_count INTEGER NOT NULL DEFAULT 0
        20 input_tokens INTEGER NOT NULL DEFAULT 0
        20 output_tokens INTEGER NOT NULL DEFAULT 0
        20 cache_read_tokens INTEGER NOT NULL DEFAULT 0
        20 cache_write_tokens INTEGER NOT NULL DEFAULT 0
        20 reasoning_tokens INTEGER NOT NULL DEFAULT 0
        20 estimated_cost_usd REAL NOT NULL DEFAULT 0
        20 actual_cost_usd REAL NOT NULL DEFAULT 0
        20 cost_status TEXT
        20 cost_source TEXT
        20 first_seen REAL
        20 last_seen REAL
        20 PRIMARY KEY (session_id, model, billing_provider, billing_base_url, {mode})""",
    "state_meta": """
        16 key TEXT PRIMARY KEY
        16 value TEXT""",
    "gateway_routing": """
        19 scope TEXT NOT NULL DEFAULT ''
        19 session_key TEXT NOT NULL
        19 entry_json TEXT NOT NULL
        19 updated_at REAL NOT NULL
        19 PRIMARY KEY (scope, session_key)""",
    "gateway_hygiene_state": """
        26 session_key TEXT PRIMARY KEY
        26 failure_streak INTEGER NOT NULL DEFAULT 0""",
    "conversation_generations": """
        29 source TEXT NOT NULL
        29 session_key TEXT NOT NULL
        29 generation INTEGER NOT NULL DEFAULT 0
        29 PRIMARY KEY (source, session_key)""",
    "gateway_heartbeats": """
        28 backend_id TEXT PRIMARY KEY
        28 pid INTEGER NOT NULL
        28 started_at REAL NOT NULL
        28 last_heartbeat REAL NOT NULL
        28 profile TEXT NOT NULL DEFAULT ''
        28 host TEXT NOT NULL DEFAULT ''""",
    "compression_locks": """
        16 session_id TEXT PRIMARY KEY
        16 holder TEXT NOT NULL
        16 acquired_at REAL NOT NULL
        16 expires_at REAL NOT NULL""",
    "session_turn_leases": """
        27 conversation_id TEXT PRIMARY KEY
        27 holder TEXT NOT NULL
        27 acquired_at REAL NOT NULL
        27 expires_at REAL NOT NULL""",
    "async_delegations": """
        21 delegation_id TEXT PRIMARY KEY
        21 origin_session TEXT NOT NULL
        21 origin_ui_session_id TEXT NOT NULL DEFAULT ''
        21 parent_session_id TEXT
        21 state TEXT NOT NULL
        21 dispatched_at REAL NOT NULL
        21 completed_at REAL
        21 updated_at REAL NOT NULL
        21 event_json TEXT
        21 result_json TEXT
        21 delivery_state TEXT NOT NULL DEFAULT 'pending'
        21 delivery_attempts INTEGER NOT NULL DEFAULT 0
        21 delivered_at REAL
        21 owner_pid INTEGER
        21 owner_started_at INTEGER
        21 task_json TEXT
        21 delivery_claim TEXT
        21 delivery_claimed_at REAL
        25 origin_session_id TEXT NOT NULL DEFAULT ''""",
}

_INDEXES = """
    16 INDEX idx_sessions_source ON sessions(source)
    16 INDEX idx_sessions_source_id ON sessions(source, id)
    16 INDEX idx_sessions_parent ON sessions(parent_session_id)
    16 INDEX idx_sessions_started ON sessions(started_at DESC)
    16 INDEX idx_messages_session ON messages(session_id, timestamp)
    24 INDEX idx_messages_session_id ON messages(session_id, id)
    16 INDEX idx_compression_locks_expires ON compression_locks(expires_at)
    27 INDEX idx_session_turn_leases_expires ON session_turn_leases(expires_at)
    20 INDEX idx_session_model_usage_session ON session_model_usage(session_id)
    20 INDEX idx_session_model_usage_model ON session_model_usage(model)
    21 INDEX idx_async_delegations_delivery ON async_delegations(delivery_state, completed_at)
    16 INDEX idx_messages_platform_msg_id ON messages(session_id, platform_message_id) \
WHERE platform_message_id IS NOT NULL
    16 INDEX idx_messages_session_active ON messages(session_id, active, timestamp)
    19 INDEX idx_messages_active_null ON messages(active) WHERE active IS NULL
    17 INDEX idx_sessions_session_key ON sessions(session_key, started_at DESC)
    17 INDEX idx_sessions_gateway_peer \
ON sessions(source, user_id, chat_id, chat_type, thread_id, started_at DESC)
    17 INDEX idx_sessions_handoff_state ON sessions(handoff_state, started_at)
    24 INDEX idx_sessions_system_prompt_hash ON sessions(system_prompt_hash)
    26 INDEX idx_sessions_effective_activity \
ON sessions(COALESCE(last_activity_at, started_at) DESC, started_at DESC)
    16 UNIQUE INDEX idx_sessions_title_unique ON sessions(title) WHERE title IS NOT NULL"""

_DISPLAY_ORDER = """
CREATE TRIGGER messages_display_order_insert AFTER INSERT ON messages
WHEN new.display_order IS NULL BEGIN
    UPDATE messages SET display_order = new.id WHERE id = new.id;
END"""

# Up to schema 22 each index keeps its own copy of the text, and every update rewrites it.
_INLINE = """
CREATE VIRTUAL TABLE {fts} USING fts5( content{tokenize} );
CREATE TRIGGER {fts}_insert AFTER INSERT ON messages BEGIN
    INSERT INTO {fts}(rowid, content) VALUES (
        new.id,
        COALESCE(new.content, '') || ' ' || COALESCE(new.tool_name, '') || ' ' || \
COALESCE(new.tool_calls, '')
    );
END;
CREATE TRIGGER {fts}_delete AFTER DELETE ON messages BEGIN
    DELETE FROM {fts} WHERE rowid = old.id;
END;
CREATE TRIGGER {fts}_update AFTER UPDATE ON messages BEGIN
    DELETE FROM {fts} WHERE rowid = old.id;
    INSERT INTO {fts}(rowid, content) VALUES (
        new.id,
        COALESCE(new.content, '') || ' ' || COALESCE(new.tool_name, '') || ' ' || \
COALESCE(new.tool_calls, '')
    );
END"""

# From 23 on the text is read from `messages` or a view of it, and only content columns fire.
_EXTERNAL = """
CREATE VIRTUAL TABLE {fts} USING fts5({columns}, content='{source}', content_rowid='id'{tokenize});
CREATE TRIGGER {fts}_insert AFTER INSERT ON messages WHEN {new_in} BEGIN
    INSERT INTO {fts}(rowid, {columns}) VALUES (new.id, {new});
END;
CREATE TRIGGER {fts}_delete AFTER DELETE ON messages WHEN {old_in} BEGIN
    INSERT INTO {fts}({fts}, rowid, {columns}) VALUES ('delete', old.id, {old});
END;
CREATE TRIGGER {fts}_update AFTER UPDATE OF {columns}, role ON messages WHEN {old_gate} BEGIN
    INSERT INTO {fts}({fts}, rowid, {columns}) SELECT 'delete', old.id, {old} WHERE {old_in};
    INSERT INTO {fts}(rowid, {columns}) SELECT new.id, {new} WHERE {new_in};
END"""

_WORDS_VIEW = (
    "CREATE VIEW messages_fts_src AS SELECT m.id, {content} AS content, m.tool_name, m.tool_calls"
    " FROM messages AS m"
)
_TRIGRAM_VIEW = (
    "CREATE VIEW messages_fts_trigram_src AS SELECT m.id, m.role, m.content, m.tool_name,"
    " m.tool_calls FROM messages AS m WHERE m.role <> 'tool' AND {people}"
)
_CJK_VIEW = (
    "CREATE VIEW messages_fts_cjk_src AS SELECT m.id, m.content, m.tool_name, m.tool_calls"
    " FROM messages AS m WHERE m.role <> 'tool'"
)
_TRIGRAM = ", tokenize='trigram'"

_PENDING = "(SELECT CAST(value AS INTEGER) FROM state_meta WHERE key = 'fts_rebuild_{}')"
_GATE = (
    f"({{row}}.id > COALESCE({_PENDING.format('high_water')}, -1)"
    f" OR {{row}}.id <= COALESCE({_PENDING.format('progress')}, -1))"
)
_PREFIX = (
    "CASE WHEN {row}.role = 'tool' THEN substr(COALESCE({row}.content, ''), 1, 8192)"
    " ELSE {row}.content END"
)
_PEOPLE = (
    "EXISTS (SELECT 1 FROM sessions AS s WHERE s.id = {row}.session_id"
    " AND s.source NOT IN ('cron', 'subagent') AND CASE WHEN json_valid(s.model_config)"
    " THEN json_extract(s.model_config, '$._delegate_from') END IS NULL)"
)


def list_statements(schema: int, layout: int) -> Iterator[str]:
    """Return the statements that make an empty database."""
    for name, lines in _TABLES.items():
        body = ",\n    ".join(_select_since(lines, schema))
        if body:
            mode = "billing_mode, task" if schema >= 22 else "billing_mode"
            yield f"CREATE TABLE {name} (\n    {body.replace('{mode}', mode)}\n)"
    yield from (f"CREATE {index}" for index in _select_since(_INDEXES, schema))
    if schema >= 30:
        yield _DISPLAY_ORDER.strip()
    if layout == 0:
        for fts, tokenize in (("messages_fts", ""), ("messages_fts_trigram", _TRIGRAM)):
            yield from _split_script(_INLINE.format(fts=fts, tokenize=tokenize))
    else:
        yield from _list_external_indexes(layout)


def list_cjk_statements(tokenizer: str) -> Iterator[str]:
    """Return the statements that add the index of a native tokenizer, without tool rows."""
    yield _CJK_VIEW
    options = {"source": "messages_fts_cjk_src", "tokenize": f", tokenize='{tokenizer}'"}
    columns = ["content", "tool_name", "tool_calls"]
    rows = "{row}.role <> 'tool'"
    for statement in _create_index("messages_fts_cjk", columns, rows, options, prefix=False):
        yield statement.replace("'fts_rebuild_", "'fts_cjk_rebuild_")


def _list_external_indexes(layout: int) -> Iterator[str]:
    """Yield the indexes: words of all rows, trigrams without tools, cron jobs and subagents."""
    prefix = layout >= 3
    people = _PEOPLE if prefix else "1"
    if prefix:
        yield _WORDS_VIEW.format(content=_PREFIX.format(row="m"))
    yield _TRIGRAM_VIEW.format(people=people.format(row="m"))
    words = {"source": "messages_fts_src" if prefix else "messages", "tokenize": ""}
    yield from _create_index(
        "messages_fts", ["content", "tool_name", "tool_calls"], "1", words, prefix
    )
    grams = {"source": "messages_fts_trigram_src", "tokenize": _TRIGRAM}
    columns = ["content", "tool_name"] + ([] if prefix else ["tool_calls"])
    rows = f"{{row}}.role <> 'tool' AND {people}"
    yield from _create_index("messages_fts_trigram", columns, rows, grams, prefix=False)


def _create_index(
    fts: str, columns: list[str], rows: str, options: dict[str, str], prefix: bool
) -> Iterator[str]:
    def values(row: str) -> str:
        content = _PREFIX.format(row=row) if prefix else f"{row}.content"
        return ", ".join([content, *(f"{row}.{name}" for name in columns[1:])])

    yield from _split_script(
        _EXTERNAL.format(
            fts=fts,
            columns=", ".join(columns),
            new=values("new"),
            old=values("old"),
            new_in=f"{_GATE} AND {rows}".format(row="new"),
            old_in=f"{_GATE} AND {rows}".format(row="old"),
            old_gate=_GATE.format(row="old"),
            **options,
        )
    )


def _split_script(script: str) -> list[str]:
    return [part.strip() for part in script.split(";\nCREATE")[:1]] + [
        f"CREATE{part}".strip() for part in script.split(";\nCREATE")[1:]
    ]


def _select_since(lines: str, schema: int) -> list[str]:
    """Return the lines of a schema version, without their numbers."""
    pairs = (line.strip().split(" ", 1) for line in lines.strip().splitlines())
    return [text for since, text in pairs if int(since) <= schema]
