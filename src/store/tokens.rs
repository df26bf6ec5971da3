//! Tokens, as far as they are stored: a digest, whose it is, and what it is good for.

use super::apply::user;
use super::error::{Failure, Rejection};
use super::sql::{Sql, values};

/// A token to be known from now on. The token itself never comes here.
#[derive(Debug, Clone)]
pub struct NewToken {
    pub name: String,
    pub user: String,
    pub digest: [u8; 32],
    /// Its beginning, for telling tokens apart.
    pub hint: String,
    /// Names with commas between.
    pub scopes: String,
    pub at: i64,
    pub expires_at: Option<i64>,
}

pub(super) fn create(sql: Sql<'_>, token: &NewToken) -> Result<(), Failure> {
    let owner = user(sql, &token.user, token.at)?;
    // What has expired is not in the way.
    sql.execute(
        "UPDATE tokens SET revoked_at = expires_at WHERE name = ?1 AND revoked_at IS NULL AND expires_at <= ?2",
        values![&token.name, token.at],
    )?;
    let made = sql.execute(
        "INSERT INTO tokens (user_id, name, digest, hint, scopes, created_at, expires_at)
         VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7) ON CONFLICT DO NOTHING",
        values![owner, &token.name, &token.digest, &token.hint, &token.scopes, token.at, token.expires_at],
    )?;
    match made {
        0 => Err(Rejection::TokenExists(token.name.clone()).into()),
        _ => Ok(()),
    }
}

pub(super) fn revoke(sql: Sql<'_>, id: i64, at: i64) -> Result<(), Failure> {
    match sql.execute("UPDATE tokens SET revoked_at = ?2 WHERE id = ?1 AND revoked_at IS NULL", values![id, at])? {
        0 => Err(Rejection::UnknownToken.into()),
        _ => Ok(()),
    }
}

pub(super) fn used(sql: Sql<'_>, id: i64, at: i64) -> Result<(), Failure> {
    sql.execute("UPDATE tokens SET last_used_at = ?2 WHERE id = ?1", values![id, at])?;
    Ok(())
}

pub(super) fn forget(sql: Sql<'_>, id: i64) -> Result<(), Failure> {
    sql.execute("DELETE FROM tokens WHERE id = ?1", values![id])?;
    Ok(())
}
