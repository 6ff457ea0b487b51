-- name: find_by_prefix
SELECT id FROM sessions WHERE id >= :prefix AND id < :prefix || chr(1114111)
    AND NOT EXISTS (
        SELECT 1 FROM sessions AS root
        WHERE strpos(sessions.id, '#') > length(:prefix)
            AND root.id = split_part(sessions.id, '#', 1)
    )
ORDER BY id LIMIT 6

-- name: set_archived
UPDATE sessions SET archived = :archived WHERE id = :id AND archived IS DISTINCT FROM :archived

-- name: get_revision
SELECT last_message_id, live_rows, compacted_rows, rewind_count, ended_at
FROM session_rows WHERE home_id = this_home() AND id = :id

-- name: set_meta
INSERT INTO meta_rows (key, value) VALUES (?, ?)
ON CONFLICT (home_id, key) DO UPDATE SET value = excluded.value

-- name: list_titles_beginning
SELECT title, id FROM sessions
WHERE title >= :begin AND title < :begin || chr(1114111)
ORDER BY started_at DESC, id DESC
