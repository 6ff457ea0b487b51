-- name: list_active
SELECT s.id, coalesce(s.active_at, s.started_at) FROM session_rows AS s
WHERE s.home_id = this_home() AND /*filter*/ 1
    AND (coalesce(s.active_at, s.started_at), s.id) < (:edge::double precision, :edge_id)
ORDER BY coalesce(s.active_at, s.started_at) DESC, s.id DESC LIMIT :rows

-- name: list_started
SELECT id, started_at, parent_session_id, end_reason FROM sessions
WHERE (started_at, id) < (:edge::double precision, :edge_id)
ORDER BY started_at DESC, id DESC LIMIT :rows

-- name: list_sizes
SELECT s.id, s.live_rows FROM session_rows AS s
WHERE s.home_id = this_home() AND /*filter*/ 1
    AND (s.live_rows, s.id) < (:edge::double precision, :edge_id)
ORDER BY s.live_rows DESC, s.id DESC LIMIT :rows

-- name: list_amounts
SELECT id, amount FROM (
    SELECT s.id AS id, /*amount*/ 0 AS amount FROM sessions s WHERE /*filter*/ 1
) AS listed
WHERE (amount, id) < (:edge::double precision, :edge_id)
ORDER BY amount DESC, id DESC LIMIT :rows

-- name: amount_of_conversation
{own} + CASE WHEN s.parent_session_id IS NULL THEN 0 ELSE (
    SELECT coalesce(sum({earlier}::double precision), 0)
    FROM list_continued(s.id) AS above(id) JOIN sessions AS earlier ON earlier.id = above.id
) END

-- name: get_activity
SELECT coalesce(active_at, started_at) FROM session_rows WHERE home_id = this_home() AND id = :id

-- name: get_preview
SELECT early.id, content FROM (
    SELECT id FROM (
        SELECT id FROM messages WHERE session_id = ? ORDER BY timestamp, id LIMIT 1000
    ) AS oldest ORDER BY id LIMIT 200
) AS early JOIN messages ON messages.id = early.id
WHERE role = 'user' AND {visible} AND content IS NOT NULL ORDER BY early.id LIMIT 1
