//! Tokens: who somebody is, and which there are.

use super::Reads;
use crate::store::StoreError;
use crate::store::error::Failure;
use crate::store::sql::{Row, values};

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TokenRow {
    pub id: i64,
    pub name: String,
    pub user: String,
    pub digest: [u8; 32],
    pub hint: String,
    pub scopes: String,
    pub created_at: i64,
    pub expires_at: Option<i64>,
    pub revoked_at: Option<i64>,
    pub last_used_at: Option<i64>,
}

const TOKEN: &str = "SELECT tokens.id, tokens.name, users.name, digest, hint, scopes, tokens.created_at, expires_at,
    revoked_at, last_used_at FROM tokens JOIN users ON users.id = user_id";

impl Reads {
    /// The token with that digest, in force or not.
    pub fn token(&self, digest: &[u8; 32]) -> Result<Option<TokenRow>, StoreError> {
        self.one(&format!("{TOKEN} WHERE digest = ?1"), values![digest], token)
    }

    /// All that ever were, the oldest first.
    pub fn tokens(&self) -> Result<Vec<TokenRow>, StoreError> {
        self.many(&format!("{TOKEN} ORDER BY tokens.id"), &[], token)
    }
}

fn token(row: &Row<'_>) -> Result<TokenRow, Failure> {
    Ok(TokenRow {
        id: row.get(0)?,
        name: row.get(1)?,
        user: row.get(2)?,
        digest: row.get(3)?,
        hint: row.get(4)?,
        scopes: row.get(5)?,
        created_at: row.get(6)?,
        expires_at: row.get(7)?,
        revoked_at: row.get(8)?,
        last_used_at: row.get(9)?,
    })
}
