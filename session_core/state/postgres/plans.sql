-- name: get_recorded
SELECT json_extract(about, path) FROM plans, (SELECT ?::text AS path) AS wanted
WHERE batch IS NOT NULL AND json_extract(about, path) IS NOT NULL ORDER BY created_at DESC LIMIT 1

-- name: skip_member
UPDATE members SET skipped = :why, half = (:half = 1)
WHERE plan = :plan AND id = :id AND step IS NULL AND skipped IS NULL

-- name: end_half
UPDATE members SET half = false, skipped = skipped || :more
WHERE plan = :plan AND id = :id AND half

-- name: end_halves
UPDATE members SET half = false
WHERE half AND plan IN (SELECT handle FROM plans WHERE batch = ?)
