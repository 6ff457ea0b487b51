-- A common word is found by the newest messages, a rare word by the index of words: the planner
-- decides by the frequency of the words, and stops at the wanted number.

SELECT set_config('search_path', format('%I, pg_temp', current_schema()), true);

CREATE OR REPLACE FUNCTION find_words(match text, low bigint, high bigint, wanted bigint)
RETURNS SETOF bigint LANGUAGE plpgsql STABLE SECURITY DEFINER SET search_path FROM CURRENT AS $$
BEGIN
    RETURN QUERY EXECUTE '
        SELECT message_id FROM (
            (
                SELECT message_id FROM word_rows
                WHERE home_id = $5 AND message_id BETWEEN $2 AND $3 AND whole AND words @@ $1
                ORDER BY message_id DESC LIMIT $4
            ) UNION (
                SELECT DISTINCT message_id FROM word_rows
                WHERE home_id = $5 AND message_id BETWEEN $2 AND $3 AND NOT whole
                ORDER BY message_id DESC LIMIT $4
            )
        ) AS found ORDER BY message_id DESC LIMIT $4
    ' USING match::tsquery, low, high, wanted, this_home();
END $$;
