-- name: get_mark
SELECT value FROM state_meta WHERE key = 'mcp_sessions_indexed_to'

-- name: set_mark
INSERT INTO state_meta VALUES ('mcp_sessions_indexed_to', ?)
ON CONFLICT (key) DO UPDATE SET value = excluded.value

-- name: empty_index
INSERT INTO ms_index(ms_index) VALUES ('delete-all')

-- name: delete_old_mark
DELETE FROM state_meta WHERE key = 'mcp_sessions_found_to'

-- name: count_triggers
SELECT count(*) FROM sqlite_master
WHERE type = 'trigger' AND name IN ('ms_message_updated', 'ms_message_inserted')

-- name: get_change_number
SELECT coalesce((SELECT seq FROM sqlite_sequence WHERE name = 'ms_changed'), 0)

-- name: list_changed
SELECT DISTINCT id FROM ms_changed LIMIT :rows

-- name: list_changed_sizes
SELECT id, coalesce(length(content), 0) + coalesce(length(tool_calls), 0) FROM messages
WHERE id IN (SELECT value FROM json_each(:ids)) AND id <= :mark ORDER BY id

-- name: delete_changed
DELETE FROM ms_changed
WHERE number > :number AND id IN (SELECT value FROM json_each(:ids))

-- name: delete_changed_between
DELETE FROM ms_changed WHERE id >= :low AND id <= :mark

-- name: delete_all_changed
DELETE FROM ms_changed

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
