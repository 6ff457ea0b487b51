-- name: add_batch
INSERT INTO batches (id, what, plan, at, expires_at) VALUES (?, ?, ?, ?, ?)

-- name: get_batch
SELECT * FROM summed_batches WHERE id = ?

-- name: list_names
SELECT id FROM batches ORDER BY number DESC LIMIT 1000

-- name: list_batches
SELECT * FROM summed_batches
WHERE number < :before AND emptied_at IS NULL AND expires_at > :now AND count > 0
    AND (:undone = 1 OR undone_at IS NULL)
    AND NOT EXISTS (SELECT 1 FROM steps WHERE batch = summed_batches.id AND undoes IS NOT NULL)
ORDER BY number DESC LIMIT :limit

-- name: list_steps
SELECT * FROM steps WHERE batch = ? AND state = 'done' ORDER BY number

-- name: get_step
SELECT * FROM steps WHERE id = ?

-- name: get_tried
SELECT result FROM steps WHERE undoes = ? AND state = 'done' ORDER BY number DESC LIMIT 1

-- name: get_holder
SELECT steps.batch FROM steps JOIN batches ON batches.id = steps.batch,
    json_each(steps.result, '$.sessions') AS gone
WHERE steps.state = 'done' AND steps.undone_at IS NULL AND batches.emptied_at IS NULL
    AND batches.expires_at > :now AND gone.value = :session
ORDER BY steps.number DESC LIMIT 1

-- name: get_piece
SELECT data FROM trash WHERE step = ? AND position = ?

-- name: get_digests
SELECT digests FROM steps WHERE id = ?

-- name: count_bytes
SELECT coalesce(sum(bytes), 0) FROM steps

-- name: is_applied
EXISTS (SELECT 1 FROM plans
        WHERE plans.batch = summed_batches.id
            AND (plans.state IN ('applying', 'stopping')
                 OR EXISTS (SELECT 1 FROM members WHERE plan = plans.handle AND half)))

-- name: count_ripe
SELECT count(*) FROM summed_batches WHERE {ripe}

-- name: list_ripe
SELECT * FROM summed_batches WHERE {ripe} ORDER BY number

-- name: mark_emptied
UPDATE batches SET emptied_at = :now
WHERE id IN (SELECT id FROM summed_batches WHERE {ripe})

-- name: list_emptied
SELECT steps.* FROM steps JOIN batches ON batches.id = steps.batch
WHERE (batches.emptied_at IS NOT NULL OR batches.undone_at IS NOT NULL) AND steps.chunks > 0

-- name: forget_digests
UPDATE steps SET digests = x'' WHERE digests <> x'' AND id IN (SELECT value FROM json_each(?))

-- name: list_locations
SELECT DISTINCT location FROM steps WHERE location IS NOT NULL

-- name: delete_pieces
DELETE FROM trash
WHERE (step, position) IN (SELECT step, position FROM trash WHERE step = ? LIMIT 8)

-- name: note_emptied
UPDATE steps SET chunks = 0, bytes = 0 WHERE id = ?
