-- name: get_mark
SELECT noted FROM marks WHERE scope = :scope AND session_id = :session_id

-- name: put_mark
INSERT OR REPLACE INTO marks (scope, session_id, noted, at)
VALUES (:scope, :session_id, :noted, :now)

-- name: delete_mark
DELETE FROM marks WHERE scope = :scope AND session_id = :session_id

-- name: delete_others
DELETE FROM marks WHERE scope = :scope AND at < :before
    AND session_id NOT IN (SELECT value FROM json_each(:kept))

-- name: count_old
SELECT count(*) FROM marks WHERE scope = :scope AND at < :before
