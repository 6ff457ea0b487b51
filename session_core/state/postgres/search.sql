-- name: uses_tool
-- A message that answers a tool or calls it.
(lower(m.tool_name) = lower(:tool) OR (m.tool_calls IS NOT NULL AND uses_tool(m.tool_calls, :tool)))

-- name: get_time
SELECT timestamp FROM messages WHERE id >= ? ORDER BY id LIMIT 1

-- name: list_own_ids
SELECT coalesce(json_agg(message_id ORDER BY message_id DESC), '[]')::text
FROM find_words(:match, :low, :high, :count) AS newest(message_id)

-- name: find_own_matches
SELECT value FROM json_each(?) AS listed WHERE EXISTS (
    SELECT FROM find_words(
        value, '-9223372036854775808'::bigint, '9223372036854775807'::bigint, 1
    )
)

-- name: list_passing
SELECT m.id, m.session_id FROM messages m JOIN sessions s ON s.id = m.session_id
WHERE m.id IN (SELECT id FROM list_ids(:ids)) AND {visible} AND /*filter*/ 1
ORDER BY m.id DESC

-- name: list_sizes
SELECT m.id, m.session_id, octet_length(m.content)
FROM messages m JOIN sessions s ON s.id = m.session_id
WHERE m.id IN (SELECT id FROM list_ids(:ids)) AND {visible} AND /*filter*/ 1
ORDER BY m.id DESC

-- name: list_sessions_of
SELECT id, session_id FROM messages
WHERE id IN (SELECT id FROM list_ids(?)) AND timestamp < ?

-- name: list_apart
SELECT m.id, octet_length(m.content)
FROM messages m JOIN sessions s ON s.id = m.session_id
WHERE m.id BETWEEN :low AND :high AND {visible} AND /*filter*/ 1
ORDER BY m.id DESC

-- name: list_apart_texts
SELECT id, content, tool_name, tool_calls FROM messages
WHERE id IN (SELECT id FROM list_ids(?)) ORDER BY id DESC

-- name: list_rows
SELECT m.id, m.session_id, m.role, m.timestamp, m.content, m.tool_name, m.tool_calls,
       {compacted}, s.source, s.title, s.parent_session_id, s.end_reason
FROM messages m JOIN sessions s ON s.id = m.session_id
WHERE m.id IN (SELECT id FROM list_ids(:ids)) AND {visible} AND /*filter*/ 1
  AND (/*sieve*/ 1)
ORDER BY m.id DESC

-- name: get_later_copy
SELECT id, session_id, {compacted} AS compacted FROM messages
WHERE session_id = :session AND timestamp = :at AND id > :id AND role = :role AND {visible}
  AND content IS NOT DISTINCT FROM (SELECT content FROM messages WHERE id = :id)
ORDER BY id DESC LIMIT 1

-- name: get_copy_in_child
SELECT id, session_id, {compacted} AS compacted FROM messages
WHERE session_id IN (SELECT id FROM sessions WHERE parent_session_id = :session)
  AND timestamp = :at AND id > :id AND role = :role AND {visible}
  AND content IS NOT DISTINCT FROM (SELECT content FROM messages WHERE id = :id)
ORDER BY id DESC LIMIT 1

-- name: find_replies
SELECT j.value::bigint, (
    SELECT r.id FROM messages r
    WHERE r.id > j.value::bigint
      AND r.id <= least(j.value::numeric + :reach, 9223372036854775807)::bigint AND r.role = 'assistant'
      AND r.session_id = (SELECT session_id FROM messages WHERE id = j.value::bigint)
      AND {visible} AND r.content <> ''
    ORDER BY r.id LIMIT 1)
FROM json_each(:ids) j

-- name: find_titles
SELECT id, title FROM sessions WHERE title ILIKE ? ORDER BY started_at DESC LIMIT 5000
