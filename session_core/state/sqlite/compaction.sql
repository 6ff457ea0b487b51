-- name: compact_live
UPDATE messages SET active = 0, compacted = 1 WHERE session_id = ? AND {live}

-- name: compact_rows
UPDATE messages SET active = 0, compacted = 1
WHERE session_id = :session AND id IN (SELECT value FROM json_each(:ids)) AND {live}

-- name: revive_rows
UPDATE messages SET active = 1, compacted = 0
WHERE session_id = :session AND id IN (SELECT value FROM json_each(:ids)) AND {compacted}

-- name: take_back
UPDATE messages SET (COLUMNS) = (SELECT COLUMNS FROM messages AS copy WHERE copy.id = ?)
WHERE id = ? AND session_id = ? AND {compacted}

-- name: set_flags
UPDATE messages SET active = ?, compacted = ? WHERE id = ? AND session_id = ?

-- name: count_of
SELECT count(*) FROM messages
WHERE session_id = :session AND id IN (SELECT value FROM json_each(:ids))

-- name: delete_rows
DELETE FROM messages WHERE session_id = :session AND id IN (SELECT value FROM json_each(:ids))

-- name: get_lock
SELECT holder FROM compression_locks WHERE session_id = :session AND expires_at > :now

-- name: take_lock
INSERT INTO compression_locks (session_id, holder, acquired_at, expires_at)
VALUES (:session, :holder, :now, :until)
ON CONFLICT(session_id) DO UPDATE
    SET holder = excluded.holder, acquired_at = excluded.acquired_at, expires_at = excluded.expires_at
    WHERE expires_at <= :now OR holder = excluded.holder
        OR acquired_at > :now + 300 -- the clock was set back, and it would not run out for as long

-- name: refresh_lock
UPDATE compression_locks SET expires_at = :until
WHERE session_id = :session AND holder = :holder AND expires_at > :now

-- name: release_lock
DELETE FROM compression_locks WHERE session_id = ? AND holder = ?

-- name: list_step
SELECT id FROM (
    SELECT id, timestamp FROM messages
    WHERE session_id = :session AND timestamp BETWEEN :at - :reach AND :at + :reach
    ORDER BY timestamp LIMIT 4000
)
WHERE abs((timestamp - :at) * 1000000 - (id - :id)) <= 0.4 + 0.1 * abs(id - :id)
ORDER BY id

-- name: list_contents
SELECT id, session_id, timestamp, role, content, tool_call_id, tool_calls, {live} FROM messages
WHERE id IN (SELECT value FROM json_each(:ids)) ORDER BY id

-- name: list_compacted_before
SELECT id, session_id, timestamp, role, content, tool_call_id, tool_calls FROM messages
WHERE session_id = :session AND timestamp <= :at AND id < :below AND {compacted}
ORDER BY timestamp DESC, id DESC LIMIT :count

-- name: list_compacted_before_by_id
-- A home of our own has an index of compacted rows in the order of ids.
SELECT id, session_id, timestamp, role, content, tool_call_id, tool_calls FROM messages
WHERE session_id = :session AND id < :below AND {compacted}
ORDER BY id DESC LIMIT :count

-- name: list_visible_before
SELECT id, session_id, timestamp, role, content, tool_call_id, tool_calls FROM messages
WHERE session_id = :session AND timestamp <= :at AND id < :below AND {visible}
ORDER BY timestamp DESC, id DESC LIMIT :count

-- name: list_first
SELECT id, session_id, timestamp, role, content, tool_call_id, tool_calls FROM messages
WHERE session_id = :session AND id < :below AND {visible} ORDER BY timestamp, id LIMIT :count

-- name: has_live_before
SELECT 1 FROM messages WHERE session_id = :session AND id < :below AND {live} LIMIT 1

-- name: list_first_live
SELECT id, timestamp FROM messages WHERE session_id = ? AND {live} ORDER BY id LIMIT 1000

-- name: list_first_of
SELECT id, timestamp FROM (
    SELECT id, timestamp FROM messages WHERE session_id = ? ORDER BY timestamp LIMIT 1000
)
ORDER BY id

-- name: get_shown
SELECT id, session_id, {compacted} AS compacted FROM messages
WHERE id IN (SELECT value FROM json_each(?)) AND {visible} ORDER BY id DESC LIMIT 1
