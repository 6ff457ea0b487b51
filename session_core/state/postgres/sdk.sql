-- name: list_to_delete
SELECT id, {live}, tool_calls FROM messages
WHERE session_id = :session AND id IN (SELECT id FROM list_ids(:ids))

-- name: subtract_counts
UPDATE sessions SET message_count = greatest(coalesce(message_count, 0) - :messages, 0),
    tool_call_count = greatest(coalesce(tool_call_count, 0) - :tool_calls, 0)
WHERE id = :id

-- name: list_newest_live
SELECT id, {payload} FROM messages WHERE session_id = :id AND {live}
ORDER BY id DESC LIMIT nullif(:limit, -1)

-- name: list_newest_payloads
SELECT id, {payload} FROM messages WHERE session_id = :id AND {live} AND {payload} IS NOT NULL
ORDER BY id DESC LIMIT nullif(:limit, -1)
