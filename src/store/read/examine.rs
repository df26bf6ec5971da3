//! Questions about the store itself: is it whole, how new is it, and within which limits was it used.

use std::time::Duration;

use super::{Engine, Reads, locked};
use crate::store::StoreError;
use crate::store::open::{self, Checked};
use crate::store::sql::{Sql, values};

/// How often one limit was in force for a model.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RecentLimit {
    /// As the requests named it.
    pub model: String,
    pub limit_tokens: u32,
    pub turns: u32,
}

impl Reads {
    /// Looks for damaged pages, for at most that long. Damage is an error. A server looks after its pages itself, and
    /// is only asked whether it answers.
    pub fn check(&self, within: Duration) -> Result<Checked, StoreError> {
        match &self.0 {
            Engine::Sqlite { connection, path } => open::check(&locked(connection), path, within),
            Engine::Postgres(_) => self.schema().map(|_| Checked::Whole),
        }
    }

    /// The number of the schema.
    pub fn schema(&self) -> Result<i64, StoreError> {
        self.ask(|sql| match sql {
            Sql::Sqlite(connection) => Ok(connection.pragma_query_value(None, "user_version", |row| row.get(0))?),
            Sql::Postgres(session) => session.schema(),
        })
    }

    /// When the newest turn began.
    pub fn newest_turn_at(&self) -> Result<Option<i64>, StoreError> {
        self.one("SELECT at FROM turns WHERE dialect <> 'import' ORDER BY number DESC LIMIT 1", &[], |row| row.get(0))
    }

    /// The limits of the turns since a time, of the newest so many.
    pub fn recent_limits(&self, since: i64, most: u32) -> Result<Vec<RecentLimit>, StoreError> {
        let sql = "SELECT model, limit_tokens, count(*) FROM
            (SELECT model, limit_tokens, at FROM turns ORDER BY number DESC LIMIT ?2) AS latest
            WHERE limit_tokens > 0 AND at >= ?1 GROUP BY model, limit_tokens ORDER BY model, limit_tokens";
        self.many(sql, values![since, most], |row| {
            Ok(RecentLimit { model: row.get(0)?, limit_tokens: row.get(1)?, turns: row.get(2)? })
        })
    }
}
