-- name: get_route
SELECT entry_json FROM gateway_routing WHERE scope = :scope AND session_key = :key

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
DELETE FROM gateway_routing WHERE scope = :scope AND session_key = :key AND entry_json = :expect

-- name: dump_routes
SELECT json_quote(session_key) || ': ' || entry_json FROM gateway_routing
WHERE +scope = :scope AND json_valid(entry_json) AND substr(session_key, 1, 1) <> '_'
    AND session_key NOT IN (SELECT value FROM json_each(:without)) ORDER BY rowid

-- name: find_by_key
SELECT * FROM sessions WHERE source = :source AND session_key = :session_key
    AND end_reason IS NOT 'session_switch'
    AND EXISTS (SELECT 1 FROM messages WHERE messages.session_id = sessions.id)
ORDER BY started_at DESC, id DESC LIMIT 1

-- name: find_by_peer
SELECT * FROM sessions WHERE source = :source
    AND coalesce(user_id, '') = :user_id AND coalesce(chat_id, '') = :chat_id
    AND coalesce(chat_type, '') = :chat_type AND coalesce(thread_id, '') = :thread_id
    AND end_reason IS NOT 'session_switch'
    AND EXISTS (SELECT 1 FROM messages WHERE messages.session_id = sessions.id)
ORDER BY started_at DESC, id DESC LIMIT 1
