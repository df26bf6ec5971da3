-- The first schema. Times are milliseconds since the epoch, given by the code that knows why.
-- Order is by number, never by time: clocks go backwards.

CREATE TABLE users (
    id INTEGER PRIMARY KEY,
    name TEXT NOT NULL UNIQUE,
    created_at INTEGER NOT NULL
) STRICT;

CREATE TABLE conversations (
    id INTEGER PRIMARY KEY,
    user_id INTEGER NOT NULL REFERENCES users(id),
    model TEXT NOT NULL,
    created_at INTEGER NOT NULL,
    updated_at INTEGER NOT NULL
) STRICT;

CREATE INDEX conversations_by_user ON conversations(user_id, id);

-- A conversation is a tree. A branch owns its messages after fork_seq; those up to it are its
-- parent's. A root has no parent and forks at 0.
CREATE TABLE branches (
    id INTEGER PRIMARY KEY,
    conversation_id INTEGER NOT NULL REFERENCES conversations(id),
    parent_id INTEGER REFERENCES branches(id),
    fork_seq INTEGER NOT NULL,
    created_at INTEGER NOT NULL
) STRICT;

CREATE INDEX branches_by_conversation ON branches(conversation_id);
CREATE INDEX branches_by_parent ON branches(parent_id);

CREATE TABLE messages (
    id INTEGER PRIMARY KEY,
    conversation_id INTEGER NOT NULL REFERENCES conversations(id),
    branch_id INTEGER NOT NULL REFERENCES branches(id),
    seq INTEGER NOT NULL CHECK (seq > 0),
    link BLOB NOT NULL CHECK (length(link) = 32),
    role TEXT NOT NULL,
    text TEXT NOT NULL,
    thinking TEXT NOT NULL,
    tool_calls TEXT,
    tool_name TEXT,
    tool_call_id TEXT,
    images INTEGER NOT NULL,
    raw TEXT,
    status TEXT NOT NULL CHECK (status IN ('complete', 'incomplete', 'cancelled')),
    ours INTEGER NOT NULL,
    answered INTEGER NOT NULL,
    created_at INTEGER NOT NULL,
    UNIQUE (branch_id, seq)
) STRICT;

-- In the order in which a link's owner is chosen: one that was answered, then the newest. An opening
-- that thousands of conversations share is found in one step.
CREATE INDEX messages_by_link ON messages(link, answered, conversation_id);

-- System prompts are long and seldom change.
CREATE TABLE system_prompts (
    id INTEGER PRIMARY KEY,
    digest BLOB NOT NULL UNIQUE,
    body TEXT NOT NULL
) STRICT;

-- branch_id and last_seq are where the turn ended, its answer included; NULL and 0: no message.
CREATE TABLE turns (
    number INTEGER PRIMARY KEY,
    id TEXT NOT NULL UNIQUE,
    conversation_id INTEGER NOT NULL REFERENCES conversations(id),
    branch_id INTEGER REFERENCES branches(id),
    last_seq INTEGER NOT NULL,
    at INTEGER NOT NULL,
    finished_at INTEGER,
    model TEXT NOT NULL,
    dialect TEXT NOT NULL,
    status TEXT NOT NULL CHECK (status IN ('pending', 'complete', 'incomplete', 'cancelled', 'failed', 'refused')),
    system_id INTEGER NOT NULL REFERENCES system_prompts(id),
    arrived_tokens INTEGER,
    sent_tokens INTEGER,
    limit_tokens INTEGER,
    reported_tokens INTEGER,
    basis TEXT,
    action TEXT,
    receipt_id TEXT
) STRICT;

CREATE INDEX turns_by_conversation ON turns(conversation_id, number);
CREATE INDEX turns_pending ON turns(number) WHERE status = 'pending';

CREATE TABLE checkpoints (
    number INTEGER PRIMARY KEY,
    id TEXT NOT NULL UNIQUE,
    conversation_id INTEGER NOT NULL REFERENCES conversations(id),
    first_seq INTEGER NOT NULL,
    last_seq INTEGER NOT NULL,
    covered BLOB NOT NULL CHECK (length(covered) = 32),
    level INTEGER NOT NULL,
    author TEXT NOT NULL,
    level1 TEXT NOT NULL,
    level2 TEXT NOT NULL,
    level3 TEXT NOT NULL,
    created_at INTEGER NOT NULL
) STRICT;

CREATE INDEX checkpoints_by_conversation ON checkpoints(conversation_id, number);

CREATE TABLE fronts (
    number INTEGER PRIMARY KEY,
    conversation_id INTEGER NOT NULL REFERENCES conversations(id),
    covered BLOB NOT NULL CHECK (length(covered) = 32),
    body TEXT NOT NULL,
    created_at INTEGER NOT NULL,
    UNIQUE (conversation_id, covered)
) STRICT;

CREATE TABLE snapshots (
    number INTEGER PRIMARY KEY,
    id TEXT NOT NULL UNIQUE,
    conversation_id INTEGER NOT NULL REFERENCES conversations(id),
    branch_id INTEGER NOT NULL REFERENCES branches(id),
    last_seq INTEGER NOT NULL,
    link BLOB NOT NULL CHECK (length(link) = 32),
    messages INTEGER NOT NULL,
    checkpoints INTEGER NOT NULL,
    tokens INTEGER NOT NULL,
    limit_tokens INTEGER NOT NULL,
    system_id INTEGER NOT NULL REFERENCES system_prompts(id),
    reason TEXT NOT NULL,
    created_at INTEGER NOT NULL
) STRICT;

CREATE INDEX snapshots_by_conversation ON snapshots(conversation_id, number);

CREATE TABLE receipts (
    number INTEGER PRIMARY KEY,
    id TEXT NOT NULL UNIQUE,
    conversation_id INTEGER NOT NULL REFERENCES conversations(id),
    turn_id TEXT NOT NULL REFERENCES turns(id),
    body TEXT NOT NULL,
    created_at INTEGER NOT NULL
) STRICT;

-- Events are numbered without reuse, so that a reader can go on where it stopped. They may speak of a
-- conversation that was never stored.
CREATE TABLE events (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    at INTEGER NOT NULL,
    kind TEXT NOT NULL,
    conversation_id INTEGER,
    user_id INTEGER REFERENCES users(id),
    body TEXT NOT NULL
) STRICT;

CREATE TABLE condensed (
    digest BLOB NOT NULL PRIMARY KEY,
    body TEXT NOT NULL,
    created_at INTEGER NOT NULL
) STRICT;
