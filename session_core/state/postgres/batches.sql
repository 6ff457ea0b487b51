-- name: get_holder
SELECT steps.batch FROM steps JOIN batches ON batches.id = steps.batch,
    LATERAL (SELECT parse_json(steps.result) -> 'sessions' AS list) AS removed
WHERE steps.state = 'done' AND steps.undone_at IS NULL AND batches.emptied_at IS NULL
    AND batches.expires_at > :now AND CASE WHEN json_typeof(removed.list) = 'array'
        THEN :session IN (SELECT value FROM json_each(removed.list::text)) ELSE false END
ORDER BY steps.number DESC LIMIT 1

-- name: count_bytes
SELECT coalesce(sum(bytes), 0)::bigint FROM steps

-- name: forget_digests
UPDATE steps SET digests = '' WHERE digests <> '' AND id IN (SELECT value FROM json_each(?))
