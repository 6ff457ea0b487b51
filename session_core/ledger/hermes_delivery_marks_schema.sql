-- Deliveries of end hooks for sessions of a Hermes home, by the folder of their routes.
PRAGMA application_id = 1835234163;

PRAGMA user_version = 1;

CREATE TABLE marks (
    scope TEXT NOT NULL,
    session_id TEXT NOT NULL,
    noted TEXT NOT NULL,
    at REAL NOT NULL,
    PRIMARY KEY (scope, session_id)
) WITHOUT ROWID;
