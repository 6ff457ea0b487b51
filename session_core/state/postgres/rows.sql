-- name: among_ids
id IN (SELECT id FROM list_ids(?)) ORDER BY id

-- name: list_routes
SELECT * FROM gateway_routing
WHERE get_json_text(entry_json, 'session_id') IN (SELECT value FROM json_each(?))
ORDER BY scope, session_key

-- name: count_flags
SELECT count(*), count(*) FILTER (WHERE {live}), count(*) FILTER (WHERE {compacted}) FROM messages
WHERE id IN (SELECT id FROM list_ids(:ids)) AND session_id = :session

-- name: get_last_without
SELECT max(id) FROM messages
WHERE session_id = :session AND id NOT IN (SELECT id FROM list_ids(:ids))

-- name: is_any_there
SELECT EXISTS (
    SELECT 1 FROM messages WHERE id IN (SELECT id FROM list_ids(?))
)

-- name: is_referred_to
SELECT 1 WHERE EXISTS (SELECT 1 FROM messages WHERE session_id = :id)
    OR EXISTS (SELECT 1 FROM session_model_usage WHERE session_id = :id)
    OR EXISTS (SELECT 1 FROM ms_session_state WHERE session_id = :id)
    OR EXISTS (SELECT 1 FROM sessions WHERE parent_session_id = :id AND id <> :id)
