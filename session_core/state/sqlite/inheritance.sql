-- name: list_heirs
-- The sessions that continue one that matches and have nothing of their own in the same columns,
-- from parent to child. `lineage.kind` says the same of what continues a session.
WITH RECURSIVE heirs(id) AS (
    SELECT child.id FROM sessions AS child JOIN sessions AS s ON s.id = child.parent_session_id
    WHERE child.parent_session_id > '' -- a range, so that the index of parents is used
      AND s.end_reason = 'compression'
      AND {child_lacks} AND {continues} AND {matches}
    UNION
    SELECT child.id FROM heirs
    JOIN sessions AS parent ON parent.id = heirs.id
    JOIN sessions AS child ON child.parent_session_id = parent.id
    WHERE parent.end_reason = 'compression' AND {child_lacks} AND {continues}
)
SELECT json_group_array(id) FROM heirs

-- name: continues
child.source <> 'tool' AND CASE
    WHEN coalesce(
        instr(child.model_config, '_branched_from') + instr(child.model_config, '_delegate_from'), 0
    ) = 0 THEN 1
    WHEN json_valid(child.model_config)
    THEN coalesce(
        json_extract(child.model_config, '$._branched_from'),
        json_extract(child.model_config, '$._delegate_from')
    ) IS NULL
    ELSE 1
END

-- name: get_origin
SELECT source, {} AS git_repo_root, {} AS cwd FROM sessions WHERE id = ?
