-- name: find_live_before
SELECT id FROM messages WHERE session_id = :id AND {live} AND id < :edge ORDER BY id DESC LIMIT :rows

-- name: find_live_after
SELECT id FROM messages WHERE session_id = :id AND {live} AND id > :edge ORDER BY id LIMIT :rows

-- name: find_compacted_before
SELECT id FROM messages WHERE session_id = :id AND {compacted} AND id < :edge
ORDER BY id DESC LIMIT :rows

-- name: find_compacted_after
SELECT id FROM messages WHERE session_id = :id AND {compacted} AND id > :edge
ORDER BY id LIMIT :rows

-- name: has_any_before
SELECT 1 FROM messages WHERE id < ? LIMIT 1

-- name: has_any_after
SELECT 1 FROM messages WHERE id > ? LIMIT 1

-- name: has_live_before
SELECT 1 FROM messages WHERE session_id = :id AND {live} AND id < :edge LIMIT 1

-- name: has_live_after
SELECT 1 FROM messages WHERE session_id = :id AND {live} AND id > :edge LIMIT 1

-- name: has_compacted_before
SELECT 1 FROM messages WHERE session_id = :id AND {compacted} AND id < :edge LIMIT 1

-- name: has_compacted_after
SELECT 1 FROM messages WHERE session_id = :id AND {compacted} AND id > :edge LIMIT 1

-- name: filter_roles
SELECT id FROM messages WHERE id IN (SELECT value FROM json_each(:ids))
    AND role IN (SELECT value FROM json_each(:roles))

-- name: list_rows
SELECT * FROM messages WHERE id IN (SELECT value FROM json_each(?)) ORDER BY id

-- name: list_live_conversation
SELECT * FROM messages WHERE session_id IN (SELECT value FROM json_each(?)) AND {live} ORDER BY id

-- name: list_whole_conversation
SELECT * FROM messages WHERE session_id IN (SELECT value FROM json_each(?)) ORDER BY id
