-- The ledger of a home. A file of trash on another disk has the same tables.
PRAGMA application_id = 1835234163;

PRAGMA user_version = 2;

CREATE TABLE plans (
    handle TEXT PRIMARY KEY,
    kind TEXT NOT NULL,
    state TEXT NOT NULL,
    about TEXT NOT NULL,
    cutoff REAL,
    created_at REAL NOT NULL,
    expires_at REAL NOT NULL,
    batch TEXT,
    result TEXT
);

CREATE TABLE members (
    plan TEXT NOT NULL,
    position INTEGER NOT NULL,
    id TEXT NOT NULL,
    revision TEXT NOT NULL,
    why TEXT NOT NULL,
    step TEXT,
    skipped TEXT,
    half INTEGER NOT NULL DEFAULT 0,
    PRIMARY KEY (plan, position)
) WITHOUT ROWID;

CREATE UNIQUE INDEX members_by_id ON members (plan, id);

CREATE INDEX members_by_step ON members (step) WHERE step IS NOT NULL;

CREATE INDEX members_half ON members (plan) WHERE half;

CREATE TABLE batches (
    number INTEGER PRIMARY KEY AUTOINCREMENT,
    id TEXT NOT NULL UNIQUE,
    what TEXT NOT NULL,
    plan TEXT,
    at REAL NOT NULL,
    expires_at REAL NOT NULL,
    undone_at REAL,
    emptied_at REAL
);

CREATE TABLE steps (
    number INTEGER PRIMARY KEY AUTOINCREMENT,
    id TEXT NOT NULL UNIQUE,
    batch TEXT NOT NULL,
    state TEXT NOT NULL,
    at REAL NOT NULL,
    ended_at REAL,
    members TEXT NOT NULL,
    count INTEGER NOT NULL,
    result TEXT,
    undoes TEXT,
    undone_at REAL,
    location TEXT,
    chunks INTEGER NOT NULL,
    bytes INTEGER NOT NULL,
    digests BLOB NOT NULL DEFAULT x'',
    pid INTEGER NOT NULL,
    started_at REAL,
    marked INTEGER NOT NULL DEFAULT 0
);

CREATE INDEX steps_by_batch ON steps (batch, number);

CREATE INDEX steps_unsettled ON steps (number) WHERE state <> 'done';

CREATE INDEX steps_marked ON steps (number) WHERE marked;

CREATE INDEX steps_undone ON steps (batch) WHERE undone_at IS NOT NULL;

CREATE INDEX steps_by_undone ON steps (undoes) WHERE undoes IS NOT NULL;

CREATE TABLE trash (
    step TEXT NOT NULL,
    position INTEGER NOT NULL,
    data BLOB NOT NULL,
    PRIMARY KEY (step, position)
);

CREATE TABLE audit (
    number INTEGER PRIMARY KEY AUTOINCREMENT,
    at REAL NOT NULL,
    client TEXT NOT NULL,
    what TEXT NOT NULL,
    plan TEXT,
    counts TEXT NOT NULL
);

CREATE VIEW summed_batches AS
SELECT batches.*,
    (SELECT max(coalesce(sum(steps.count), 0), min(count(*), 1)) FROM steps
     WHERE steps.batch = batches.id AND steps.state = 'done') AS count,
    (SELECT coalesce(sum(steps.bytes), 0) FROM steps WHERE steps.batch = batches.id) AS bytes,
    EXISTS (SELECT 1 FROM steps
            WHERE steps.batch = batches.id AND steps.state IN ('writing', 'prepared')) AS underway
FROM batches;
