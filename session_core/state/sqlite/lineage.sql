-- name: get_link
SELECT s.id, s.source, s.parent_session_id, s.started_at, s.ended_at, s.end_reason, s.model_config,
       p.id AS parent, p.end_reason AS parent_reason, p.ended_at AS parent_ended_at
FROM sessions s LEFT JOIN sessions p ON p.id = s.parent_session_id WHERE s.id = ?

-- name: list_child_links
SELECT s.id, s.source, s.parent_session_id, s.started_at, s.ended_at, s.end_reason, s.model_config,
       p.id AS parent, p.end_reason AS parent_reason, p.ended_at AS parent_ended_at
FROM sessions s JOIN sessions p ON p.id = s.parent_session_id WHERE s.parent_session_id = ?

-- name: list_children
SELECT * FROM sessions WHERE parent_session_id = ? ORDER BY started_at, id

-- name: list_unlinked_delegates
SELECT id, model_config FROM sessions
WHERE instr(model_config, '_delegate_from') AND parent_session_id IS NULL AND typeof(id) = 'text'

-- name: get_last_time
SELECT max(timestamp) FROM messages WHERE session_id = ?

-- name: get_parent
SELECT parent_session_id FROM sessions WHERE id = ?

-- name: has_child
SELECT 1 FROM sessions WHERE parent_session_id = ? LIMIT 1

-- name: list_above
WITH RECURSIVE above(id) AS (
    SELECT parent_session_id FROM sessions WHERE id = ?
    UNION
    SELECT s.parent_session_id FROM sessions s JOIN above ON s.id = above.id
)
SELECT id FROM above WHERE id IS NOT NULL
