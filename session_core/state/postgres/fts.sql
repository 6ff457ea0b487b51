-- name: get_change_number
SELECT 0

-- name: list_changed
SELECT message_id FROM text_queue WHERE home_id = this_home() ORDER BY message_id DESC LIMIT :rows

-- name: list_changed_sizes
SELECT id, coalesce(length(content), 0) + coalesce(length(tool_calls), 0) FROM messages
WHERE id IN (SELECT id FROM list_ids(:ids)) AND id <= :mark ORDER BY id

-- name: get_top
SELECT coalesce(max(id), 0) FROM messages
