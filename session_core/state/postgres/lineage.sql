-- name: list_unlinked_delegates
SELECT id, model_config FROM sessions
WHERE model_config LIKE '%\_delegate\_from%' AND parent_session_id IS NULL

-- name: list_heirs
WITH RECURSIVE heirs(id) AS (
    SELECT child.id FROM sessions AS child JOIN sessions AS s ON s.id = child.parent_session_id
    WHERE s.end_reason = 'compression' AND {child_lacks} AND {continues} AND {matches}
    UNION
    SELECT step.id FROM heirs CROSS JOIN LATERAL (
        SELECT child.id FROM sessions AS parent, sessions AS child
        WHERE parent.id = heirs.id AND child.parent_session_id = parent.id
            AND parent.end_reason = 'compression' AND {child_lacks} AND {continues}
        OFFSET 0
    ) AS step
)
SELECT coalesce(json_agg(id), '[]')::text FROM heirs

-- name: continues
child.source <> 'tool' AND CASE
    WHEN child.model_config ~ '_branched_from|_delegate_from'
    THEN get_json_text(child.model_config, '_branched_from') IS NULL
        AND get_json_text(child.model_config, '_delegate_from') IS NULL
    ELSE true
END
