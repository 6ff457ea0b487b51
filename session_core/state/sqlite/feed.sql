-- name: get_high_water
SELECT max(
    coalesce((SELECT seq FROM sqlite_sequence WHERE name = 'messages'), 0),
    coalesce((SELECT max(id) FROM messages), 0)
)

-- name: get_anchor
SELECT id, session_id, role, timestamp FROM messages WHERE id BETWEEN 1 AND ? ORDER BY id DESC LIMIT 1

-- name: get_message_anchor
SELECT id, session_id, role, timestamp FROM messages WHERE id = ?

-- name: list_last_sessions
SELECT rowid AS place, id, started_at FROM sessions ORDER BY rowid DESC LIMIT ?

-- name: get_session_place
SELECT rowid AS place, id, started_at FROM sessions WHERE id = ?

-- name: list_started
SELECT rowid AS place, id, started_at, title FROM sessions
WHERE rowid > :place ORDER BY rowid LIMIT :limit

-- name: list_started_of
SELECT rowid AS place, id, started_at, title FROM sessions
WHERE rowid > :place AND id = :session ORDER BY rowid LIMIT :limit

-- name: list_messages
SELECT id, session_id, role, content, timestamp
FROM messages AS message
WHERE id > :after AND (:session IS NULL OR +session_id = :session)
  AND {visible}
  AND NOT EXISTS (
      SELECT 1 FROM messages AS original
      WHERE original.session_id = message.session_id AND original.timestamp = message.timestamp
        AND +{compacted} AND original.id < message.id
        AND original.role = message.role AND original.content IS message.content
  )
  AND NOT EXISTS (
      SELECT 1 FROM sessions AS child
      JOIN sessions AS parent ON parent.id = child.parent_session_id
      JOIN messages AS original
        ON original.session_id = parent.id AND original.timestamp = message.timestamp
      WHERE child.id = message.session_id AND parent.end_reason = 'compression'
        AND original.id < message.id
        AND original.role = message.role AND original.content IS message.content
  )
ORDER BY id LIMIT :limit

-- name: list_ended
SELECT id, ended_at, end_reason, title FROM sessions
WHERE ended_at >= ? AND typeof(ended_at) IN ('real', 'integer')
ORDER BY ended_at, id

-- name: list_ended_of
SELECT id, ended_at, end_reason, title FROM sessions
WHERE id = ? AND ended_at >= ? AND typeof(ended_at) IN ('real', 'integer')
