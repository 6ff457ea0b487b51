-- name: add_line
INSERT INTO audit (at, client, what, plan, counts)
SELECT :at, :client, :what, :plan, :counts
WHERE :client IS NOT NULL AND NOT EXISTS (
    SELECT 1 FROM audit LEFT JOIN plans ON plans.handle = audit.plan
    WHERE plan = :plan AND (what = kind OR what = :what AND (
        client = :client OR kind IS NULL OR :what NOT LIKE kind || ', %'
    ))
)

-- name: change_line
UPDATE audit SET at = :at, what = :what, counts = :counts
WHERE plan = :plan
  AND client = coalesce(
    :client, (SELECT client FROM audit WHERE plan = :plan ORDER BY number DESC LIMIT 1)
  )
  AND what LIKE (SELECT kind || ', %' FROM plans WHERE handle = :plan)

-- name: list_lines
SELECT number, at, client, what, plan, counts FROM audit WHERE number < ?
ORDER BY number DESC LIMIT ?
