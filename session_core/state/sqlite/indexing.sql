-- name: get_mark
SELECT value FROM state_meta WHERE key = 'mcp_sessions_found_to'

-- name: set_mark
INSERT INTO state_meta VALUES ('mcp_sessions_found_to', ?)
ON CONFLICT (key) DO UPDATE SET value = excluded.value

-- name: empty_index
INSERT INTO ms_index(ms_index) VALUES ('delete-all')

-- name: get_top
SELECT max(coalesce(max(id), 0), 0) FROM messages

-- name: list_tail
SELECT id, content, tool_name, tool_calls FROM messages WHERE id >= ? ORDER BY id LIMIT ?

-- name: list_rows
SELECT id, content, tool_name, tool_calls FROM messages
WHERE id IN (SELECT value FROM json_each(:ids)) AND id <= :mark

-- name: add_text
INSERT INTO ms_index(rowid, body) VALUES (?, ?)

-- name: remove_text
INSERT INTO ms_index(ms_index, rowid, body) VALUES ('delete', ?, ?)
