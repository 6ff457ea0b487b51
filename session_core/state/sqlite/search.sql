-- name: uses_tool
-- A message that answers a tool or calls it.
(m.tool_name = :tool COLLATE NOCASE OR EXISTS (
    SELECT 1 FROM json_each(iif(json_valid(m.tool_calls), m.tool_calls, '[]')) c
    WHERE c.type = 'object' AND :tool = coalesce(
        json_extract(c.value, '$.function.name'), json_extract(c.value, '$.name')
    ) COLLATE NOCASE))

-- name: get_time
SELECT timestamp + 0.0 FROM messages WHERE id >= ? ORDER BY id LIMIT 1

-- name: get_highest
SELECT id FROM messages WHERE id BETWEEN :low AND :high ORDER BY id DESC LIMIT 1

-- name: get_range
SELECT (SELECT min(id) FROM messages), (SELECT max(id) FROM messages)

-- name: get_session_range
SELECT min(id), max(id), count(*) FROM messages WHERE session_id = ?

-- name: list_own_ids
SELECT json_group_array(rowid) FROM (
  SELECT rowid FROM ms_index
  WHERE ms_index MATCH :match AND rowid BETWEEN :low AND :high
  ORDER BY rowid DESC LIMIT :count)

-- name: list_word_ids
SELECT json_group_array(rowid) FROM (
  SELECT rowid FROM messages_fts
  WHERE messages_fts MATCH :match AND rowid BETWEEN :low AND :high
  ORDER BY rowid DESC LIMIT :count)

-- name: find_own_matches
SELECT value FROM json_each(?)
WHERE EXISTS (SELECT 1 FROM ms_index WHERE ms_index MATCH value)

-- name: find_word_matches
SELECT value FROM json_each(?)
WHERE EXISTS (SELECT 1 FROM messages_fts WHERE messages_fts MATCH value)

-- name: list_trigram_ids
SELECT json_group_array(rowid) FROM (
  SELECT rowid FROM messages_fts_trigram
  WHERE messages_fts_trigram MATCH :match AND rowid BETWEEN :low AND :high
  ORDER BY rowid DESC LIMIT :count)

-- name: list_passing
SELECT m.id, m.session_id FROM messages m JOIN sessions s ON s.id = m.session_id
WHERE m.id IN (SELECT value FROM json_each(:ids)) AND {visible} AND /*filter*/ 1
ORDER BY m.id DESC

-- name: list_sizes
SELECT m.id, m.session_id, length(CAST(m.content AS BLOB))
FROM messages m JOIN sessions s ON s.id = m.session_id
WHERE m.id IN (SELECT value FROM json_each(:ids)) AND {visible} AND /*filter*/ 1
ORDER BY m.id DESC

-- name: list_sessions_of
SELECT id, session_id FROM messages
WHERE id IN (SELECT value FROM json_each(?)) AND timestamp < ?

-- name: list_ids_of_sessions
SELECT id FROM messages WHERE session_id IN (SELECT value FROM json_each(?)) AND id >= ?

-- name: list_titles
SELECT id, title FROM sessions WHERE id IN (SELECT value FROM json_each(?))

-- name: find_titles
SELECT id, title FROM sessions WHERE title LIKE ? ORDER BY started_at DESC LIMIT 5000

-- name: list_first_messages
SELECT min(m.id) FROM messages m JOIN sessions s ON s.id = m.session_id
WHERE m.session_id IN (SELECT value FROM json_each(:sessions)) AND {visible} AND /*filter*/ 1
GROUP BY m.session_id

-- name: list_apart
SELECT m.id, length(CAST(m.content AS BLOB))
FROM messages m JOIN sessions s ON s.id = m.session_id
WHERE m.id BETWEEN :low AND :high AND {visible} AND /*filter*/ 1
ORDER BY m.id DESC

-- name: list_apart_texts
SELECT id, content, tool_name, tool_calls FROM messages
WHERE id IN (SELECT value FROM json_each(?)) ORDER BY id DESC

-- name: list_rows
SELECT m.id, m.session_id, m.role, m.timestamp + 0.0, m.content, m.tool_name, m.tool_calls,
       {compacted}, s.source, s.title, s.parent_session_id, s.end_reason
FROM messages m JOIN sessions s ON s.id = m.session_id
WHERE m.id IN (SELECT value FROM json_each(:ids)) AND {visible} AND /*filter*/ 1
  AND (/*sieve*/ 1)
ORDER BY m.id DESC

-- name: scan_rows
SELECT m.id, m.session_id, m.role, m.timestamp + 0.0, m.content, m.tool_name, m.tool_calls,
       {compacted}, s.source, s.title, s.parent_session_id, s.end_reason
FROM messages m JOIN sessions s ON s.id = m.session_id
WHERE m.id BETWEEN :low AND :high AND {visible} AND /*filter*/ 1
  AND (/*sieve*/ 1)
ORDER BY m.id DESC

-- name: get_later_copy
SELECT id, session_id, {compacted} AS compacted FROM messages
WHERE session_id = :session AND timestamp = :at AND id > :id AND role = :role AND {visible}
  AND content IS (SELECT content FROM messages WHERE id = :id)
ORDER BY id DESC LIMIT 1

-- name: get_copy_in_child
SELECT id, session_id, {compacted} AS compacted FROM messages
WHERE session_id IN (SELECT id FROM sessions WHERE parent_session_id = :session)
  AND timestamp = :at AND id > :id AND role = :role AND {visible}
  AND content IS (SELECT content FROM messages WHERE id = :id)
ORDER BY id DESC LIMIT 1

-- name: find_replies
-- A reply stands close to its message. The bounds keep a message without one from reading on: its
-- reach, and the last id of a session that is short enough to be listed.
SELECT m.id, (
    SELECT r.id FROM messages r
    WHERE r.id > m.id AND r.id <= min(m.id + :reach, (
        SELECT iif(count(*) < 64, max(id), m.id + :reach)
        FROM (SELECT id FROM messages WHERE session_id = m.session_id LIMIT 64)
      )) AND r.role = 'assistant' AND +r.session_id = m.session_id
      AND {visible} AND r.content <> '' -- also content that begins with a NUL
    ORDER BY r.id LIMIT 1)
FROM json_each(:ids) j CROSS JOIN messages m ON m.id = j.value

-- name: get_session
SELECT title, ended_at FROM sessions WHERE id = ?

-- name: scan_session
SELECT m.content, m.tool_name, m.tool_calls
FROM messages m JOIN sessions s ON s.id = m.session_id
WHERE m.session_id IN (SELECT value FROM json_each(:sessions))
  AND m.id BETWEEN :low AND :high AND {visible} AND /*filter*/ 1
ORDER BY m.id DESC LIMIT 2000

-- name: has_partial_trigrams
SELECT 1 FROM sqlite_master
WHERE type = 'trigger' AND name = 'messages_fts_trigram_insert' AND sql LIKE '%role%'

-- name: get_indexed_text
SELECT group_concat(sql) FROM sqlite_master
WHERE name IN ('messages_fts_insert', 'messages_fts_src',
               'messages_fts_trigram_insert', 'messages_fts_trigram_src')

-- name: list_glued_codes
SELECT DISTINCT substr(term, 1, 5) FROM temp.ms_words
WHERE term >= 'u0' AND term < 'ug' AND length(term) > 5
  AND substr(term, 2, 4) NOT GLOB '*[^0-9a-f]*'

-- name: list_escaped
SELECT coalesce(CAST(content AS TEXT), ''), coalesce(tool_calls, '') FROM messages
WHERE id > ? AND id <= ? AND (instr(content, '\u') OR instr(tool_calls, '\u'))

-- name: get_word_index_end
SELECT max(id) FROM messages_fts_docsize

-- name: list_marks
SELECT key, value FROM state_meta
WHERE key IN ('fts_rebuild_high_water', 'fts_rebuild_progress', 'fts_stale')

-- name: count_between
SELECT count(*) FROM messages WHERE id BETWEEN ? AND ?
