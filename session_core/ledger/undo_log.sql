-- name: begin_step
INSERT INTO steps
    (id, batch, state, at, members, count, undoes, location, chunks, bytes, digests, pid,
     started_at)
VALUES
    (:id, :batch, :state, :at, :members, :count, :undoes, :location, :chunks, :bytes, :digests,
     :pid, :started_at)

-- name: add_piece
INSERT INTO trash (step, position, data) VALUES (?, ?, ?)

-- name: prepare_step
UPDATE steps SET state = 'prepared', chunks = ?, bytes = ?, digests = ?
WHERE id = ? AND state = 'writing'

-- name: get_plan_of_open_batch
SELECT plan FROM batches
WHERE id = ? AND emptied_at IS NULL
  AND NOT EXISTS (SELECT 1 FROM steps WHERE steps.batch = batches.id AND undone_at IS NOT NULL)

-- name: is_being_undone
SELECT EXISTS (SELECT 1 FROM steps WHERE undoes = ? AND state <> 'never'
               AND json_extract(result, '$.left') IS NULL)

-- name: finish_step
UPDATE steps SET state = 'done', marked = 1, result = :result, ended_at = :now
WHERE id = :id AND state = 'prepared'

-- name: undo_step
UPDATE steps SET undone_at = :now
WHERE id = (SELECT undoes FROM steps WHERE id = :id AND json_extract(result, '$.left') IS NULL)

-- name: undo_batch
UPDATE batches SET undone_at = :now
WHERE undone_at IS NULL
  AND id = (SELECT undone.batch FROM steps JOIN steps AS undone ON undone.id = steps.undoes
            WHERE steps.id = :id)
  AND NOT EXISTS (SELECT 1 FROM steps WHERE steps.batch = batches.id
                  AND steps.state <> 'never' AND steps.undone_at IS NULL)

-- name: note_steps_undone
UPDATE steps SET undone_at = :now
WHERE batch = :batch AND undone_at IS NULL AND id IN (SELECT value FROM json_each(:steps))

-- name: note_batch_undone
UPDATE batches SET undone_at = :now
WHERE id = :batch AND undone_at IS NULL
  AND NOT EXISTS (SELECT 1 FROM steps WHERE steps.batch = batches.id
                  AND steps.state <> 'never' AND steps.undone_at IS NULL)

-- name: give_up_step
UPDATE steps SET state = 'never', marked = max(marked, :marked), ended_at = :now
WHERE id = :id AND state <> 'done'

-- name: delete_step
DELETE FROM steps WHERE id = ? AND state = 'never' AND NOT marked AND chunks = 0

-- name: list_unsettled
SELECT * FROM steps WHERE state <> 'done' AND (state <> 'never' OR chunks > 0 OR NOT marked)
ORDER BY number

-- name: list_marked
SELECT id FROM steps WHERE marked AND (state = 'done' OR ended_at < ?) ORDER BY number

-- name: settle_marks
UPDATE steps SET marked = 2 WHERE marked = 1

-- name: clear_mark
UPDATE steps SET marked = 0 WHERE id = ?
