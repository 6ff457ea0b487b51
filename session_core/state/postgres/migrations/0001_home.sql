-- The tables of homes. Every key begins with the home; every text compares by its code points.
-- Programs read and write the views at the end, which show the rows of one home.

CREATE TABLE homes (
    id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    name text COLLATE "C" NOT NULL UNIQUE,
    mark text COLLATE "C" NOT NULL DEFAULT gen_random_uuid()::text,
    last_message_id bigint NOT NULL DEFAULT 0,
    created_at timestamptz NOT NULL DEFAULT now()
);

CREATE FUNCTION this_home() RETURNS bigint LANGUAGE sql STABLE PARALLEL SAFE AS $$
    SELECT current_setting('mcp_sessions.home')::bigint
$$;

-- The transaction by which the feed reports a row; none while rows are restored.
CREATE FUNCTION this_change() RETURNS xid8 LANGUAGE sql VOLATILE AS $$
    SELECT CASE WHEN coalesce(current_setting('mcp_sessions.restoring', true), '') <> 'on'
        THEN pg_current_xact_id() END
$$;

-- Ids of messages have no gaps and are never used twice. Changes of a home follow each other, so no
-- other one waits for its row.
CREATE FUNCTION next_message_id() RETURNS bigint LANGUAGE sql VOLATILE AS $$
    UPDATE homes SET last_message_id = last_message_id + 1 WHERE id = this_home()
    RETURNING last_message_id
$$;

CREATE TABLE session_rows (
    home_id bigint NOT NULL DEFAULT this_home(),
    id text COLLATE "C" NOT NULL,
    source text COLLATE "C" NOT NULL,
    user_id text COLLATE "C",
    session_key text COLLATE "C",
    chat_id text COLLATE "C",
    chat_type text COLLATE "C",
    thread_id text COLLATE "C",
    display_name text COLLATE "C",
    origin_json text COLLATE "C",
    expiry_finalized bigint DEFAULT 0,
    model text COLLATE "C",
    model_config text COLLATE "C",
    system_prompt text COLLATE "C",
    parent_session_id text COLLATE "C",
    started_at double precision NOT NULL,
    ended_at double precision,
    end_reason text COLLATE "C",
    message_count bigint DEFAULT 0,
    tool_call_count bigint DEFAULT 0,
    input_tokens bigint DEFAULT 0,
    output_tokens bigint DEFAULT 0,
    cache_read_tokens bigint DEFAULT 0,
    cache_write_tokens bigint DEFAULT 0,
    reasoning_tokens bigint DEFAULT 0,
    cwd text COLLATE "C",
    git_branch text COLLATE "C",
    git_repo_root text COLLATE "C",
    billing_provider text COLLATE "C",
    billing_base_url text COLLATE "C",
    billing_mode text COLLATE "C",
    estimated_cost_usd double precision,
    actual_cost_usd double precision,
    cost_status text COLLATE "C",
    cost_source text COLLATE "C",
    pricing_version text COLLATE "C",
    title text COLLATE "C",
    api_call_count bigint DEFAULT 0,
    handoff_state text COLLATE "C",
    handoff_platform text COLLATE "C",
    handoff_error text COLLATE "C",
    compression_failure_cooldown_until double precision,
    compression_failure_error text COLLATE "C",
    compression_fallback_streak bigint NOT NULL DEFAULT 0,
    profile_name text COLLATE "C",
    rewind_count bigint NOT NULL DEFAULT 0,
    archived bigint NOT NULL DEFAULT 0,
    live_rows bigint NOT NULL DEFAULT 0,
    compacted_rows bigint NOT NULL DEFAULT 0,
    other_rows bigint NOT NULL DEFAULT 0,
    last_message_id bigint NOT NULL DEFAULT 0,
    active_at double precision,
    place bigint GENERATED ALWAYS AS IDENTITY,
    started_change xid8 DEFAULT this_change(),
    ended_change xid8,
    PRIMARY KEY (home_id, id)
);

CREATE TABLE message_rows (
    home_id bigint NOT NULL DEFAULT this_home(),
    id bigint NOT NULL DEFAULT next_message_id(),
    session_id text COLLATE "C" NOT NULL,
    role text COLLATE "C" NOT NULL,
    content text COLLATE "C",
    tool_call_id text COLLATE "C",
    tool_calls text COLLATE "C",
    tool_name text COLLATE "C",
    effect_disposition text COLLATE "C",
    "timestamp" double precision NOT NULL,
    token_count bigint,
    finish_reason text COLLATE "C",
    reasoning text COLLATE "C",
    reasoning_content text COLLATE "C",
    reasoning_details text COLLATE "C",
    codex_reasoning_items text COLLATE "C",
    codex_message_items text COLLATE "C",
    platform_message_id text COLLATE "C",
    observed bigint DEFAULT 0,
    active bigint NOT NULL DEFAULT 1,
    compacted bigint NOT NULL DEFAULT 0,
    api_content text COLLATE "C",
    payload_json text COLLATE "C",
    change xid8 DEFAULT this_change(),
    PRIMARY KEY (home_id, id)
);

CREATE TABLE usage_rows (
    home_id bigint NOT NULL DEFAULT this_home(),
    session_id text COLLATE "C" NOT NULL,
    model text COLLATE "C" NOT NULL,
    billing_provider text COLLATE "C" NOT NULL DEFAULT '',
    billing_base_url text COLLATE "C" NOT NULL DEFAULT '',
    billing_mode text COLLATE "C" NOT NULL DEFAULT '',
    task text COLLATE "C" NOT NULL DEFAULT '',
    api_call_count bigint NOT NULL DEFAULT 0,
    input_tokens bigint NOT NULL DEFAULT 0,
    output_tokens bigint NOT NULL DEFAULT 0,
    cache_read_tokens bigint NOT NULL DEFAULT 0,
    cache_write_tokens bigint NOT NULL DEFAULT 0,
    reasoning_tokens bigint NOT NULL DEFAULT 0,
    estimated_cost_usd double precision NOT NULL DEFAULT 0,
    actual_cost_usd double precision NOT NULL DEFAULT 0,
    cost_status text COLLATE "C",
    cost_source text COLLATE "C",
    first_seen double precision,
    last_seen double precision,
    PRIMARY KEY (home_id, session_id, model, billing_provider, billing_base_url, billing_mode, task)
);

CREATE TABLE meta_rows (
    home_id bigint NOT NULL DEFAULT this_home(),
    key text COLLATE "C" NOT NULL,
    value text COLLATE "C",
    PRIMARY KEY (home_id, key)
);

CREATE TABLE route_rows (
    home_id bigint NOT NULL DEFAULT this_home(),
    scope text COLLATE "C" NOT NULL DEFAULT '',
    session_key text COLLATE "C" NOT NULL,
    entry_json text COLLATE "C" NOT NULL,
    updated_at double precision NOT NULL,
    place bigint GENERATED ALWAYS AS IDENTITY,
    PRIMARY KEY (home_id, scope, session_key)
);

CREATE TABLE lock_rows (
    home_id bigint NOT NULL DEFAULT this_home(),
    session_id text COLLATE "C" NOT NULL,
    holder text COLLATE "C" NOT NULL,
    acquired_at double precision NOT NULL,
    expires_at double precision NOT NULL,
    PRIMARY KEY (home_id, session_id)
);

CREATE TABLE session_state_rows (
    home_id bigint NOT NULL DEFAULT this_home(),
    session_id text COLLATE "C" NOT NULL,
    key text COLLATE "C" NOT NULL,
    value_json text COLLATE "C" NOT NULL,
    PRIMARY KEY (home_id, session_id, key)
);

CREATE TABLE shared_state_rows (
    home_id bigint NOT NULL DEFAULT this_home(),
    app text COLLATE "C" NOT NULL,
    user_id text COLLATE "C" NOT NULL DEFAULT '',
    key text COLLATE "C" NOT NULL,
    value_json text COLLATE "C" NOT NULL,
    PRIMARY KEY (home_id, app, user_id, key)
);

-- Messages whose text the search index lacks.
CREATE TABLE text_queue (
    home_id bigint NOT NULL,
    message_id bigint NOT NULL,
    PRIMARY KEY (home_id, message_id)
);

-- The words of messages. A message with very many words has several rows that are not `whole`;
-- every search reads it.
CREATE TABLE word_rows (
    home_id bigint NOT NULL,
    message_id bigint NOT NULL,
    part integer NOT NULL,
    whole boolean NOT NULL,
    words tsvector NOT NULL,
    PRIMARY KEY (home_id, message_id, part)
);

CREATE INDEX session_rows_parent ON session_rows (home_id, parent_session_id)
    WHERE parent_session_id IS NOT NULL;
CREATE INDEX session_rows_started ON session_rows (home_id, started_at, id);
CREATE INDEX session_rows_active
    ON session_rows (home_id, (coalesce(active_at, started_at)) DESC, id DESC);
CREATE INDEX session_rows_key ON session_rows (home_id, session_key, started_at)
    WHERE session_key IS NOT NULL;
CREATE INDEX session_rows_chat ON session_rows (home_id, chat_id, source)
    WHERE chat_id IS NOT NULL;
CREATE UNIQUE INDEX session_rows_title ON session_rows (home_id, title) WHERE title IS NOT NULL;
CREATE INDEX session_rows_ended ON session_rows (home_id, ended_change)
    WHERE ended_change IS NOT NULL;
CREATE INDEX session_rows_created ON session_rows (home_id, started_change);
CREATE INDEX message_rows_session ON message_rows (home_id, session_id, id);
CREATE INDEX message_rows_time ON message_rows (home_id, session_id, "timestamp");
CREATE INDEX message_rows_platform ON message_rows (home_id, session_id, platform_message_id)
    WHERE platform_message_id IS NOT NULL;
CREATE INDEX message_rows_change ON message_rows (home_id, change);
CREATE INDEX word_rows_words ON word_rows USING gin (words);
CREATE INDEX word_rows_long ON word_rows (home_id, message_id) WHERE NOT whole;

-- The counters of a session's row follow its messages, whatever statement changes them.
CREATE FUNCTION count_new_messages() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    UPDATE session_rows AS s SET
        live_rows = s.live_rows + added.live,
        compacted_rows = s.compacted_rows + added.compacted,
        last_message_id = CASE WHEN s.live_rows + s.compacted_rows + s.other_rows = 0
            THEN added.last_id ELSE greatest(s.last_message_id, added.last_id) END,
        other_rows = s.other_rows + added.others,
        active_at = greatest(s.active_at, added.last_at)
    FROM (
        SELECT home_id, session_id, max(id) AS last_id, max("timestamp") AS last_at,
            count(*) FILTER (WHERE active = 1) AS live,
            count(*) FILTER (WHERE active = 0 AND compacted = 1) AS compacted,
            count(*) FILTER (WHERE active <> 1 AND NOT (active = 0 AND compacted = 1)) AS others
        FROM new_rows GROUP BY home_id, session_id
    ) AS added
    WHERE s.home_id = added.home_id AND s.id = added.session_id;
    -- Restored and imported messages bring their ids.
    UPDATE homes AS h SET last_message_id = added.last_id
    FROM (SELECT home_id, max(id) AS last_id FROM new_rows GROUP BY home_id) AS added
    WHERE h.id = added.home_id AND h.last_message_id < added.last_id;
    INSERT INTO text_queue SELECT home_id, id FROM new_rows ON CONFLICT DO NOTHING;
    RETURN NULL;
END $$;

CREATE FUNCTION count_messages_of(changed_home bigint, changed text[]) RETURNS void
LANGUAGE sql AS $$
    UPDATE session_rows AS s
    SET live_rows = counted.live, compacted_rows = counted.compacted, other_rows = counted.others,
        last_message_id = counted.last_id, active_at = counted.last_at
    FROM unnest(changed) AS member(id), LATERAL (
        SELECT count(*) FILTER (WHERE active = 1) AS live,
            count(*) FILTER (WHERE active = 0 AND compacted = 1) AS compacted,
            count(*) FILTER (WHERE active <> 1 AND NOT (active = 0 AND compacted = 1)) AS others,
            coalesce(max(m.id), 0) AS last_id, max("timestamp") AS last_at
        FROM message_rows AS m
        WHERE m.home_id = changed_home AND m.session_id = member.id COLLATE "C"
    ) AS counted
    WHERE s.home_id = changed_home AND s.id = member.id COLLATE "C"
$$;

CREATE FUNCTION count_changed_messages() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    PERFORM count_messages_of(changed.home_id, changed.members) FROM (
        SELECT home_id, array_agg(DISTINCT session_id) AS members FROM (
            SELECT home_id, session_id FROM old_rows
            UNION SELECT home_id, session_id FROM new_rows
        ) AS touched GROUP BY home_id
    ) AS changed;
    INSERT INTO text_queue
    SELECT n.home_id, n.id FROM new_rows AS n
    LEFT JOIN old_rows AS o ON o.home_id = n.home_id AND o.id = n.id
    WHERE (n.content, n.tool_name, n.tool_calls)
        IS DISTINCT FROM (o.content, o.tool_name, o.tool_calls)
    ON CONFLICT DO NOTHING;
    RETURN NULL;
END $$;

CREATE FUNCTION count_deleted_messages() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    PERFORM count_messages_of(changed.home_id, changed.members) FROM (
        SELECT home_id, array_agg(DISTINCT session_id) AS members FROM old_rows GROUP BY home_id
    ) AS changed;
    DELETE FROM word_rows AS w USING old_rows AS o
    WHERE w.home_id = o.home_id AND w.message_id = o.id;
    DELETE FROM text_queue AS q USING old_rows AS o
    WHERE q.home_id = o.home_id AND q.message_id = o.id;
    RETURN NULL;
END $$;

CREATE TRIGGER count_new_messages AFTER INSERT ON message_rows
    REFERENCING NEW TABLE AS new_rows FOR EACH STATEMENT EXECUTE FUNCTION count_new_messages();
CREATE TRIGGER count_changed_messages AFTER UPDATE ON message_rows
    REFERENCING OLD TABLE AS old_rows NEW TABLE AS new_rows
    FOR EACH STATEMENT EXECUTE FUNCTION count_changed_messages();
CREATE TRIGGER count_deleted_messages AFTER DELETE ON message_rows
    REFERENCING OLD TABLE AS old_rows FOR EACH STATEMENT
    EXECUTE FUNCTION count_deleted_messages();

-- A session may be restored after its messages.
CREATE FUNCTION count_messages_of_new_sessions() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    PERFORM count_messages_of(n.home_id, array_agg(n.id)) FROM new_rows AS n
    WHERE EXISTS (
        SELECT 1 FROM message_rows AS m WHERE m.home_id = n.home_id AND m.session_id = n.id
    )
    GROUP BY n.home_id;
    RETURN NULL;
END $$;
CREATE TRIGGER count_messages_of_new_sessions AFTER INSERT ON session_rows
    REFERENCING NEW TABLE AS new_rows FOR EACH STATEMENT
    EXECUTE FUNCTION count_messages_of_new_sessions();

CREATE FUNCTION note_end() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    NEW.ended_change := CASE WHEN NEW.ended_at IS NULL THEN NULL ELSE this_change() END;
    RETURN NEW;
END $$;
CREATE TRIGGER note_end BEFORE UPDATE OF ended_at ON session_rows
    FOR EACH ROW WHEN (NEW.ended_at IS DISTINCT FROM OLD.ended_at) EXECUTE FUNCTION note_end();

-- The values of a JSON list. A NUL is stored as the escape that the engine uses for it.
CREATE FUNCTION json_each(list text) RETURNS TABLE (value text) LANGUAGE sql IMMUTABLE AS $$
    SELECT json_array_elements_text(regexp_replace(
        list, '(?<!\\)((?:\\\\)*)\\u0000', '\1\\u001a0', 'g'
    )::json)
$$;

-- The sessions that a session continues, the nearest first. Each step is a look-up by the key,
-- whatever the planner knows of the tables.
CREATE FUNCTION list_continued(start text) RETURNS SETOF text LANGUAGE plpgsql STABLE AS $$
DECLARE
    current text COLLATE "C" := start;
    path text[] := ARRAY[start];
    child record;
    reason text;
BEGIN
    LOOP
        SELECT source, model_config, parent_session_id INTO child FROM session_rows
        WHERE home_id = this_home() AND id = current;
        EXIT WHEN child.parent_session_id IS NULL OR child.source = 'tool'
            OR child.parent_session_id = ANY (path);
        EXIT WHEN child.model_config ~ '_branched_from|_delegate_from'
            AND (get_json_text(child.model_config, '_branched_from') IS NOT NULL
                OR get_json_text(child.model_config, '_delegate_from') IS NOT NULL);
        SELECT end_reason INTO reason FROM session_rows
        WHERE home_id = this_home() AND id = child.parent_session_id;
        EXIT WHEN NOT FOUND OR reason IS DISTINCT FROM 'compression';
        current := child.parent_session_id;
        path := path || current::text;
        RETURN NEXT current;
    END LOOP;
END $$;

CREATE FUNCTION parse_json(stored text) RETURNS json LANGUAGE plpgsql IMMUTABLE AS $$
BEGIN
    RETURN stored::json;
EXCEPTION WHEN OTHERS THEN
    RETURN NULL;
END $$;

CREATE FUNCTION get_json_text(stored text, field text) RETURNS text
LANGUAGE plpgsql IMMUTABLE AS $$
BEGIN
    RETURN stored::json ->> field;
EXCEPTION WHEN OTHERS THEN
    RETURN NULL;
END $$;

CREATE FUNCTION count_tool_calls(stored text) RETURNS bigint LANGUAGE plpgsql IMMUTABLE AS $$
BEGIN
    RETURN CASE json_typeof(stored::json)
        WHEN 'array' THEN json_array_length(stored::json) WHEN 'object' THEN 1 ELSE 0 END;
EXCEPTION WHEN OTHERS THEN
    RETURN 0;
END $$;

CREATE FUNCTION uses_tool(calls text, tool text) RETURNS boolean LANGUAGE plpgsql IMMUTABLE AS $$
BEGIN
    RETURN EXISTS (
        SELECT 1 FROM json_array_elements(calls::json) AS call
        WHERE json_typeof(call) = 'object'
            AND lower(coalesce(call #>> '{function,name}', call ->> 'name')) = lower(tool)
    );
EXCEPTION WHEN OTHERS THEN
    RETURN false;
END $$;

CREATE VIEW sessions WITH (security_invoker) AS SELECT
    id, source, user_id, session_key, chat_id, chat_type, thread_id, display_name,
    origin_json, expiry_finalized, model, model_config, system_prompt, parent_session_id,
    started_at, ended_at, end_reason, message_count, tool_call_count, input_tokens,
    output_tokens, cache_read_tokens, cache_write_tokens, reasoning_tokens, cwd, git_branch,
    git_repo_root, billing_provider, billing_base_url, billing_mode, estimated_cost_usd,
    actual_cost_usd, cost_status, cost_source, pricing_version, title, api_call_count,
    handoff_state, handoff_platform, handoff_error, compression_failure_cooldown_until,
    compression_failure_error, compression_fallback_streak, profile_name, rewind_count,
    archived
FROM session_rows WHERE home_id = this_home();

CREATE VIEW messages WITH (security_invoker) AS SELECT
    id, session_id, role, content, tool_call_id, tool_calls, tool_name, effect_disposition,
    "timestamp", token_count, finish_reason, reasoning, reasoning_content,
    reasoning_details, codex_reasoning_items, codex_message_items, platform_message_id,
    observed, active, compacted, api_content, payload_json
FROM message_rows WHERE home_id = this_home();

CREATE VIEW session_model_usage WITH (security_invoker) AS SELECT
    session_id, model, billing_provider, billing_base_url, billing_mode, task,
    api_call_count, input_tokens, output_tokens, cache_read_tokens, cache_write_tokens,
    reasoning_tokens, estimated_cost_usd, actual_cost_usd, cost_status, cost_source,
    first_seen, last_seen
FROM usage_rows WHERE home_id = this_home();

CREATE VIEW state_meta WITH (security_invoker) AS SELECT
    key, value
FROM meta_rows WHERE home_id = this_home();

CREATE VIEW gateway_routing WITH (security_invoker) AS SELECT
    scope, session_key, entry_json, updated_at
FROM route_rows WHERE home_id = this_home();

CREATE VIEW compression_locks WITH (security_invoker) AS SELECT
    session_id, holder, acquired_at, expires_at
FROM lock_rows WHERE home_id = this_home();

CREATE VIEW ms_session_state WITH (security_invoker) AS SELECT
    session_id, key, value_json
FROM session_state_rows WHERE home_id = this_home();

CREATE VIEW ms_shared_state WITH (security_invoker) AS SELECT
    app, user_id, key, value_json
FROM shared_state_rows WHERE home_id = this_home();
