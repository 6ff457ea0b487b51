-- The ledger: plans, undo batches with their trash, the audit log and pins of each home.
-- Its views have the columns of the ledger's SQLite file, so that both run the same operations.

CREATE TABLE plan_rows (
    home_id bigint NOT NULL DEFAULT this_home(),
    handle text COLLATE "C" NOT NULL,
    kind text COLLATE "C" NOT NULL,
    state text COLLATE "C" NOT NULL,
    about text COLLATE "C" NOT NULL,
    cutoff double precision,
    created_at double precision NOT NULL,
    expires_at double precision NOT NULL,
    batch text COLLATE "C",
    result text COLLATE "C",
    PRIMARY KEY (home_id, handle)
);

CREATE TABLE plan_member_rows (
    home_id bigint NOT NULL DEFAULT this_home(),
    plan text COLLATE "C" NOT NULL,
    position bigint NOT NULL,
    id text COLLATE "C" NOT NULL,
    revision text COLLATE "C" NOT NULL,
    why text COLLATE "C" NOT NULL,
    step text COLLATE "C",
    skipped text COLLATE "C",
    half boolean NOT NULL DEFAULT false,
    PRIMARY KEY (home_id, plan, position)
);

CREATE TABLE batch_rows (
    home_id bigint NOT NULL DEFAULT this_home(),
    number bigint GENERATED ALWAYS AS IDENTITY,
    id text COLLATE "C" NOT NULL,
    what text COLLATE "C" NOT NULL,
    plan text COLLATE "C",
    at double precision NOT NULL,
    expires_at double precision NOT NULL,
    undone_at double precision,
    emptied_at double precision,
    PRIMARY KEY (home_id, id)
);

CREATE TABLE step_rows (
    home_id bigint NOT NULL DEFAULT this_home(),
    number bigint GENERATED ALWAYS AS IDENTITY,
    id text COLLATE "C" NOT NULL,
    batch text COLLATE "C" NOT NULL,
    state text COLLATE "C" NOT NULL,
    at double precision NOT NULL,
    ended_at double precision,
    members text COLLATE "C" NOT NULL,
    count bigint NOT NULL,
    result text COLLATE "C",
    undoes text COLLATE "C",
    undone_at double precision,
    location text COLLATE "C",
    chunks bigint NOT NULL,
    bytes bigint NOT NULL,
    digests bytea NOT NULL DEFAULT '',
    pid bigint NOT NULL,
    started_at double precision,
    PRIMARY KEY (home_id, id)
);

CREATE TABLE trash_rows (
    home_id bigint NOT NULL DEFAULT this_home(),
    step text COLLATE "C" NOT NULL,
    position bigint NOT NULL,
    data bytea NOT NULL,
    PRIMARY KEY (home_id, step, position)
);
-- It is compressed already. PostgreSQL 15 has no such clause in CREATE TABLE.
ALTER TABLE trash_rows ALTER COLUMN data SET STORAGE EXTERNAL;

CREATE TABLE audit_rows (
    home_id bigint NOT NULL DEFAULT this_home(),
    number bigint GENERATED ALWAYS AS IDENTITY,
    at double precision NOT NULL,
    client text COLLATE "C" NOT NULL,
    what text COLLATE "C" NOT NULL,
    plan text COLLATE "C",
    counts text COLLATE "C" NOT NULL,
    PRIMARY KEY (home_id, number)
);

CREATE TABLE pin_rows (
    home_id bigint NOT NULL DEFAULT this_home(),
    session_id text COLLATE "C" NOT NULL,
    PRIMARY KEY (home_id, session_id)
);

CREATE UNIQUE INDEX plan_member_rows_id ON plan_member_rows (home_id, plan, id);
CREATE INDEX plan_member_rows_step ON plan_member_rows (home_id, step) WHERE step IS NOT NULL;
CREATE INDEX plan_member_rows_half ON plan_member_rows (home_id, plan) WHERE half;
CREATE INDEX plan_rows_expired ON plan_rows (home_id, expires_at);
CREATE INDEX batch_rows_number ON batch_rows (home_id, number);
CREATE INDEX step_rows_batch ON step_rows (home_id, batch, number);
CREATE INDEX step_rows_unsettled ON step_rows (home_id, number) WHERE state <> 'done';
CREATE INDEX step_rows_undoes ON step_rows (home_id, undoes) WHERE undoes IS NOT NULL;
CREATE INDEX audit_rows_plan ON audit_rows (home_id, plan) WHERE plan IS NOT NULL;

-- A field of an object as text, by the path `$.field`; NULL for a missing field and for null.
CREATE FUNCTION json_extract(stored text, path text) RETURNS text
LANGUAGE sql IMMUTABLE AS $$ SELECT get_json_text(stored, substr(path, 3)) $$;

CREATE VIEW plans WITH (security_invoker) AS SELECT
    handle, kind, state, about, cutoff, created_at, expires_at, batch, result
FROM plan_rows WHERE home_id = this_home();

CREATE VIEW members WITH (security_invoker) AS SELECT
    plan, position, id, revision, why, step, skipped, half
FROM plan_member_rows WHERE home_id = this_home();

CREATE VIEW batches WITH (security_invoker) AS SELECT
    number, id, what, plan, at, expires_at, undone_at, emptied_at
FROM batch_rows WHERE home_id = this_home();

CREATE VIEW steps WITH (security_invoker) AS SELECT
    number, id, batch, state, at, ended_at, members, count, result, undoes, undone_at, location,
    chunks, bytes, digests, pid, started_at
FROM step_rows WHERE home_id = this_home();

CREATE VIEW trash WITH (security_invoker) AS SELECT
    step, position, data
FROM trash_rows WHERE home_id = this_home();

CREATE VIEW audit WITH (security_invoker) AS SELECT
    number, at, client, what, plan, counts
FROM audit_rows WHERE home_id = this_home();

CREATE VIEW pins WITH (security_invoker) AS SELECT
    session_id
FROM pin_rows WHERE home_id = this_home();

CREATE VIEW summed_batches WITH (security_invoker) AS SELECT
    batches.*, summed.count, summed.bytes, summed.underway
FROM batches CROSS JOIN LATERAL (
    SELECT
        greatest(
            coalesce(sum(steps.count) FILTER (WHERE steps.state = 'done'), 0),
            least(count(*) FILTER (WHERE steps.state = 'done'), 1)
        )::bigint AS count,
        coalesce(sum(steps.bytes), 0)::bigint AS bytes,
        coalesce(bool_or(steps.state IN ('writing', 'prepared')), false) AS underway
    FROM steps WHERE steps.batch = batches.id
) AS summed;
