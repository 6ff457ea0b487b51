-- name: list_tables
SELECT tables.name FROM (VALUES
    ('sessions'), ('messages'), ('session_model_usage'), ('state_meta'), ('gateway_routing'),
    ('compression_locks'), ('ms_session_state'), ('ms_shared_state')
) AS tables(name)

-- name: count_orphans
SELECT
    (SELECT count(*) FROM messages AS m
     WHERE NOT EXISTS (SELECT 1 FROM sessions AS s WHERE s.id = m.session_id)),
    (SELECT count(*) FROM session_model_usage AS u
     WHERE NOT EXISTS (SELECT 1 FROM sessions AS s WHERE s.id = u.session_id)),
    (SELECT count(*) FROM sessions AS c WHERE c.parent_session_id IS NOT NULL
     AND NOT EXISTS (SELECT 1 FROM sessions AS s WHERE s.id = c.parent_session_id))

-- name: count_unindexed
SELECT count(*) FROM messages AS m WHERE NOT EXISTS (
    SELECT 1 FROM word_rows AS w WHERE w.home_id = this_home() AND w.message_id = m.id
) AND NOT EXISTS (
    SELECT 1 FROM text_queue AS q WHERE q.home_id = this_home() AND q.message_id = m.id
)
