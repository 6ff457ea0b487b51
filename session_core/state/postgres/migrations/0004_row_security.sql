-- Row-level security: a statement sees and changes the rows of its home, also without a predicate.
-- It holds for the owner of the tables too; only superusers and BYPASSRLS roles are exempt.

-- A home is found by its name, before its id is known.
ALTER TABLE homes ENABLE ROW LEVEL SECURITY;
ALTER TABLE homes FORCE ROW LEVEL SECURITY;
CREATE POLICY read_home ON homes FOR SELECT USING (
    id = nullif(current_setting('mcp_sessions.home', true), '')::bigint
    OR name = current_setting('mcp_sessions.home_name', true)
);
CREATE POLICY add_home ON homes FOR INSERT
    WITH CHECK (name = current_setting('mcp_sessions.home_name', true));
CREATE POLICY change_home ON homes FOR UPDATE USING (id = this_home());

DO $$
DECLARE
    relation text;
BEGIN
    FOR relation IN
        SELECT c.relname FROM pg_class AS c JOIN pg_attribute AS a ON a.attrelid = c.oid
        WHERE c.relnamespace = current_schema()::regnamespace AND c.relkind = 'r'
            AND a.attname = 'home_id' AND NOT a.attisdropped
    LOOP
        EXECUTE format('ALTER TABLE %I ENABLE ROW LEVEL SECURITY', relation);
        EXECUTE format('ALTER TABLE %I FORCE ROW LEVEL SECURITY', relation);
        EXECUTE format('CREATE POLICY only_home ON %I USING (home_id = this_home())', relation);
    END LOOP;
END $$;

-- The operators of a search are not leakproof, so no policy lets them use the index. The function
-- below searches with the rights of the owner, whom the policy must therefore not bind.
ALTER TABLE word_rows NO FORCE ROW LEVEL SECURITY;

-- The values of a JSON list of ids. A policy lets only plain columns and constants use an index.
CREATE FUNCTION list_ids(list text) RETURNS TABLE (id bigint) LANGUAGE sql IMMUTABLE AS $$
    SELECT json_array_elements_text(list::json)::bigint
$$;

SELECT set_config('search_path', format('%I, pg_temp', current_schema()), true);

-- The newest messages between two ids whose words match, or were too many for one entry. Each call
-- is planned for its words: a rare word needs another plan than a common one.
CREATE FUNCTION find_words(match text, low bigint, high bigint, wanted bigint)
RETURNS SETOF bigint LANGUAGE plpgsql STABLE SECURITY DEFINER SET search_path FROM CURRENT AS $$
BEGIN
    RETURN QUERY EXECUTE '
        WITH found AS MATERIALIZED (
            SELECT message_id FROM word_rows WHERE home_id = this_home() AND words @@ $1
            UNION
            SELECT message_id FROM word_rows WHERE home_id = this_home() AND NOT whole
        )
        SELECT message_id FROM found WHERE message_id BETWEEN $2 AND $3
        ORDER BY message_id DESC LIMIT $4
    ' USING match::tsquery, low, high, wanted;
END $$;
REVOKE EXECUTE ON FUNCTION find_words FROM PUBLIC;
