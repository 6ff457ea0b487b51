-- name: list_led
SELECT DISTINCT get_json_text(entry_json, 'session_id') FROM gateway_routing

-- name: list_routes
SELECT session_key, entry_json FROM route_rows
WHERE home_id = this_home() AND scope = ? ORDER BY place

-- name: put_route
INSERT INTO route_rows (scope, session_key, entry_json, updated_at)
VALUES (:scope, :key, :entry, :now)
ON CONFLICT (home_id, scope, session_key)
DO UPDATE SET entry_json = excluded.entry_json, updated_at = excluded.updated_at

-- name: dump_routes
SELECT place, session_key, to_json(session_key)::text || ': ' || entry_json FROM route_rows
WHERE home_id = this_home() AND place > :after AND scope = :scope
    AND substr(session_key, 1, 1) <> '_' AND parse_json(entry_json) IS NOT NULL
ORDER BY place LIMIT :limit

-- name: find_by_key
SELECT * FROM sessions WHERE source = :source AND session_key = :session_key
    AND end_reason IS DISTINCT FROM 'session_switch'
    AND EXISTS (SELECT 1 FROM messages WHERE messages.session_id = sessions.id)
    AND (:ended_as::text IS NULL OR end_reason IS NULL
        OR end_reason IN (SELECT value FROM json_each(:ended_as)))
    AND (:older_than::text IS NULL
        OR (started_at, id) < (SELECT started_at, id FROM sessions WHERE id = :older_than))
ORDER BY started_at DESC, id DESC LIMIT 1

-- name: find_by_peer
SELECT * FROM sessions WHERE source = :source
    AND coalesce(user_id, '') = :user_id AND coalesce(chat_id, '') = :chat_id
    AND coalesce(chat_type, '') = :chat_type AND coalesce(thread_id, '') = :thread_id
    AND end_reason IS DISTINCT FROM 'session_switch'
    AND EXISTS (SELECT 1 FROM messages WHERE messages.session_id = sessions.id)
    AND (:ended_as::text IS NULL OR end_reason IS NULL
        OR end_reason IN (SELECT value FROM json_each(:ended_as)))
    AND (:older_than::text IS NULL
        OR (started_at, id) < (SELECT started_at, id FROM sessions WHERE id = :older_than))
ORDER BY started_at DESC, id DESC LIMIT 1
