-- name: get_title
SELECT title FROM sessions WHERE id = ?

-- name: get_holder
SELECT id FROM sessions WHERE title = :title AND id <> :id ORDER BY started_at DESC LIMIT 1

-- name: set_title
UPDATE sessions SET title = :title WHERE id = :id

-- name: get_by_title
SELECT * FROM sessions WHERE title = ? ORDER BY started_at DESC LIMIT 1

-- name: list_titles_beginning
SELECT title, id FROM sessions
WHERE title >= :begin AND title < :begin || char(1114111)
ORDER BY started_at DESC, id DESC
