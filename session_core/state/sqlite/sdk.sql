-- name: list_chat_sessions
SELECT * FROM sessions
WHERE chat_id = :chat_id AND source = :source
  AND (:user_id IS NULL OR user_id = :user_id) AND (:thread_id IS NULL OR thread_id = :thread_id)
ORDER BY started_at DESC, id DESC

-- name: list_platform_messages
-- The row that counts comes last: a live one before others, then the newest.
SELECT * FROM messages
WHERE session_id = ? AND platform_message_id IN ({{marks}})
ORDER BY {live}, id

-- name: list_sessions
SELECT * FROM sessions WHERE id IN ({marks})

-- name: list_to_delete
SELECT id, {live}, tool_calls FROM messages
WHERE session_id = :session AND id IN (SELECT value FROM json_each(:ids))

-- name: subtract_counts
UPDATE sessions SET message_count = max(coalesce(message_count, 0) - :messages, 0),
    tool_call_count = max(coalesce(tool_call_count, 0) - :tool_calls, 0)
WHERE id = :id

-- name: get_inactive
SELECT 1 FROM messages WHERE session_id = ? AND NOT {live} LIMIT 1

-- name: list_recent_live
SELECT * FROM messages WHERE session_id = :id AND role = 'user' AND {live}
ORDER BY id DESC LIMIT :limit

-- name: list_recent_all
SELECT * FROM messages WHERE session_id = :id AND role = 'user' ORDER BY id DESC LIMIT :limit

-- name: list_used_folders
SELECT cwd, count(*), max(coalesce(ended_at, started_at)) + 0.0 AS last_active FROM sessions
WHERE cwd IS NOT NULL AND trim(cwd) <> '' {status} GROUP BY cwd ORDER BY last_active DESC, cwd

-- name: list_newest_live
SELECT id, {payload} FROM messages WHERE session_id = :id AND {live}
ORDER BY id DESC LIMIT :limit

-- name: list_newest_payloads
SELECT id, {payload} FROM messages WHERE session_id = :id AND {live} AND {payload} IS NOT NULL
ORDER BY id DESC LIMIT :limit

-- name: list_kept_payloads
SELECT {payload}, platform_message_id, timestamp FROM messages
WHERE session_id = ? AND {visible} AND {payload} IS NOT NULL ORDER BY id

-- name: get_last_compacted
SELECT max(id) FROM messages WHERE session_id = ? AND {compacted}
