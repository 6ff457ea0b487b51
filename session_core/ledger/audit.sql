-- name: add_line
INSERT INTO audit (at, client, what, plan, counts)
SELECT :at, :client, :what, :plan, :counts
WHERE :plan IS NULL OR NOT EXISTS (SELECT 1 FROM audit WHERE plan = :plan AND what = :what)

-- name: list_lines
SELECT number, at, client, what, plan, counts FROM audit WHERE number < ?
ORDER BY number DESC LIMIT ?
