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
-- The sums of chains are added up from their starts. So each session is read once, and only one in
-- a cycle, or one that continues nothing, is summed by a walk of its own.
WITH RECURSIVE summed(id, amount) AS (
    SELECT s.id, (/*own*/ 0)::double precision FROM sessions AS s
    WHERE s.end_reason = 'compression' AND NOT EXISTS (
        SELECT FROM sessions AS child JOIN sessions AS parent ON parent.id = child.parent_session_id
        WHERE child.id = s.id AND parent.end_reason = 'compression' AND /*continues*/ true
    )
    UNION ALL
    SELECT step.id, summed.amount + step.amount FROM summed CROSS JOIN LATERAL (
        SELECT child.id, (/*own of child*/ 0)::double precision AS amount
        FROM sessions AS parent, sessions AS child
        WHERE parent.id = summed.id AND child.parent_session_id = parent.id
            AND parent.end_reason = 'compression' AND /*continues*/ true
        OFFSET 0
    ) AS step
)
SELECT id, amount FROM (
    SELECT s.id, coalesce(summed.amount, /*amount*/ 0) AS amount
    FROM sessions AS s LEFT JOIN summed ON summed.id = s.id WHERE /*filter*/ 1
) AS listed
WHERE (amount, id) < (:edge::double precision, :edge_id)
ORDER BY amount DESC, id DESC LIMIT :rows

-- name: amount_of_conversation
{own} + CASE WHEN s.parent_session_id IS NULL THEN 0 ELSE (
    SELECT coalesce(sum({earlier}::double precision), 0)
    FROM list_continued(s.id) AS above(id) JOIN sessions AS earlier ON earlier.id = above.id
) END

-- name: get_figures
SELECT {cost}, {tokens}, coalesce(r.active_at, r.started_at), r.live_rows
FROM sessions AS s JOIN session_rows AS r ON r.home_id = this_home() AND r.id = s.id
WHERE s.id = ?

-- name: get_preview
SELECT id, content FROM (
    SELECT id, role, content, active, compacted FROM messages
    WHERE session_id = ? ORDER BY id LIMIT 200
) AS early
WHERE role = 'user' AND {visible} AND content IS NOT NULL ORDER BY id LIMIT 1
