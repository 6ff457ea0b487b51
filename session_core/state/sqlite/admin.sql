-- name: list_orphans
SELECT id FROM sessions
WHERE api_call_count = 0 AND end_reason IS NULL AND ended_at IS NULL AND started_at < :before
  AND EXISTS (
      SELECT 1 FROM sessions AS parent
      WHERE parent.id = sessions.parent_session_id
        AND parent.end_reason = 'compression' AND parent.ended_at IS NOT NULL
  )
  AND EXISTS (SELECT 1 FROM messages WHERE messages.session_id = sessions.id)

-- name: finalize
UPDATE sessions SET ended_at = :now, end_reason = 'orphaned_compression'
WHERE id IN (SELECT value FROM json_each(:ids))

-- name: list_ghosts
SELECT id FROM sessions
WHERE source = 'tui' AND title IS NULL AND ended_at IS NOT NULL AND started_at < :before
  AND NOT EXISTS (SELECT 1 FROM messages WHERE messages.session_id = sessions.id)
  AND NOT EXISTS (SELECT 1 FROM sessions AS child WHERE child.parent_session_id = sessions.id)

-- name: get_empty
SELECT 1 FROM sessions
WHERE id = ? AND title IS NULL
  AND NOT EXISTS (SELECT 1 FROM messages WHERE messages.session_id = sessions.id)
  AND NOT EXISTS (SELECT 1 FROM sessions AS child WHERE child.parent_session_id = sessions.id)

-- name: list_children
SELECT id, model_config FROM sessions WHERE parent_session_id = ? AND id <> ?1

-- name: list_rows
SELECT id, coalesce(length(CAST(content AS BLOB)), 0) + coalesce(length(tool_calls), 0)
    + {payload_bytes}
FROM messages WHERE session_id = ?

-- name: delete_rows
DELETE FROM messages WHERE id IN (SELECT value FROM json_each(?))

-- name: detach_children
UPDATE sessions SET parent_session_id = NULL WHERE parent_session_id = ?

-- name: delete_session
DELETE FROM sessions WHERE id = ?

-- name: list_columns_of_sessions
SELECT tables.name, columns.name
FROM sqlite_master AS tables, pragma_table_info(tables.name) AS columns
WHERE tables.type = 'table' AND tables.sql NOT LIKE 'CREATE VIRTUAL%'
  AND columns.name = 'session_id' COLLATE NOCASE
UNION
SELECT tables.name, keys."from"
FROM sqlite_master AS tables, pragma_foreign_key_list(tables.name) AS keys
WHERE tables.type = 'table' AND tables.sql NOT LIKE 'CREATE VIRTUAL%'
  AND keys."table" = 'sessions' COLLATE NOCASE
  AND coalesce(keys."to", 'id') = 'id' COLLATE NOCASE

-- name: get_counters
SELECT message_count, tool_call_count FROM sessions WHERE id = ?

-- name: count_live
SELECT count(*), coalesce(max(id), 0) FROM messages WHERE session_id = ? AND {live}

-- name: count_tool_calls
SELECT coalesce(sum(CASE
    WHEN tool_calls IS NULL OR NOT json_valid(tool_calls) THEN 0
    WHEN json_type(tool_calls) = 'array' THEN json_array_length(tool_calls)
    WHEN json_type(tool_calls) = 'object' THEN 1
    ELSE 0
END), 0)
FROM messages
WHERE session_id = ? AND {live} AND tool_calls IS NOT NULL

-- name: set_counters
UPDATE sessions SET message_count = :messages, tool_call_count = :tool_calls WHERE id = :id

-- name: list_drifted
SELECT sessions.id
FROM sessions LEFT JOIN (
    SELECT session_id, count(*) AS live FROM messages WHERE {live} GROUP BY session_id
) AS counted ON counted.session_id = sessions.id
WHERE sessions.message_count IS NOT coalesce(counted.live, 0)
ORDER BY sessions.id LIMIT ?

-- name: list_keyed_to_sessions
SELECT DISTINCT tables.name, keys."from"
FROM sqlite_master AS tables, pragma_foreign_key_list(tables.name) AS keys
WHERE tables.type = 'table' AND tables.sql NOT LIKE 'CREATE VIRTUAL%'
  AND tables.name <> 'sessions'
  AND keys."table" = 'sessions' AND coalesce(keys."to", 'id') = 'id'
ORDER BY tables.name

-- name: has_index
SELECT 1 FROM pragma_index_list(:table) AS listed, pragma_index_info(listed.name) AS columns
WHERE listed.partial = 0 AND columns.seqno = 0 AND columns.name = :column

-- name: scan_orphans
SELECT {column}, count(*), {last_at} FROM {table}
WHERE {column} IS NOT NULL
  AND NOT EXISTS (SELECT 1 FROM sessions WHERE sessions.id = {table}.{column})
GROUP BY {column} LIMIT :most

-- name: list_orphan_rows
-- Skips from one session to the next in the index, however many rows lie between them.
WITH RECURSIVE owners(id) AS (
    SELECT min({column}) FROM {table}
    UNION ALL
    SELECT (SELECT min({column}) FROM {table} WHERE {column} > owners.id)
    FROM owners WHERE owners.id IS NOT NULL
)
SELECT owners.id, (SELECT count(*) FROM {table} WHERE {column} = owners.id),
    (SELECT {last_at} FROM {table} WHERE {column} = owners.id)
FROM owners
WHERE owners.id IS NOT NULL AND NOT EXISTS (SELECT 1 FROM sessions WHERE sessions.id = owners.id)
LIMIT :most

-- name: list_compression_locks
SELECT session_id, holder, acquired_at, expires_at FROM compression_locks

-- name: list_turn_leases
SELECT conversation_id, holder, acquired_at, expires_at FROM session_turn_leases

-- name: list_heartbeats
SELECT backend_id, pid, host, last_heartbeat FROM gateway_heartbeats

-- name: total
total({})

-- name: link_marks
CASE WHEN instr(model_config, '_delegate_from') OR parent_session_id IS NOT NULL
    THEN model_config END

-- name: sum_usage
SELECT {sums}, total(coalesce({actual}, {estimated})) FROM sessions

-- name: get_ends
SELECT min(id), max(id) FROM messages

-- name: get_time_at
SELECT max(timestamp) FROM (
    SELECT timestamp FROM messages WHERE id <= :id AND timestamp < '' ORDER BY id DESC LIMIT :run
)

-- name: list_sessions
SELECT {columns} FROM sessions

-- name: count_messages
SELECT session_id, active, count(*), max(id),
    CASE WHEN active = 0 THEN (
        SELECT count(*) FROM messages WHERE session_id = counted.session_id AND {compacted}
    ) ELSE 0 END,
    (SELECT max(timestamp) FROM messages WHERE session_id = counted.session_id AND timestamp < '')
FROM messages AS counted GROUP BY session_id, active

-- name: list_sources
SELECT DISTINCT source FROM sessions WHERE typeof(source) = 'text' ORDER BY source

-- name: list_folders
SELECT DISTINCT folder FROM ({folders}) WHERE typeof(folder) = 'text' AND folder <> '' ORDER BY folder
