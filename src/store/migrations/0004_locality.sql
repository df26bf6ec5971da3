-- Where a message goes is decided by its conversation, so that what is written together lies together: a link is
-- looked up within its conversation. Before, every message went to a page of its own somewhere in one large index.
DROP INDEX messages_by_link;
DROP INDEX messages_by_conversation;
CREATE INDEX messages_by_conversation ON messages(conversation_id, link);

-- Which conversations a history may belong to: those with the beginning of the link of its first answer. One row for
-- most conversations; a row too many does no harm, because the links themselves are compared.
CREATE TABLE anchors (
    tag BLOB NOT NULL CHECK (length(tag) = 8),
    conversation_id INTEGER NOT NULL REFERENCES conversations(id),
    PRIMARY KEY (tag, conversation_id)
) STRICT, WITHOUT ROWID;

INSERT INTO anchors (tag, conversation_id)
SELECT DISTINCT substr(link, 1, 8), conversation_id FROM messages
WHERE answered = 1 AND NOT EXISTS (
    SELECT 1 FROM messages AS before
    WHERE before.branch_id = messages.branch_id AND before.seq = messages.seq - 1 AND before.answered = 1
);

-- Only deletions looked here, and they know the conversation.
DROP INDEX turns_by_branch;

-- Most branches are the only one of their conversation.
DROP INDEX branches_by_parent;
CREATE INDEX branches_by_parent ON branches(parent_id) WHERE parent_id IS NOT NULL;
