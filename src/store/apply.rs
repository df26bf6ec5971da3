//! Makes one change, inside the savepoint that the writer gives it. What it cannot do wholly it refuses.

use std::ops::RangeInclusive;

use rusqlite::{Connection, OptionalExtension, named_params, params};

use super::append::{Origin, Position, require, root, step};
use super::change::{BeginTurn, Change, Compaction, FinishTurn, NewCheckpoint, NewEvent, NewSnapshot};
use super::error::{Failure, Rejection};
use super::{delete, import, index, tokens};
use crate::context::identity::ConversationId;

/// Slices that somebody who searches waits for; the rest follows when there is time.
const MOST_SLICES: usize = 96;

pub(super) fn apply(connection: &Connection, change: &Change) -> Result<(), Failure> {
    match change {
        Change::Begin(begin) => begin_turn(connection, begin),
        Change::Finish(finish) => finish_turn(connection, finish),
        Change::Compaction(compaction) => compact(connection, compaction),
        Change::Event(event) => add_event(connection, event),
        Change::ImportBegin(import) => import::begin(connection, import),
        Change::ImportSlice(slice) => import::add_slice(connection, slice),
        Change::ImportEnd(imports) => import::end(connection, imports),
        Change::Index => {
            for _slice in 0..MOST_SLICES {
                if !index::add_slice(connection)? {
                    break;
                }
            }
            Ok(())
        }
        Change::Wake => Ok(()),
        Change::Hide(conversation) => delete::hide(connection, *conversation),
        Change::DeleteSlice(conversation) => delete::delete_slice(connection, *conversation),
        Change::CreateToken(token) => tokens::create(connection, token),
        Change::RevokeToken { id, at } => tokens::revoke(connection, *id, *at),
        Change::TokenUsed { id, at } => tokens::used(connection, *id, *at),
        Change::ForgetToken(id) => tokens::forget(connection, *id),
        Change::Condensed { digest, body, at } => {
            let mut statement = connection.prepare_cached(
                "INSERT INTO condensed (digest, body, created_at) VALUES (?1, ?2, ?3) ON CONFLICT DO NOTHING",
            )?;
            statement.execute(params![digest, body, at])?;
            Ok(())
        }
        Change::Cursor { name, value } => {
            let mut statement = connection.prepare_cached(
                "INSERT INTO settings (name, value) VALUES (?1, ?2)
                 ON CONFLICT (name) DO UPDATE SET value = max(value, excluded.value)",
            )?;
            statement.execute(params![name, value])?;
            Ok(())
        }
    }
}

fn begin_turn(connection: &Connection, begin: &BeginTurn) -> Result<(), Failure> {
    let end = add_request(connection, begin, begin.at)?;
    let mut statement = connection.prepare_cached(
        "INSERT INTO turns (id, conversation_id, branch_id, last_seq, at, model, dialect, status, system_id)
         VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, 'pending', ?8)",
    )?;
    statement.execute(params![
        begin.turn,
        begin.conversation,
        end.map(|end| end.branch),
        end.map_or(0, |end| end.seq),
        begin.at,
        begin.model,
        begin.dialect,
        system_prompt(connection, &begin.system)?
    ])?;
    Ok(())
}

/// The messages of a request. Where they end.
fn add_request(connection: &Connection, begin: &BeginTurn, updated_at: i64) -> Result<Option<Position>, Failure> {
    let (conversation, at) = (begin.conversation, begin.at);
    let new = open_conversation(connection, conversation, &begin.user, &begin.model, at..=updated_at)?;
    let mut position = match begin.after {
        Some(link) => Some(require(connection, conversation, link)?),
        None if new && !begin.messages.is_empty() => Some(root(connection, conversation, at)?),
        None => None,
    };
    for message in &begin.messages {
        position = Some(step(connection, conversation, position, message, Origin { at, answer: None })?);
    }
    Ok(position)
}

/// Makes the conversation if it is not there, and makes sure that it is this user's. Whether it is new.
pub(super) fn open_conversation(
    connection: &Connection,
    conversation: ConversationId,
    name: &str,
    model: &str,
    at: RangeInclusive<i64>,
) -> Result<bool, Failure> {
    let user = user(connection, name, *at.start())?;
    let mut make = connection.prepare_cached(
        "INSERT INTO conversations (id, user_id, model, created_at, updated_at) VALUES (?1, ?2, ?3, ?4, ?5)
         ON CONFLICT (id) DO NOTHING",
    )?;
    if make.execute(params![conversation, user, model, at.start(), at.end()])? == 1 {
        return Ok(true);
    }
    let mut update = connection
        .prepare_cached("UPDATE conversations SET model = ?3, updated_at = ?4 WHERE id = ?1 AND user_id = ?2")?;
    match update.execute(params![conversation, user, model, at.end()])? {
        0 => Err(Rejection::ForeignConversation(conversation).into()),
        _ => Ok(false),
    }
}

/// A turn that has begun and ended since the last commit is written once, not twice.
pub(super) fn whole_turn(connection: &Connection, begin: &BeginTurn, finish: &FinishTurn) -> Result<(), Failure> {
    let mut end = add_request(connection, begin, finish.at)?;
    end = add_answer(connection, begin.conversation, end, finish)?;
    let mut statement = connection.prepare_cached(
        "INSERT INTO turns (id, conversation_id, branch_id, last_seq, at, model, dialect, status, system_id,
             finished_at, arrived_tokens, sent_tokens, limit_tokens, reported_tokens, basis, action, receipt_id)
         VALUES (:turn, :conversation, :branch, :seq, :begun, :model, :dialect, :status, :system,
             :at, nullif(:arrived, 0), nullif(:sent, 0), nullif(:limit, 0), :reported, nullif(:basis, ''),
             nullif(:action, ''), :receipt)",
    )?;
    statement.execute(named_params! {
        ":turn": begin.turn,
        ":conversation": begin.conversation,
        ":branch": end.map(|end| end.branch),
        ":seq": end.map_or(0, |end| end.seq),
        ":begun": begin.at,
        ":model": begin.model,
        ":dialect": begin.dialect,
        ":status": finish.status.name(),
        ":system": system_prompt(connection, &begin.system)?,
        ":at": finish.at,
        ":arrived": finish.arrived_tokens,
        ":sent": finish.sent_tokens,
        ":limit": finish.limit_tokens,
        ":reported": finish.reported_tokens,
        ":basis": finish.basis,
        ":action": finish.action,
        ":receipt": finish.receipt.as_ref().map(|(id, _)| id),
    })?;
    add_outcome(connection, begin.conversation, finish)
}

fn finish_turn(connection: &Connection, finish: &FinishTurn) -> Result<(), Failure> {
    let (conversation, end) = pending_turn(connection, finish)?;
    let end = add_answer(connection, conversation, end, finish)?;
    let mut statement = connection.prepare_cached(
        "UPDATE turns SET branch_id = :branch, last_seq = :seq, finished_at = :at, status = :status,
             arrived_tokens = nullif(:arrived, 0), sent_tokens = nullif(:sent, 0), limit_tokens = nullif(:limit, 0),
             reported_tokens = :reported, basis = nullif(:basis, ''), action = nullif(:action, ''), receipt_id = :receipt
         WHERE id = :turn",
    )?;
    statement.execute(named_params! {
        ":branch": end.map(|end| end.branch),
        ":seq": end.map_or(0, |end| end.seq),
        ":at": finish.at,
        ":status": finish.status.name(),
        ":arrived": finish.arrived_tokens,
        ":sent": finish.sent_tokens,
        ":limit": finish.limit_tokens,
        ":reported": finish.reported_tokens,
        ":basis": finish.basis,
        ":action": finish.action,
        ":receipt": finish.receipt.as_ref().map(|(id, _)| id),
        ":turn": finish.turn,
    })?;
    connection
        .prepare_cached("UPDATE conversations SET updated_at = ?2 WHERE id = ?1")?
        .execute(params![conversation, finish.at])?;
    add_outcome(connection, conversation, finish)
}

/// The answer, behind the request. Where the turn ends with it.
fn add_answer(
    connection: &Connection,
    conversation: ConversationId,
    end: Option<Position>,
    finish: &FinishTurn,
) -> Result<Option<Position>, Failure> {
    let Some(answer) = &finish.answer else { return Ok(end) };
    let origin = Origin { at: finish.at, answer: Some(finish.status.of_answer()) };
    step(connection, conversation, end, answer, origin).map(Some)
}

/// What is kept of a turn beside its messages.
fn add_outcome(connection: &Connection, conversation: ConversationId, finish: &FinishTurn) -> Result<(), Failure> {
    if let Some((id, body)) = &finish.receipt {
        let mut statement = connection.prepare_cached(
            "INSERT INTO receipts (id, conversation_id, turn_id, body, created_at) VALUES (?1, ?2, ?3, ?4, ?5)",
        )?;
        statement.execute(params![id, conversation, finish.turn, body, finish.at])?;
    }
    finish.events.iter().try_for_each(|event| add_event(connection, event))
}

/// The turn's conversation, and where its request ended.
fn pending_turn(connection: &Connection, finish: &FinishTurn) -> Result<(ConversationId, Option<Position>), Failure> {
    let mut statement = connection.prepare_cached(
        "SELECT turns.conversation_id, turns.status, turns.branch_id, last_seq, coalesce(answered, 0) FROM turns
         LEFT JOIN messages ON messages.branch_id = turns.branch_id AND messages.seq = last_seq
         WHERE turns.id = ?1",
    )?;
    let found = statement.query_row([&finish.turn], |row| {
        let (seq, answered) = (row.get(3)?, row.get(4)?);
        let end = row.get::<_, Option<i64>>(2)?.map(|branch| Position { branch, seq, answered, just_written: None });
        Ok((row.get(0)?, row.get::<_, String>(1)?, end))
    });
    let (conversation, status, end) = found.optional()?.ok_or_else(|| Rejection::UnknownTurn(finish.turn.clone()))?;
    match status.as_str() {
        "pending" => Ok((conversation, end)),
        _ => Err(Rejection::FinishedTurn(finish.turn.clone()).into()),
    }
}

fn compact(connection: &Connection, compaction: &Compaction) -> Result<(), Failure> {
    let (conversation, at) = (compaction.conversation, compaction.at);
    if let Some((covered, body)) = &compaction.front {
        let mut statement = connection.prepare_cached(
            "INSERT INTO fronts (conversation_id, covered, body, created_at) VALUES (?1, ?2, ?3, ?4)
             ON CONFLICT (conversation_id, covered) DO UPDATE SET body = excluded.body, created_at = excluded.created_at",
        )?;
        statement.execute(params![conversation, covered.as_bytes(), body, at])?;
    }
    for checkpoint in &compaction.checkpoints {
        add_checkpoint(connection, conversation, checkpoint, at)?;
    }
    if let Some(snapshot) = &compaction.snapshot {
        add_snapshot(connection, conversation, snapshot, at)?;
    }
    compaction.events.iter().try_for_each(|event| add_event(connection, event))
}

fn add_checkpoint(
    connection: &Connection,
    conversation: ConversationId,
    checkpoint: &NewCheckpoint,
    at: i64,
) -> Result<(), Failure> {
    let mut statement = connection.prepare_cached(
        "INSERT INTO checkpoints (id, conversation_id, first_seq, last_seq, covered, level, author,
             level1, level2, level3, created_at)
         VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11)
         ON CONFLICT (id) DO UPDATE SET first_seq = excluded.first_seq, last_seq = excluded.last_seq,
             covered = excluded.covered, level = excluded.level, author = excluded.author,
             level1 = excluded.level1, level2 = excluded.level2, level3 = excluded.level3
         WHERE conversation_id = excluded.conversation_id",
    )?;
    let [level1, level2, level3] = &checkpoint.texts;
    let changed = statement.execute(params![
        checkpoint.id,
        conversation,
        checkpoint.first_message,
        checkpoint.last_message,
        checkpoint.covered.as_bytes(),
        checkpoint.level,
        checkpoint.author,
        level1,
        level2,
        level3,
        at
    ])?;
    if changed == 0 { Err(Rejection::ForeignCheckpoint(checkpoint.id.clone()).into()) } else { Ok(()) }
}

fn add_snapshot(
    connection: &Connection,
    conversation: ConversationId,
    snapshot: &NewSnapshot,
    at: i64,
) -> Result<(), Failure> {
    let end = require(connection, conversation, snapshot.link)?;
    let mut statement = connection.prepare_cached(
        "INSERT INTO snapshots (id, conversation_id, branch_id, last_seq, link, messages, checkpoints, tokens,
             limit_tokens, system_id, reason, created_at)
         VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12)
         ON CONFLICT (id) DO NOTHING",
    )?;
    statement.execute(params![
        snapshot.id,
        conversation,
        end.branch,
        end.seq,
        snapshot.link.as_bytes(),
        snapshot.messages,
        snapshot.checkpoints,
        snapshot.tokens,
        snapshot.limit_tokens,
        system_prompt(connection, &snapshot.system)?,
        snapshot.reason,
        at
    ])?;
    Ok(())
}

fn add_event(connection: &Connection, event: &NewEvent) -> Result<(), Failure> {
    let user = event.user.as_ref().map(|name| user(connection, name, event.at)).transpose()?;
    let mut statement = connection
        .prepare_cached("INSERT INTO events (at, kind, conversation_id, user_id, body) VALUES (?1, ?2, ?3, ?4, ?5)")?;
    statement.execute(params![event.at, event.kind, event.conversation, user, event.body])?;
    Ok(())
}

/// The number of a user, who becomes known here.
pub(super) fn user(connection: &Connection, name: &str, at: i64) -> rusqlite::Result<i64> {
    let mut known = connection.prepare_cached("SELECT id FROM users WHERE name = ?1")?;
    if let Some(id) = known.query_row([name], |row| row.get(0)).optional()? {
        return Ok(id);
    }
    connection.prepare_cached("INSERT INTO users (name, created_at) VALUES (?1, ?2)")?.insert(params![name, at])
}

/// The number of a text that many turns share.
pub(super) fn system_prompt(connection: &Connection, body: &str) -> rusqlite::Result<i64> {
    let digest = blake3::hash(body.as_bytes());
    let mut known = connection.prepare_cached("SELECT id FROM system_prompts WHERE digest = ?1")?;
    if let Some(id) = known.query_row([digest.as_bytes()], |row| row.get(0)).optional()? {
        return Ok(id);
    }
    let mut statement = connection.prepare_cached("INSERT INTO system_prompts (digest, body) VALUES (?1, ?2)")?;
    statement.insert(params![digest.as_bytes(), body])
}
