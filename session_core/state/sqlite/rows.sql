-- name: list_routes
SELECT * FROM gateway_routing
WHERE CASE WHEN json_valid(entry_json) THEN json_extract(entry_json, '$.session_id') END
    IN (SELECT value FROM json_each(?))
ORDER BY scope, session_key

-- name: among_ids
id IN (SELECT value FROM json_each(?)) ORDER BY id

-- name: list_ids_after
SELECT id FROM messages WHERE session_id = ? AND id > ? ORDER BY id LIMIT ?

-- name: count_flags
SELECT count(*), coalesce(sum({live}), 0), coalesce(sum({compacted}), 0) FROM messages
WHERE id IN (SELECT value FROM json_each(:ids)) AND session_id = :session

-- name: get_last_without
SELECT max(id) FROM messages
WHERE session_id = :session AND id NOT IN (SELECT value FROM json_each(:ids))

-- name: is_any_there
SELECT EXISTS (SELECT 1 FROM messages WHERE id IN (SELECT value FROM json_each(?)))

-- name: is_referred_to
SELECT 1 WHERE EXISTS (SELECT 1 FROM messages WHERE session_id = :id)
    OR EXISTS (SELECT 1 FROM session_model_usage WHERE session_id = :id)
    OR EXISTS (SELECT 1 FROM sessions WHERE parent_session_id = :id AND id <> :id)

-- name: move_last
UPDATE sessions SET rowid = (SELECT max(rowid) FROM sessions) + 1 WHERE id = ?
