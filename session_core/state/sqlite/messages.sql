-- name: get_message
SELECT * FROM messages WHERE id = ?

-- name: find_messages
SELECT * FROM messages WHERE id IN (SELECT value FROM json_each(?))

-- name: list_live
-- Ids are selected first: no index of Hermes is in their order, so whole rows would be sorted.
SELECT * FROM messages
WHERE id IN (SELECT id FROM messages WHERE session_id = :id AND {live}
             ORDER BY id LIMIT :limit OFFSET :offset)
ORDER BY id

-- name: list_all
SELECT * FROM messages WHERE session_id = :id ORDER BY id LIMIT :limit OFFSET :offset

-- name: count_all
SELECT count(*) FROM messages WHERE session_id = :id OR :id IS NULL

-- name: get_platform_message
SELECT 1 FROM messages WHERE session_id = ? AND platform_message_id = ? LIMIT 1

-- name: is_numbered_to_the_end
SELECT 9223372036854775807 IN (
    SELECT max(id) FROM messages UNION ALL SELECT seq FROM sqlite_sequence WHERE name = 'messages'
)

-- name: count_appended
UPDATE sessions SET message_count = coalesce(message_count, 0) + :messages,
    tool_call_count = coalesce(tool_call_count, 0) + :tool_calls
WHERE id = :id

-- name: set_last_activity
UPDATE sessions SET last_activity_at = max(coalesce(last_activity_at, 0), :at) WHERE id = :id

-- name: rewind_rows
UPDATE messages SET active = 0 WHERE session_id = :id AND id >= :since AND {live}

-- name: count_rewind
UPDATE sessions SET rewind_count = rewind_count + 1 WHERE id = ?

-- name: get_last_live
SELECT max(id) FROM messages WHERE session_id = ? AND {live}

-- name: restore_rewound
UPDATE messages SET active = 1
WHERE session_id = :id AND id >= :since AND active = 0 AND NOT {compacted}

-- name: count_restored
-- A rewind does not change the counters, so they still include the restored rows, unless a
-- compaction or a replacement has since set them to the live rows.
UPDATE sessions SET message_count = max(coalesce(message_count, 0), :messages),
    tool_call_count = max(coalesce(tool_call_count, 0), :tool_calls)
WHERE id = :id

-- name: list_ids
SELECT id FROM messages WHERE session_id = ?

-- name: list_live_ids
SELECT id FROM messages WHERE session_id = ? AND {live}

-- name: delete_all
DELETE FROM messages WHERE session_id = ?

-- name: delete_live
DELETE FROM messages WHERE session_id = ? AND {live}
