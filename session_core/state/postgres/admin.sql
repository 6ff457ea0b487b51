-- name: list_children
SELECT id, model_config FROM sessions WHERE parent_session_id = ? AND id <> parent_session_id

-- name: list_rows
SELECT id, coalesce(octet_length(content), 0) + coalesce(length(tool_calls), 0) + {payload_bytes}
FROM messages WHERE session_id = ?

-- name: delete_rows
DELETE FROM messages WHERE id IN (SELECT id FROM list_ids(?))

-- name: list_columns_of_sessions
SELECT belonging.name, belonging.key_column FROM (VALUES
    ('messages', 'session_id'), ('session_model_usage', 'session_id'),
    ('compression_locks', 'session_id'), ('ms_session_state', 'session_id'),
    ('sessions', 'parent_session_id')
) AS belonging(name, key_column)

-- name: count_tool_calls
SELECT coalesce(sum(count_tool_calls(tool_calls)), 0)::bigint FROM messages
WHERE session_id = ? AND {live} AND tool_calls IS NOT NULL

-- name: list_drifted
SELECT id FROM session_rows WHERE home_id = this_home()
    AND message_count IS DISTINCT FROM live_rows
ORDER BY id LIMIT ?

-- name: list_keyed_to_sessions
SELECT keyed.name, keyed.key_column FROM (VALUES
    ('messages', 'session_id'), ('ms_session_state', 'session_id'),
    ('session_model_usage', 'session_id')
) AS keyed(name, key_column)

-- name: has_index
SELECT NULL WHERE :table::text IS NULL AND :column::text IS NULL

-- name: total
coalesce(sum({}), 0)::double precision

-- name: link_marks
CASE WHEN model_config LIKE '%\_delegate\_from%' OR parent_session_id IS NOT NULL
    THEN model_config END

-- name: sum_usage
SELECT {sums}, coalesce(sum(coalesce({actual}, {estimated})), 0)::double precision FROM sessions

-- name: list_sessions
SELECT {columns} FROM session_rows WHERE home_id = this_home() ORDER BY place

-- name: get_time_at
SELECT max(timestamp) FROM (
    SELECT timestamp FROM messages WHERE id <= :id ORDER BY id DESC LIMIT :run
) AS latest

-- name: count_messages
SELECT session_id, active, count(*), max(id),
    count(*) FILTER (WHERE active = 0 AND compacted = 1),
    (SELECT s.active_at FROM session_rows AS s
     WHERE s.home_id = this_home() AND s.id = counted.session_id)
FROM messages AS counted GROUP BY session_id, active

-- name: list_sources
SELECT DISTINCT source FROM sessions ORDER BY source

-- name: list_folders
SELECT DISTINCT folder FROM ({folders}) AS folders
WHERE folder IS NOT NULL AND folder <> '' ORDER BY folder
