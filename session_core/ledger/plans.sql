-- name: add_plan
INSERT INTO plans (handle, kind, state, about, cutoff, created_at, expires_at)
VALUES (:handle, :kind, 'planned', :about, :cutoff, :now, :expires_at)

-- name: add_member
INSERT INTO members (plan, position, id, revision, why) VALUES (?, ?, ?, ?, ?)

-- name: forget_members
DELETE FROM members WHERE plan IN (SELECT handle FROM plans WHERE expires_at < ?)

-- name: forget_plans
DELETE FROM plans WHERE expires_at < ?

-- name: get_plan
SELECT * FROM plans WHERE handle = ?

-- name: get_state
SELECT state FROM plans WHERE handle = ?

-- name: get_recorded
SELECT json_extract(about, path) FROM plans, (SELECT ? AS path) AS wanted
WHERE batch IS NOT NULL AND json_type(about, path) IS NOT NULL ORDER BY created_at DESC LIMIT 1

-- name: list_names
SELECT handle FROM plans ORDER BY created_at DESC LIMIT 1000

-- name: list_members
SELECT id, revision, why, step, skipped, half FROM members WHERE plan = ? ORDER BY position

-- name: list_results
SELECT plans.result FROM plans LEFT JOIN batches ON batches.id = plans.batch
WHERE plans.kind = :kind AND plans.state = 'finished' AND batches.undone_at IS NULL
  AND EXISTS (SELECT 1 FROM members WHERE members.plan = plans.handle
              AND members.id IN (SELECT value FROM json_each(:members)))
ORDER BY batches.number DESC LIMIT :limit

-- name: begin_plan
UPDATE plans SET state = :state, batch = :batch, about = :about
WHERE handle = :handle

-- name: end_plan
UPDATE plans SET state = :state, result = :result WHERE handle = :handle

-- name: stop_plan
UPDATE plans SET state = CASE state WHEN 'applying' THEN 'stopping' ELSE 'closed' END
WHERE handle = ?

-- name: list_stopped
SELECT * FROM plans
WHERE state = 'stopping' OR (state = 'applying' AND expires_at <= ?) ORDER BY created_at

-- name: list_applied
SELECT * FROM plans
WHERE kind = ? AND state = 'applying' AND expires_at > ? ORDER BY created_at DESC

-- name: skip_member
UPDATE members SET skipped = :why, half = :half
WHERE plan = :plan AND id = :id AND step IS NULL AND skipped IS NULL

-- name: is_open
SELECT EXISTS (SELECT 1 FROM members
               WHERE plan = ? AND id = ? AND skipped IS NULL)

-- name: list_halves
SELECT plans.handle, plans.batch, id, revision, why, step, skipped, half
FROM members JOIN plans ON plans.handle = members.plan
WHERE half ORDER BY plans.created_at, position

-- name: end_half
UPDATE members SET half = 0, skipped = skipped || :more WHERE plan = :plan AND id = :id AND half

-- name: end_halves
UPDATE members SET half = 0
WHERE half AND plan IN (SELECT handle FROM plans WHERE batch = ?)

-- name: is_named
SELECT EXISTS (SELECT 1 FROM members WHERE plan = ? AND id = ?)

-- name: claim_member
UPDATE members SET step = :step
WHERE plan = :plan AND id = :id AND step IS NULL AND skipped IS NULL

-- name: release_members
UPDATE members SET step = NULL, skipped = :skipped WHERE step = :step
