-- name: find_messages
SELECT * FROM messages WHERE id IN (SELECT id FROM list_ids(?))

-- name: list_live
SELECT * FROM messages WHERE session_id = :id AND {live}
ORDER BY id LIMIT nullif(:limit, -1) OFFSET :offset

-- name: list_all
SELECT * FROM messages WHERE session_id = :id
ORDER BY id LIMIT nullif(:limit, -1) OFFSET :offset

-- name: count_restored
UPDATE sessions SET message_count = greatest(coalesce(message_count, 0), :messages),
    tool_call_count = greatest(coalesce(tool_call_count, 0), :tool_calls)
WHERE id = :id
