-- name: list_sessions
SELECT {columns} FROM sessions

-- name: count_messages
SELECT session_id, active, count(*), max(id),
    CASE WHEN active = 0 THEN (
        SELECT count(*) FROM messages WHERE session_id = counted.session_id AND {compacted}
    ) ELSE 0 END,
    (SELECT max(timestamp) FROM messages WHERE session_id = counted.session_id AND timestamp < '')
FROM messages AS counted GROUP BY session_id, active
