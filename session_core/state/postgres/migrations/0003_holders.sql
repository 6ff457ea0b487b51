-- Programs that have written to a home, each until it closes the home or an hour has passed.

CREATE TABLE holder_rows (
    home_id bigint NOT NULL DEFAULT this_home(),
    token text COLLATE "C" NOT NULL,
    host text COLLATE "C" NOT NULL,
    space text COLLATE "C" NOT NULL,
    pid bigint NOT NULL,
    started_at double precision,
    expires_at timestamptz NOT NULL,
    PRIMARY KEY (home_id, token)
);

CREATE VIEW holders WITH (security_invoker) AS SELECT
    token, host, space, pid, started_at, expires_at
FROM holder_rows WHERE home_id = this_home();
