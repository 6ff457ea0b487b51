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

-- name: find_newest_child
SELECT child.id FROM sessions AS child WHERE child.parent_session_id = ? AND {continues}
ORDER BY child.started_at DESC, child.id DESC LIMIT 1

-- name: has_messages
SELECT 1 FROM messages WHERE session_id = ? LIMIT 1

-- name: list_above
WITH RECURSIVE above(id) AS (
    SELECT parent_session_id FROM sessions WHERE id = ?
    UNION
    SELECT s.parent_session_id FROM sessions s JOIN above ON s.id = above.id
)
SELECT id FROM above WHERE id IS NOT NULL

-- name: list_heirs
-- Continuations of matching sessions that have no values of their own in these columns, from parent
-- to child. `lineage.classify_link` uses the same rule for continuations.
WITH RECURSIVE heirs(id) AS (
    SELECT child.id FROM sessions AS child JOIN sessions AS s ON s.id = child.parent_session_id
    WHERE child.parent_session_id > '' -- a range, so that the index of parents is used
      AND s.end_reason = 'compression'
      AND {child_lacks} AND {continues} AND {matches}
    UNION
    SELECT child.id FROM heirs
    JOIN sessions AS parent ON parent.id = heirs.id
    JOIN sessions AS child ON child.parent_session_id = parent.id
    WHERE parent.end_reason = 'compression' AND {child_lacks} AND {continues}
)
SELECT json_group_array(id) FROM heirs

-- name: continues
child.source <> 'tool' AND CASE
    WHEN coalesce(
        instr(child.model_config, '_branched_from') + instr(child.model_config, '_delegate_from'), 0
    ) = 0 THEN 1
    WHEN json_valid(child.model_config)
    THEN coalesce(
        json_extract(child.model_config, '$._branched_from'),
        json_extract(child.model_config, '$._delegate_from')
    ) IS NULL
    ELSE 1
END

-- name: get_owner
SELECT user_id, {} AS chat_id FROM sessions WHERE id = ?

-- name: get_origin
SELECT source, {} AS git_repo_root, {} AS cwd FROM sessions WHERE id = ?
