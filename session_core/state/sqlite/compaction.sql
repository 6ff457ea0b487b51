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
