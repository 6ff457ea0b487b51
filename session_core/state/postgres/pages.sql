-- name: filter_roles
SELECT id FROM messages WHERE id IN (SELECT value::bigint FROM json_each(:ids))
    AND role IN (SELECT value FROM json_each(:roles))

-- name: list_rows
SELECT * FROM messages WHERE id IN (SELECT value::bigint FROM json_each(?)) ORDER BY id
