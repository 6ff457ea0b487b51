-- name: get_route
SELECT entry_json FROM gateway_routing WHERE scope = :scope AND session_key = :key

-- name: list_led
SELECT DISTINCT CASE WHEN json_valid(entry_json) THEN json_extract(entry_json, '$.session_id') END
FROM gateway_routing

-- name: list_routes
SELECT session_key, entry_json FROM gateway_routing WHERE +scope = ? ORDER BY rowid

-- name: list_scopes
SELECT scope, count(*) FROM gateway_routing GROUP BY scope ORDER BY max(updated_at) DESC

-- name: put_route
INSERT INTO gateway_routing (scope, session_key, entry_json, updated_at)
VALUES (:scope, :key, :entry, :now)
ON CONFLICT (scope, session_key)
DO UPDATE SET entry_json = excluded.entry_json, updated_at = excluded.updated_at

-- name: delete_route
DELETE FROM gateway_routing WHERE scope = :scope AND session_key = :key

-- name: dump_routes
SELECT rowid, session_key, json_quote(session_key) || ': ' || entry_json FROM gateway_routing
WHERE rowid > :after AND +scope = :scope
    AND substr(session_key, 1, 1) <> '_' AND typeof(entry_json) = 'text'
    AND json_valid(entry_json)
ORDER BY rowid LIMIT :limit

-- name: find_by_key
SELECT * FROM sessions WHERE source = :source AND session_key = :session_key
    AND end_reason IS NOT 'session_switch'
    AND EXISTS (SELECT 1 FROM messages WHERE messages.session_id = sessions.id)
    AND (:ended_as IS NULL OR end_reason IS NULL
        OR end_reason IN (SELECT value FROM json_each(:ended_as)))
    AND (:older_than IS NULL
        OR (started_at, id) < (SELECT started_at, id FROM sessions WHERE id = :older_than))
ORDER BY started_at DESC, id DESC LIMIT 1

-- name: find_by_peer
SELECT * FROM sessions WHERE source = :source
    AND coalesce(user_id, '') = :user_id AND coalesce(chat_id, '') = :chat_id
    AND coalesce(chat_type, '') = :chat_type AND coalesce(thread_id, '') = :thread_id
    AND end_reason IS NOT 'session_switch'
    AND EXISTS (SELECT 1 FROM messages WHERE messages.session_id = sessions.id)
    AND (:ended_as IS NULL OR end_reason IS NULL
        OR end_reason IN (SELECT value FROM json_each(:ended_as)))
    AND (:older_than IS NULL
        OR (started_at, id) < (SELECT started_at, id FROM sessions WHERE id = :older_than))
ORDER BY started_at DESC, id DESC LIMIT 1
