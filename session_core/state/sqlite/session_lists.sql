-- name: list_active
SELECT id, active_at FROM (
    SELECT s.id AS id, coalesce(
        (SELECT max(timestamp) FROM messages m WHERE m.session_id = s.id AND timestamp < ''),
        s.started_at + 0.0
    ) AS active_at
    FROM sessions s WHERE /*filter*/ 1
) WHERE active_at < :edge OR (active_at = :edge AND id < :edge_id)
ORDER BY active_at DESC, id DESC LIMIT :rows

-- name: list_newest
SELECT s.id, (
    SELECT max(timestamp) FROM messages m WHERE m.session_id = s.id AND timestamp < ''
) AS active_at
FROM sessions s ORDER BY active_at DESC, s.id DESC LIMIT :rows

-- name: list_newest_empty
SELECT s.id, s.started_at + 0.0 FROM sessions s
WHERE s.started_at >= :oldest
  AND NOT EXISTS (SELECT 1 FROM messages m WHERE m.session_id = s.id AND timestamp < '')
ORDER BY s.started_at DESC, s.id DESC LIMIT :rows

-- name: list_started
SELECT id, started_at, parent_session_id, end_reason FROM sessions
WHERE started_at < :edge OR (started_at = :edge AND id < :edge_id)
ORDER BY started_at DESC, id DESC LIMIT :rows

-- name: filter_ids
SELECT s.id FROM sessions s WHERE s.id IN (SELECT value FROM json_each(:tips)) AND /*filter*/ 1

-- name: list_sizes
SELECT id, size FROM (
    SELECT s.id AS id, (
        SELECT count(*) FROM messages m WHERE m.session_id = s.id AND {live}
    ) AS size
    FROM sessions s WHERE /*filter*/ 1
) WHERE size < :edge OR (size = :edge AND id < :edge_id)
ORDER BY size DESC, id DESC LIMIT :rows

-- name: list_amounts
SELECT id, amount FROM (SELECT s.id AS id, /*amount*/ 0 AS amount FROM sessions s WHERE /*filter*/ 1)
WHERE amount < :edge OR (amount = :edge AND id < :edge_id)
ORDER BY amount DESC, id DESC LIMIT :rows

-- name: get_figures
SELECT {cost}, {tokens}, coalesce(
    (SELECT max(timestamp) FROM messages m WHERE m.session_id = s.id AND timestamp < ''),
    s.started_at + 0.0
), (SELECT count(*) FROM messages WHERE session_id = s.id AND {live})
FROM sessions s WHERE s.id = ?

-- name: amount_of_conversation
-- The amount of a session `s` and of all that it continues; few sessions continue another one.
-- A damaged row can contain an infinite amount, which counts as 0.
coalesce(nullif(nullif({own} + CASE WHEN s.parent_session_id IS NULL THEN 0 ELSE (
    WITH RECURSIVE above(id) AS (
        SELECT parent.id FROM sessions AS child
        JOIN sessions AS parent ON parent.id = child.parent_session_id
        WHERE child.id = s.id AND parent.end_reason = 'compression' AND {continues}
        UNION
        SELECT parent.id FROM above JOIN sessions AS child ON child.id = above.id
        JOIN sessions AS parent ON parent.id = child.parent_session_id
        WHERE parent.id <> s.id AND parent.end_reason = 'compression' AND {continues}
    )
    SELECT total({earlier}) FROM above JOIN sessions AS earlier ON earlier.id = above.id
) END, 9e999), -9e999), 0)

-- name: list_ids
SELECT s.id FROM sessions s WHERE /*filter*/ 1 ORDER BY s.started_at, s.id

-- name: count_ids
SELECT count(*) FROM sessions s WHERE /*filter*/ 1

-- name: get_activity
SELECT coalesce(
    (SELECT max(timestamp) FROM messages WHERE session_id = :id AND timestamp < ''),
    started_at + 0.0
) FROM sessions WHERE id = :id

-- name: list_newer
SELECT DISTINCT session_id FROM (
    SELECT session_id FROM messages WHERE id > :since ORDER BY id LIMIT :rows
)

-- name: get_last_session
SELECT rowid, id FROM sessions ORDER BY rowid DESC LIMIT 1

-- name: get_session_at
SELECT id FROM sessions WHERE rowid = ?

-- name: list_stored_since
SELECT id FROM sessions WHERE rowid > ?

-- name: began_within
SELECT (:after IS NULL OR started_at + 0.0 >= :after)
   AND (:before IS NULL OR started_at + 0.0 < :before)
FROM sessions WHERE id = :id

-- name: get_preview
SELECT messages.id, content FROM (
    SELECT id FROM (
        SELECT id FROM messages WHERE session_id = ? ORDER BY timestamp, id LIMIT 1000
    ) ORDER BY id LIMIT 200
) AS early CROSS JOIN messages USING (id)
WHERE role = 'user' AND {visible} AND content IS NOT NULL LIMIT 1
