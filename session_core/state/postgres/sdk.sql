-- name: list_to_delete
SELECT id, {live}, tool_calls FROM messages
WHERE session_id = :session AND id IN (SELECT id FROM list_ids(:ids))

-- name: subtract_counts
UPDATE sessions SET message_count = greatest(coalesce(message_count, 0) - :messages, 0),
    tool_call_count = greatest(coalesce(tool_call_count, 0) - :tool_calls, 0)
WHERE id = :id
