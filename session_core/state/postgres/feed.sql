-- name: get_mark
SELECT mark FROM homes WHERE id = this_home()

-- name: get_end
SELECT pg_snapshot_xmax(:snapshot::pg_snapshot)::text::numeric
    > pg_snapshot_xmax(pg_current_snapshot())::text::numeric

-- name: list_started
SELECT place, id, started_at, title FROM session_rows
WHERE home_id = this_home() AND place > :place AND (:session::text IS NULL OR id = :session)
    AND started_change >= pg_snapshot_xmin(:since::pg_snapshot)
    AND NOT pg_visible_in_snapshot(started_change, :since::pg_snapshot)
    AND pg_visible_in_snapshot(started_change, :until::pg_snapshot)
ORDER BY place LIMIT :limit

-- name: list_messages
SELECT id, session_id, role, content, timestamp
FROM message_rows AS message
WHERE home_id = this_home() AND id > :after
  AND (:session::text IS NULL OR session_id = :session) AND {visible}
  AND change >= pg_snapshot_xmin(:since::pg_snapshot)
  AND NOT pg_visible_in_snapshot(change, :since::pg_snapshot)
  AND pg_visible_in_snapshot(change, :until::pg_snapshot)
  AND NOT EXISTS (
      SELECT 1 FROM messages AS original
      WHERE original.session_id = message.session_id AND original.timestamp = message.timestamp
        AND original.active = 0 AND original.compacted = 1 AND original.id < message.id
        AND original.role = message.role
        AND original.content IS NOT DISTINCT FROM message.content
  )
  AND NOT EXISTS (
      SELECT 1 FROM sessions AS child
      JOIN sessions AS parent ON parent.id = child.parent_session_id
      JOIN messages AS original
        ON original.session_id = parent.id AND original.timestamp = message.timestamp
      WHERE child.id = message.session_id AND parent.end_reason = 'compression'
        AND original.id < message.id AND original.role = message.role
        AND original.content IS NOT DISTINCT FROM message.content
  )
ORDER BY id LIMIT :limit

-- name: list_ended
SELECT place, id, ended_at, end_reason, title FROM session_rows
WHERE home_id = this_home() AND (ended_at, id) > (:after::double precision, :after_id)
    AND (:session::text IS NULL OR id = :session)
    AND ended_change >= pg_snapshot_xmin(:since::pg_snapshot)
    AND NOT pg_visible_in_snapshot(ended_change, :since::pg_snapshot)
    AND pg_visible_in_snapshot(ended_change, :until::pg_snapshot)
ORDER BY ended_at, id LIMIT :limit
