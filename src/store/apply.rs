//! Makes one change, inside the transaction or savepoint that the writer gives it. What it cannot do wholly it refuses.
//!
//! Whatever changes a conversation first says so (`touch`): where several processes write, that locks the conversation
//! until the commit, and tells the others that what they remember of it is old.

use std::ops::RangeInclusive;

use super::append::{Origin, Position, require, root, step};
use super::change::{BeginTurn, Change, Compaction, FinishTurn, NewCheckpoint, NewEvent, NewSnapshot};
use super::error::{Failure, Rejection};
use super::sql::{Sql, Value, values};
use super::{delete, import, index, tokens};
use crate::context::identity::ConversationId;

/// Slices that somebody who searches waits for; the rest follows when there is time.
const MOST_SLICES: usize = 96;

pub(super) fn apply(sql: Sql<'_>, change: &Change) -> Result<(), Failure> {
    match change {
        Change::Begin(begin) => begin_turn(sql, begin),
        Change::Finish(finish) => finish_turn(sql, finish),
        Change::Compaction(compaction) => compact(sql, compaction),
        Change::Event(event) => add_event(sql, event),
        Change::ImportBegin(import) => import::begin(sql, import),
        Change::ImportSlice(slice) => import::add_slice(sql, slice),
        Change::ImportEnd(imports) => import::end(sql, imports),
        Change::Index => {
            for _slice in 0..MOST_SLICES {
                if !index::add_slice(sql)? {
                    break;
                }
            }
            Ok(())
        }
        Change::Wake => Ok(()),
        Change::Hide(conversation) => delete::hide(sql, *conversation),
        Change::DeleteSlice(conversation) => delete::delete_slice(sql, *conversation),
        Change::CreateToken(token) => tokens::create(sql, token),
        Change::RevokeToken { id, at } => tokens::revoke(sql, *id, *at),
        Change::TokenUsed { id, at } => tokens::used(sql, *id, *at),
        Change::ForgetToken(id) => tokens::forget(sql, *id),
        Change::Condensed { digest, body, at } => {
            sql.execute(
                "INSERT INTO condensed (digest, body, created_at) VALUES (?1, ?2, ?3) ON CONFLICT DO NOTHING",
                values![digest, body, at],
            )?;
            Ok(())
        }
        Change::Cursor { name, value } => raise(sql, name, *value),
    }
}

/// Notes a number that never goes back.
pub(super) fn raise(sql: Sql<'_>, name: &str, value: i64) -> Result<(), Failure> {
    sql.execute(
        "INSERT INTO settings (name, value) VALUES (?1, ?2) ON CONFLICT (name) DO UPDATE
         SET value = CASE WHEN settings.value > excluded.value THEN settings.value ELSE excluded.value END",
        values![name, value],
    )?;
    Ok(())
}

/// A conversation is about to change. Rejected if it is not there, where that could be.
fn touch(sql: Sql<'_>, conversation: ConversationId) -> Result<(), Failure> {
    match sql {
        Sql::Sqlite(_) => Ok(()),
        Sql::Postgres(session) => session.touch(conversation),
    }
}

fn begin_turn(sql: Sql<'_>, begin: &BeginTurn) -> Result<(), Failure> {
    let end = add_request(sql, begin, begin.at)?;
    let system = system_prompt(sql, begin.conversation, &begin.system)?;
    sql.execute(
        "INSERT INTO turns (id, conversation_id, branch_id, last_seq, at, model, dialect, status, system_id)
         VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, 'pending', ?8)",
        values![
            &begin.turn,
            begin.conversation,
            end.map(|end| end.branch),
            end.map_or(0, |end| end.seq),
            begin.at,
            &begin.model,
            begin.dialect,
            system,
        ],
    )?;
    if let Sql::Postgres(session) = sql {
        session.pends(&begin.turn)?;
    }
    Ok(())
}

/// The messages of a request. Where they end.
fn add_request(sql: Sql<'_>, begin: &BeginTurn, updated_at: i64) -> Result<Option<Position>, Failure> {
    let (conversation, at) = (begin.conversation, begin.at);
    let known = begin.after.is_some();
    let new = open_conversation(sql, conversation, &begin.user, &begin.model, at..=updated_at, known)?;
    if let Some(upstream) = &begin.upstream {
        sql.execute("UPDATE conversations SET upstream = ?2 WHERE id = ?1", values![conversation, upstream])?;
    }
    touch(sql, conversation)?;
    let mut position = match begin.after {
        Some(link) => Some(require(sql, conversation, link)?),
        None if new && !begin.messages.is_empty() => Some(root(sql, conversation, at)?),
        None => None,
    };
    for message in &begin.messages {
        position = Some(step(sql, conversation, position, message, Origin { at, answer: None })?);
    }
    Ok(position)
}

/// Makes the conversation if it is not there, and makes sure that it is this user's. Whether it is new. One that is
/// `known` to be there is looked for first.
pub(super) fn open_conversation(
    sql: Sql<'_>,
    conversation: ConversationId,
    name: &str,
    model: &str,
    at: RangeInclusive<i64>,
    known: bool,
) -> Result<bool, Failure> {
    let user = user(sql, name, *at.start())?;
    let update = "UPDATE conversations SET model = ?3, updated_at = ?4 WHERE id = ?1 AND user_id = ?2";
    let updated = || sql.execute(update, values![conversation, user, model, at.end()]);
    if known && updated()? > 0 {
        return Ok(false);
    }
    let made = sql.execute(
        "INSERT INTO conversations (id, user_id, model, created_at, updated_at) VALUES (?1, ?2, ?3, ?4, ?5)
         ON CONFLICT (id) DO NOTHING",
        values![conversation, user, model, at.start(), at.end()],
    )?;
    if made == 1 {
        return Ok(true);
    }
    match updated()? {
        0 => Err(Rejection::ForeignConversation(conversation).into()),
        _ => Ok(false),
    }
}

/// A turn that has begun and ended since the last commit is written once, not twice.
pub(super) fn whole_turn(sql: Sql<'_>, begin: &BeginTurn, finish: &FinishTurn) -> Result<(), Failure> {
    let mut end = add_request(sql, begin, finish.at)?;
    end = add_answer(sql, begin.conversation, end, finish)?;
    let system = system_prompt(sql, begin.conversation, &begin.system)?;
    sql.execute(
        "INSERT INTO turns (id, conversation_id, branch_id, last_seq, at, model, dialect, status, system_id,
             finished_at, arrived_tokens, sent_tokens, limit_tokens, reported_tokens, basis, action, receipt_id)
         VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14, ?15, ?16, ?17)",
        values![
            &begin.turn,
            begin.conversation,
            end.map(|end| end.branch),
            end.map_or(0, |end| end.seq),
            begin.at,
            &begin.model,
            begin.dialect,
            finish.status.name(),
            system,
            finish.at,
            known(finish.arrived_tokens),
            known(finish.sent_tokens),
            known(finish.limit_tokens),
            finish.reported_tokens,
            said(finish.basis),
            said(finish.action),
            finish.receipt.as_ref().map(|(id, _)| id),
        ],
    )?;
    add_outcome(sql, begin.conversation, finish)
}

/// Nought is not known.
fn known(tokens: u32) -> Value<'static> {
    Some(tokens).filter(|tokens| *tokens > 0).into()
}

/// Nothing said is not known.
fn said(word: &'static str) -> Value<'static> {
    Some(word).filter(|word| !word.is_empty()).into()
}

fn finish_turn(sql: Sql<'_>, finish: &FinishTurn) -> Result<(), Failure> {
    touch(sql, finish.conversation)?;
    let (conversation, end) = pending_turn(sql, finish)?;
    let end = add_answer(sql, conversation, end, finish)?;
    sql.execute(
        "UPDATE turns SET branch_id = ?2, last_seq = ?3, finished_at = ?4, status = ?5, arrived_tokens = ?6,
             sent_tokens = ?7, limit_tokens = ?8, reported_tokens = ?9, basis = ?10, action = ?11, receipt_id = ?12
         WHERE id = ?1",
        values![
            &finish.turn,
            end.map(|end| end.branch),
            end.map_or(0, |end| end.seq),
            finish.at,
            finish.status.name(),
            known(finish.arrived_tokens),
            known(finish.sent_tokens),
            known(finish.limit_tokens),
            finish.reported_tokens,
            said(finish.basis),
            said(finish.action),
            finish.receipt.as_ref().map(|(id, _)| id),
        ],
    )?;
    sql.execute("UPDATE conversations SET updated_at = ?2 WHERE id = ?1", values![conversation, finish.at])?;
    add_outcome(sql, conversation, finish)
}

/// The answer, behind the request. Where the turn ends with it.
fn add_answer(
    sql: Sql<'_>,
    conversation: ConversationId,
    end: Option<Position>,
    finish: &FinishTurn,
) -> Result<Option<Position>, Failure> {
    let Some(answer) = &finish.answer else { return Ok(end) };
    let origin = Origin { at: finish.at, answer: Some(finish.status.of_answer()) };
    step(sql, conversation, end, answer, origin).map(Some)
}

/// What is kept of a turn beside its messages.
fn add_outcome(sql: Sql<'_>, conversation: ConversationId, finish: &FinishTurn) -> Result<(), Failure> {
    if let Some((id, body)) = &finish.receipt {
        sql.execute(
            "INSERT INTO receipts (id, conversation_id, turn_id, body, created_at) VALUES (?1, ?2, ?3, ?4, ?5)",
            values![id, conversation, &finish.turn, body, finish.at],
        )?;
    }
    if let Some(upstream) = &finish.upstream {
        sql.execute("UPDATE conversations SET upstream = ?2 WHERE id = ?1", values![conversation, upstream])?;
    }
    finish.events.iter().try_for_each(|event| add_event(sql, event))
}

/// The turn's conversation, and where its request ended.
fn pending_turn(sql: Sql<'_>, finish: &FinishTurn) -> Result<(ConversationId, Option<Position>), Failure> {
    let found = sql.one(
        "SELECT turns.conversation_id, turns.status, turns.branch_id, last_seq, coalesce(answered, 0),
             messages.created_at, (SELECT next.seq FROM messages AS next
                 WHERE next.branch_id = turns.branch_id AND next.seq = last_seq + 1)
         FROM turns LEFT JOIN messages ON messages.branch_id = turns.branch_id AND messages.seq = last_seq
         WHERE turns.id = ?1",
        values![&finish.turn],
        |row| {
            let (seq, answered) = (row.get(3)?, row.get(4)?);
            let (at, next) = (row.get::<Option<i64>>(5)?, row.get::<Option<i64>>(6)?);
            let at_tip = at.filter(|_| next.is_none());
            let end = row.get::<Option<i64>>(2)?.map(|branch| Position { branch, seq, answered, at_tip });
            Ok((row.get(0)?, row.get::<String>(1)?, end))
        },
    )?;
    let (conversation, status, end) = found.ok_or_else(|| Rejection::UnknownTurn(finish.turn.clone()))?;
    let given_up = || match sql {
        Sql::Sqlite(_) => Ok(false),
        Sql::Postgres(session) => session.was_given_up(&finish.turn),
    };
    match status.as_str() {
        "pending" => Ok((conversation, end)),
        "failed" if given_up()? => Ok((conversation, end)),
        _ => Err(Rejection::FinishedTurn(finish.turn.clone()).into()),
    }
}

fn compact(sql: Sql<'_>, compaction: &Compaction) -> Result<(), Failure> {
    let (conversation, at) = (compaction.conversation, compaction.at);
    touch(sql, conversation)?;
    if let Some((covered, body)) = &compaction.front {
        sql.execute(
            "INSERT INTO fronts (conversation_id, covered, body, created_at) VALUES (?1, ?2, ?3, ?4)
             ON CONFLICT (conversation_id, covered) DO UPDATE SET body = excluded.body, created_at = excluded.created_at",
            values![conversation, covered, body, at],
        )?;
    }
    for checkpoint in &compaction.checkpoints {
        add_checkpoint(sql, conversation, checkpoint, at)?;
    }
    if let Some(snapshot) = &compaction.snapshot {
        add_snapshot(sql, conversation, snapshot, at)?;
    }
    compaction.events.iter().try_for_each(|event| add_event(sql, event))
}

fn add_checkpoint(
    sql: Sql<'_>,
    conversation: ConversationId,
    checkpoint: &NewCheckpoint,
    at: i64,
) -> Result<(), Failure> {
    let [level1, level2, level3] = &checkpoint.texts;
    let changed = sql.execute(
        "INSERT INTO checkpoints (id, conversation_id, first_seq, last_seq, covered, level, author,
             level1, level2, level3, created_at)
         VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11)
         ON CONFLICT (id) DO UPDATE SET first_seq = excluded.first_seq, last_seq = excluded.last_seq,
             covered = excluded.covered, level = excluded.level, author = excluded.author,
             level1 = excluded.level1, level2 = excluded.level2, level3 = excluded.level3
         WHERE checkpoints.conversation_id = excluded.conversation_id",
        values![
            &checkpoint.id,
            conversation,
            checkpoint.first_message,
            checkpoint.last_message,
            &checkpoint.covered,
            checkpoint.level,
            &checkpoint.author,
            level1,
            level2,
            level3,
            at,
        ],
    )?;
    if changed == 0 { Err(Rejection::ForeignCheckpoint(checkpoint.id.clone()).into()) } else { Ok(()) }
}

fn add_snapshot(sql: Sql<'_>, conversation: ConversationId, snapshot: &NewSnapshot, at: i64) -> Result<(), Failure> {
    let end = require(sql, conversation, snapshot.link)?;
    let system = system_prompt(sql, conversation, &snapshot.system)?;
    sql.execute(
        "INSERT INTO snapshots (id, conversation_id, branch_id, last_seq, link, messages, checkpoints, tokens,
             limit_tokens, system_id, reason, created_at)
         VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12)
         ON CONFLICT (id) DO NOTHING",
        values![
            &snapshot.id,
            conversation,
            end.branch,
            end.seq,
            &snapshot.link,
            snapshot.messages,
            snapshot.checkpoints,
            snapshot.tokens,
            snapshot.limit_tokens,
            system,
            &snapshot.reason,
            at,
        ],
    )?;
    Ok(())
}

fn add_event(sql: Sql<'_>, event: &NewEvent) -> Result<(), Failure> {
    let user = event.user.as_ref().map(|name| user(sql, name, event.at)).transpose()?;
    match sql {
        Sql::Sqlite(_) => {
            sql.execute(
                "INSERT INTO events (at, kind, conversation_id, user_id, body) VALUES (?1, ?2, ?3, ?4, ?5)",
                values![event.at, event.kind, event.conversation, user, &event.body],
            )?;
            Ok(())
        }
        // Its number must not be given before others' are committed.
        Sql::Postgres(session) => {
            session.hold_event(event, user);
            Ok(())
        }
    }
}

/// The number of a user, who becomes known here.
pub(super) fn user(sql: Sql<'_>, name: &str, at: i64) -> Result<i64, Failure> {
    let known = || sql.one("SELECT id FROM users WHERE name = ?1", values![name], |row| row.get(0));
    remembered(sql, blake3::hash(name.as_bytes()), || {
        if let Some(id) = known()? {
            return Ok(id);
        }
        let new = "INSERT INTO users (name, created_at) VALUES (?1, ?2) ON CONFLICT (name) DO NOTHING";
        sql.execute(new, values![name, at])?;
        known()?.ok_or(Failure::Odd("a user that was just made is gone"))
    })
}

/// The number of a text that many turns share: those of all conversations, or, where several processes write and one
/// may delete what another is about to use, those of one.
pub(super) fn system_prompt(sql: Sql<'_>, conversation: ConversationId, body: &str) -> Result<i64, Failure> {
    let digest = match sql {
        Sql::Sqlite(_) => blake3::hash(body.as_bytes()),
        Sql::Postgres(_) => {
            let mut hasher = blake3::Hasher::new();
            hasher.update(&conversation.to_le_bytes()).update(body.as_bytes()).finalize()
        }
    };
    let known =
        || sql.one("SELECT id FROM system_prompts WHERE digest = ?1", values![digest.as_bytes()], |row| row.get(0));
    remembered(sql, digest, || {
        if let Some(id) = known()? {
            return Ok(id);
        }
        let new = "INSERT INTO system_prompts (digest, body) VALUES (?1, ?2) ON CONFLICT (digest) DO NOTHING";
        sql.execute(new, values![digest.as_bytes(), body])?;
        known()?.ok_or(Failure::Odd("a system prompt that was just kept is gone"))
    })
}

/// A number that never changes. Where asking is a way there and back it is remembered, once it is committed.
fn remembered(sql: Sql<'_>, of: blake3::Hash, find: impl FnOnce() -> Result<i64, Failure>) -> Result<i64, Failure> {
    match sql {
        Sql::Sqlite(_) => find(),
        Sql::Postgres(session) => session.remembered(*of.as_bytes(), find),
    }
}
