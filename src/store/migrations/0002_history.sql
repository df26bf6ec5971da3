-- Who may read and write, histories that came from elsewhere, search, and deletion.

-- A token is known by its digest only. The hint is its beginning, for telling tokens apart.
CREATE TABLE tokens (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    user_id INTEGER NOT NULL REFERENCES users(id),
    name TEXT NOT NULL,
    digest BLOB NOT NULL UNIQUE CHECK (length(digest) = 32),
    hint TEXT NOT NULL,
    scopes TEXT NOT NULL,
    created_at INTEGER NOT NULL,
    expires_at INTEGER,
    revoked_at INTEGER,
    last_used_at INTEGER
) STRICT;

CREATE UNIQUE INDEX tokens_in_force ON tokens(name) WHERE revoked_at IS NULL;

-- Of an imported conversation: the session it was, whose, and what its intake said.
ALTER TABLE conversations ADD COLUMN session TEXT;
ALTER TABLE conversations ADD COLUMN provider TEXT;
ALTER TABLE conversations ADD COLUMN intake TEXT;

-- The lines of an imported session as they came, each with the place of its last message; NULL and 0:
-- before the first.
CREATE TABLE imported_lines (
    conversation_id INTEGER NOT NULL REFERENCES conversations(id),
    number INTEGER NOT NULL,
    branch_id INTEGER REFERENCES branches(id),
    last_seq INTEGER NOT NULL,
    line TEXT NOT NULL,
    PRIMARY KEY (conversation_id, number)
) STRICT, WITHOUT ROWID;

CREATE INDEX imported_lines_by_branch ON imported_lines(branch_id);

-- What deleting a conversation has to look up.
CREATE INDEX messages_by_conversation ON messages(conversation_id);
CREATE INDEX turns_by_branch ON turns(branch_id);
CREATE INDEX turns_by_system ON turns(system_id);
CREATE INDEX snapshots_by_branch ON snapshots(branch_id);
CREATE INDEX snapshots_by_system ON snapshots(system_id);
CREATE INDEX receipts_by_conversation ON receipts(conversation_id);
CREATE INDEX receipts_by_turn ON receipts(turn_id);
CREATE INDEX events_by_conversation ON events(conversation_id);

-- Numbers that must outlive what they count: the number of a deleted conversation is not given again.
CREATE TABLE settings (
    name TEXT PRIMARY KEY,
    value INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

-- Words of messages. Filled by the writer when it has time; what is deleted leaves no trace in it.
CREATE VIRTUAL TABLE messages_text USING fts5(
    text, content = 'messages', content_rowid = 'id', tokenize = 'unicode61 remove_diacritics 2'
);
INSERT INTO messages_text (messages_text, rank) VALUES ('secure-delete', 1);
