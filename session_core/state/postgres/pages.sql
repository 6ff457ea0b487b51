-- name: filter_roles
SELECT id FROM messages WHERE id IN (SELECT id FROM list_ids(:ids))
    AND role IN (SELECT value FROM json_each(:roles))

-- name: list_rows
SELECT * FROM messages WHERE id IN (SELECT id FROM list_ids(?)) ORDER BY id

-- name: has_any_before
-- Without an order, the planner may read the whole table up to the first match.
SELECT 1 FROM messages WHERE id < ? ORDER BY id DESC LIMIT 1

-- name: has_any_after
SELECT 1 FROM messages WHERE id > ? ORDER BY id LIMIT 1

-- name: has_live_before
SELECT 1 FROM messages WHERE session_id = :id AND {live} AND id < :edge ORDER BY id DESC LIMIT 1

-- name: has_live_after
SELECT 1 FROM messages WHERE session_id = :id AND {live} AND id > :edge ORDER BY id LIMIT 1

-- name: has_compacted_before
SELECT 1 FROM messages WHERE session_id = :id AND {compacted} AND id < :edge ORDER BY id DESC LIMIT 1

-- name: has_compacted_after
SELECT 1 FROM messages WHERE session_id = :id AND {compacted} AND id > :edge ORDER BY id LIMIT 1
