-- name: compact_rows
UPDATE messages SET active = 0, compacted = 1
WHERE session_id = :session AND id IN (SELECT id FROM list_ids(:ids)) AND {live}

-- name: revive_rows
UPDATE messages SET active = 1, compacted = 0
WHERE session_id = :session AND id IN (SELECT id FROM list_ids(:ids)) AND {compacted}

-- name: count_of
SELECT count(*) FROM messages
WHERE session_id = :session AND id IN (SELECT id FROM list_ids(:ids))

-- name: delete_rows
DELETE FROM messages
WHERE session_id = :session AND id IN (SELECT id FROM list_ids(:ids))

-- name: take_lock
INSERT INTO lock_rows AS held (session_id, holder, acquired_at, expires_at)
VALUES (:session, :holder, :now, :until)
ON CONFLICT (home_id, session_id) DO UPDATE
    SET holder = excluded.holder, acquired_at = excluded.acquired_at, expires_at = excluded.expires_at
    WHERE held.expires_at <= :now OR held.holder = excluded.holder
        OR held.acquired_at > :now + 300 -- the clock was set back, and it would not run out for as long

-- name: list_step
SELECT id FROM (
    SELECT id, timestamp FROM messages
    WHERE session_id = :session AND timestamp BETWEEN :at - :reach AND :at + :reach
    ORDER BY timestamp LIMIT 4000
) AS near
WHERE abs((timestamp - :at) * 1000000 - (id - :id)) <= 0.4 + 0.1 * abs(id - :id)
ORDER BY id

-- name: list_contents
SELECT id, session_id, timestamp, role, content, tool_call_id, tool_calls, {live} FROM messages
WHERE id IN (SELECT id FROM list_ids(:ids)) ORDER BY id

-- name: list_first_of
SELECT id, timestamp FROM (
    SELECT id, timestamp FROM messages WHERE session_id = ? ORDER BY timestamp LIMIT 1000
) AS first
ORDER BY id

-- name: get_shown
SELECT id, session_id, {compacted} AS compacted FROM messages
WHERE id IN (SELECT id FROM list_ids(?)) AND {visible} ORDER BY id DESC LIMIT 1
