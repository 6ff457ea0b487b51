-- Titles, pins and archive marks of ours for sessions of other agents, and what undoes them.
PRAGMA application_id = 1835234163;

PRAGMA user_version = 1;

CREATE TABLE labels (
    store TEXT NOT NULL,
    session_id TEXT NOT NULL,
    title TEXT,
    archived INTEGER,
    pinned INTEGER,
    PRIMARY KEY (store, session_id)
) WITHOUT ROWID;

CREATE TABLE batches (
    number INTEGER PRIMARY KEY AUTOINCREMENT,
    id TEXT NOT NULL UNIQUE,
    store TEXT NOT NULL,
    what TEXT NOT NULL,
    at REAL NOT NULL,
    expires_at REAL NOT NULL,
    undone_at REAL
);

CREATE TABLE changes (
    batch TEXT NOT NULL,
    store TEXT NOT NULL,
    session_id TEXT NOT NULL,
    before TEXT NOT NULL,
    after TEXT NOT NULL,
    PRIMARY KEY (batch, session_id)
) WITHOUT ROWID;

CREATE INDEX changes_by_session ON changes (store, session_id);

CREATE TABLE audit (
    number INTEGER PRIMARY KEY AUTOINCREMENT,
    at REAL NOT NULL,
    store TEXT NOT NULL,
    client TEXT NOT NULL,
    what TEXT NOT NULL,
    counts TEXT NOT NULL
);
