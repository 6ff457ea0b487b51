-- name: filter_roles
SELECT id FROM messages WHERE id IN (SELECT id FROM list_ids(:ids))
    AND role IN (SELECT value FROM json_each(:roles))

-- name: list_rows
SELECT * FROM messages WHERE id IN (SELECT id FROM list_ids(?)) ORDER BY id
