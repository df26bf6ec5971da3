//! One transaction for everything that waits, each change wholly or not at all.
//!
//! Nearly always every change fits. So they are made one after the other without savepoints first, and a turn that
//! has begun and ended in the same batch is written once. Only if one of them does not fit is all of that undone,
//! and each made again behind a savepoint of its own.

use std::collections::HashMap;

use rusqlite::{Connection, TransactionBehavior};

use super::apply::{apply, whole_turn};
use super::change::Change;
use super::error::{Failure, is_of_the_medium};
use super::sql::Sql;

/// What became of each change. An error means that nothing of all this is stored.
pub(super) fn apply_all(
    connection: &mut Connection,
    changes: &[Box<Change>],
) -> rusqlite::Result<Vec<Result<(), Failure>>> {
    let transaction = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
    match together(Sql::Sqlite(&transaction), changes) {
        Ok(()) => {
            transaction.commit()?;
            return Ok(changes.iter().map(|_| Ok(())).collect());
        }
        Err(Failure::Sqlite(error)) if is_of_the_medium(&error) => return Err(error),
        Err(_) => transaction.rollback()?,
    }
    apart(connection, changes)
}

/// All of them, or an error.
pub(super) fn together(sql: Sql<'_>, changes: &[Box<Change>]) -> Result<(), Failure> {
    let ends = ends_at_hand(changes);
    let mut made = vec![false; changes.len()];
    for (number, change) in changes.iter().enumerate() {
        match (&**change, ends.get(&number)) {
            _ if made[number] => {}
            (Change::Begin(begin), Some(&(end, finish))) => {
                whole_turn(sql, begin, finish)?;
                made[end] = true;
            }
            (change, _) => apply(sql, change)?,
        }
    }
    Ok(())
}

/// For each turn that begins here, its end, if it is here too. Between the two there may only be other turns'
/// beginnings and ends: what turns do does not depend on their order, all else may.
fn ends_at_hand(changes: &[Box<Change>]) -> HashMap<usize, (usize, &super::FinishTurn)> {
    let mut begun: HashMap<&str, usize> = HashMap::new();
    let mut ends = HashMap::new();
    for (number, change) in changes.iter().enumerate() {
        match &**change {
            Change::Begin(begin) => drop(begun.insert(&begin.turn, number)),
            Change::Finish(finish) => {
                if let Some(began) = begun.remove(finish.turn.as_str()) {
                    ends.insert(began, (number, finish));
                }
            }
            _ => begun.clear(),
        }
    }
    ends
}

/// Each behind a savepoint of its own, so that one that does not fit fails alone.
fn apart(connection: &mut Connection, changes: &[Box<Change>]) -> rusqlite::Result<Vec<Result<(), Failure>>> {
    let mut transaction = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
    let mut outcomes = Vec::with_capacity(changes.len());
    for change in changes {
        let savepoint = transaction.savepoint()?;
        let outcome = apply(Sql::Sqlite(&savepoint), change);
        match outcome {
            Ok(()) => savepoint.commit()?,
            Err(Failure::Sqlite(error)) if is_of_the_medium(&error) => return Err(error),
            // Its default is to roll back.
            Err(_) => savepoint.finish()?,
        }
        outcomes.push(outcome);
    }
    transaction.commit()?;
    Ok(outcomes)
}
