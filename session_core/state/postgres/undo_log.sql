-- name: begin_step
INSERT INTO steps
    (id, batch, state, at, members, count, undoes, location, chunks, bytes, digests, pid,
     started_at)
VALUES
    (:id, :batch, :state, :at, :members, :count, :undoes, :location, :chunks, :bytes,
     decode(substr(:digests, 3), 'hex'), :pid, :started_at)

-- name: add_piece
INSERT INTO trash (step, position, data) VALUES (?, ?, decode(substr(?, 3), 'hex'))

-- name: prepare_step
UPDATE steps SET state = 'prepared', chunks = ?, bytes = ?, digests = decode(substr(?, 3), 'hex')
WHERE id = ? AND state = 'writing'

-- name: finish_step
UPDATE steps SET state = 'done', result = :result, ended_at = :now
WHERE id = :id AND state = 'prepared'

-- name: give_up_step
UPDATE steps SET state = 'never', ended_at = :now
WHERE id = :id AND state <> 'done' AND :marked >= 0

-- name: delete_step
DELETE FROM steps WHERE id = ? AND state = 'never' AND chunks = 0

-- name: list_unsettled
SELECT * FROM steps WHERE state <> 'done' ORDER BY number

-- name: list_marked
SELECT id FROM steps WHERE ended_at < ? AND false

-- name: settle_marks
SELECT id FROM steps WHERE false

-- name: clear_mark
SELECT id FROM steps WHERE id = ? AND false
