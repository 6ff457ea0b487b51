-- name: get_session
SELECT * FROM sessions WHERE id = ?

-- name: has_session
SELECT 1 FROM sessions WHERE id = ?

-- name: find_by_prefix
SELECT id FROM sessions WHERE id >= :prefix AND id < :prefix || char(1114111)
    -- A subagent `NAME#SUBPATH` of a session that matches too.
    AND NOT EXISTS (
        SELECT 1 FROM sessions AS root
        WHERE instr(sessions.id, '#') > length(:prefix)
            AND root.id = substr(sessions.id, 1, instr(sessions.id, '#') - 1)
    )
ORDER BY id LIMIT 6

-- name: end_session
UPDATE sessions SET ended_at = :now, end_reason = :reason WHERE id = :id AND ended_at IS NULL

-- name: promote_session
UPDATE sessions SET ended_at = :now, end_reason = :reason
WHERE id = :id AND (ended_at IS NULL OR end_reason IN ('agent_close', 'ws_orphan_reap'))

-- name: reopen_session
UPDATE sessions SET ended_at = NULL, end_reason = NULL WHERE id = ?

-- name: set_archived
UPDATE sessions SET archived = :archived WHERE id = :id AND archived IS NOT :archived

-- name: get_revision
WITH live AS (
    SELECT count(*) AS rows, max(id) AS last FROM messages WHERE session_id = :id AND {live}
)
SELECT max(
        coalesce(live.last, 0),
        coalesce((SELECT max(id) FROM messages WHERE session_id = :id AND active = 0), 0),
        coalesce((SELECT max(id) FROM messages WHERE session_id = :id AND active < 0), 0),
        coalesce((SELECT max(id) FROM messages WHERE session_id = :id AND active > 1), 0)
    ),
    live.rows,
    (SELECT count(*) FROM messages WHERE session_id = :id AND {compacted}),
    rewind_count, ended_at
FROM sessions, live WHERE sessions.id = :id

-- name: get_meta
SELECT value FROM state_meta WHERE key = ?

-- name: set_meta
INSERT INTO state_meta (key, value) VALUES (?, ?)
ON CONFLICT(key) DO UPDATE SET value = excluded.value

-- name: delete_meta
DELETE FROM state_meta WHERE key = ?

-- name: get_title
SELECT title FROM sessions WHERE id = ?

-- name: get_holder
SELECT id FROM sessions WHERE title = :title AND id <> :id ORDER BY started_at DESC LIMIT 1

-- name: set_title
UPDATE sessions SET title = :title WHERE id = :id

-- name: get_by_title
SELECT * FROM sessions WHERE title = ? ORDER BY started_at DESC LIMIT 1

-- name: list_titles_beginning
SELECT title, id FROM sessions
WHERE title >= :begin AND title < :begin || char(1114111)
ORDER BY started_at DESC, id DESC
