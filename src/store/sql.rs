//! The one form in which both databases are spoken to: statements with numbered places (`?1`), values, rows.
//!
//! Statements are written in what SQLite and PostgreSQL have in common, so that what the store does is written once.
//! Where they cannot agree (search, numbers of events, looking for many things at once) the code asks which of the two
//! it is, and says why. A number is a 64-bit one everywhere, and yes and no are 1 and 0.

use std::borrow::Cow;

use postgres::types::{FromSql, IsNull, Kind, ToSql, Type};
use rusqlite::OptionalExtension;
use rusqlite::types::{ToSqlOutput, ValueRef};

use super::error::Failure;
use super::postgres::{Session, text};
use crate::context::Link;

/// A connection, in a transaction or not.
#[derive(Debug, Clone, Copy)]
pub(super) enum Sql<'c> {
    Sqlite(&'c rusqlite::Connection),
    Postgres(&'c Session),
}

/// What is put into a statement.
#[derive(Debug, Clone, Copy)]
pub(super) enum Value<'v> {
    Null,
    Int(i64),
    Text(&'v str),
    Blob(&'v [u8]),
    /// Any of these; only PostgreSQL has lists.
    Blobs(&'v [&'v [u8]]),
}

/// Values in the order of their places.
macro_rules! values {
    ($($value:expr),* $(,)?) => {
        &[$($crate::store::sql::Value::from($value)),*]
    };
}
pub(super) use values;

impl<'c> Sql<'c> {
    /// How many rows it changed.
    pub(super) fn execute(&self, statement: &str, values: &[Value<'_>]) -> Result<usize, Failure> {
        match self {
            Self::Sqlite(connection) => Ok(connection.prepare_cached(statement)?.execute(places(values))?),
            Self::Postgres(session) => session.execute(statement, values),
        }
    }

    /// The number that a new row was given, which is in the column `key`.
    pub(super) fn insert(&self, statement: &str, key: &str, values: &[Value<'_>]) -> Result<i64, Failure> {
        match self {
            Self::Sqlite(connection) => Ok(connection.prepare_cached(statement)?.insert(places(values))?),
            Self::Postgres(_) => {
                let number = self.one(&format!("{statement} RETURNING {key}"), values, |row| row.get(0))?;
                number.ok_or(Failure::Odd("an insert gave no number"))
            }
        }
    }

    /// The first row, if there is one.
    pub(super) fn one<T>(
        &self,
        statement: &str,
        values: &[Value<'_>],
        read: impl FnOnce(&Row<'_>) -> Result<T, Failure>,
    ) -> Result<Option<T>, Failure> {
        match self {
            Self::Sqlite(connection) => {
                let mut statement = connection.prepare_cached(statement)?;
                let found = statement.query_row(places(values), |row| Ok(read(&Row::Sqlite(row)))).optional()?;
                found.transpose()
            }
            Self::Postgres(session) => {
                session.query(statement, values)?.first().map(|row| read(&Row::Postgres(row))).transpose()
            }
        }
    }

    pub(super) fn many<T>(
        &self,
        statement: &str,
        values: &[Value<'_>],
        mut read: impl FnMut(&Row<'_>) -> Result<T, Failure>,
    ) -> Result<Vec<T>, Failure> {
        match self {
            Self::Sqlite(connection) => {
                let mut statement = connection.prepare_cached(statement)?;
                let mut rows = statement.query(places(values))?;
                let mut found = Vec::new();
                while let Some(row) = rows.next()? {
                    found.push(read(&Row::Sqlite(row))?);
                }
                Ok(found)
            }
            Self::Postgres(session) => {
                session.query(statement, values)?.iter().map(|row| read(&Row::Postgres(row))).collect()
            }
        }
    }

    pub(super) fn exists(&self, statement: &str, values: &[Value<'_>]) -> Result<bool, Failure> {
        Ok(self.one(statement, values, |_| Ok(()))?.is_some())
    }
}

fn places<'a>(values: &'a [Value<'a>]) -> rusqlite::ParamsFromIter<std::slice::Iter<'a, Value<'a>>> {
    rusqlite::params_from_iter(values.iter())
}

impl rusqlite::ToSql for Value<'_> {
    fn to_sql(&self) -> rusqlite::Result<ToSqlOutput<'_>> {
        let value = match self {
            Self::Null => ValueRef::Null,
            Self::Int(number) => ValueRef::Integer(*number),
            Self::Text(text) => ValueRef::Text(text.as_bytes()),
            Self::Blob(bytes) => ValueRef::Blob(bytes),
            Self::Blobs(_) => return Err(rusqlite::Error::ToSqlConversionFailure("SQLite has no lists".into())),
        };
        Ok(ToSqlOutput::Borrowed(value))
    }
}

type BoxError = Box<dyn std::error::Error + Sync + Send>;

impl ToSql for Value<'_> {
    fn to_sql(&self, ty: &Type, out: &mut bytes::BytesMut) -> Result<IsNull, BoxError> {
        match self {
            Self::Null => Ok(IsNull::Yes),
            Self::Int(number) if *ty == Type::INT4 => i32::try_from(*number)?.to_sql(ty, out),
            Self::Int(number) => number.to_sql(ty, out),
            Self::Text(written) => text::written(written).as_ref().to_sql(ty, out),
            Self::Blob(bytes) => bytes.to_sql(ty, out),
            Self::Blobs(list) => list.to_sql(ty, out),
        }
    }

    fn accepts(_: &Type) -> bool {
        true
    }

    /// Which type fits depends on the value.
    fn to_sql_checked(&self, ty: &Type, out: &mut bytes::BytesMut) -> Result<IsNull, BoxError> {
        let fits = match self {
            Self::Null => true,
            Self::Int(_) => matches!(*ty, Type::INT8 | Type::INT4),
            Self::Text(_) => matches!(*ty, Type::TEXT | Type::VARCHAR),
            Self::Blob(_) => *ty == Type::BYTEA,
            Self::Blobs(_) => matches!(ty.kind(), Kind::Array(of) if *of == Type::BYTEA),
        };
        if fits { ToSql::to_sql(self, ty, out) } else { Err(format!("a value does not fit into {ty}").into()) }
    }
}

impl From<i64> for Value<'_> {
    fn from(number: i64) -> Self {
        Self::Int(number)
    }
}

impl From<&i64> for Value<'_> {
    fn from(number: &i64) -> Self {
        Self::Int(*number)
    }
}

impl From<u32> for Value<'_> {
    fn from(number: u32) -> Self {
        Self::Int(i64::from(number))
    }
}

impl From<u8> for Value<'_> {
    fn from(number: u8) -> Self {
        Self::Int(i64::from(number))
    }
}

impl From<bool> for Value<'_> {
    fn from(yes: bool) -> Self {
        Self::Int(i64::from(yes))
    }
}

impl<'v> From<&'v str> for Value<'v> {
    fn from(text: &'v str) -> Self {
        Self::Text(text)
    }
}

impl<'v> From<&'v String> for Value<'v> {
    fn from(text: &'v String) -> Self {
        Self::Text(text)
    }
}

impl<'v> From<&'v [u8]> for Value<'v> {
    fn from(bytes: &'v [u8]) -> Self {
        Self::Blob(bytes)
    }
}

impl<'v> From<&'v [u8; 32]> for Value<'v> {
    fn from(bytes: &'v [u8; 32]) -> Self {
        Self::Blob(bytes)
    }
}

impl<'v> From<&'v Link> for Value<'v> {
    fn from(link: &'v Link) -> Self {
        Self::Blob(link.as_bytes())
    }
}

impl<'v, T: Into<Value<'v>>> From<Option<T>> for Value<'v> {
    fn from(value: Option<T>) -> Self {
        value.map_or(Self::Null, Into::into)
    }
}

impl<'v> From<&'v Option<String>> for Value<'v> {
    fn from(text: &'v Option<String>) -> Self {
        text.as_deref().into()
    }
}

/// A row that was found.
pub(super) enum Row<'r> {
    Sqlite(&'r rusqlite::Row<'r>),
    Postgres(&'r postgres::Row),
}

impl Row<'_> {
    /// What a column holds, counted from 0.
    pub(super) fn get<T: Column>(&self, column: usize) -> Result<T, Failure> {
        let odd = || Failure::Odd(T::MISSED);
        match self {
            Self::Sqlite(row) => {
                let cell = match row.get_ref(column)? {
                    ValueRef::Null => Cell::Null,
                    ValueRef::Integer(number) => Cell::Int(number),
                    ValueRef::Text(text) => {
                        let text = std::str::from_utf8(text);
                        Cell::Text(Cow::Borrowed(text.map_err(|error| rusqlite::Error::Utf8Error(column, error))?))
                    }
                    ValueRef::Blob(bytes) => Cell::Blob(bytes),
                    ValueRef::Real(_) => return Err(odd()),
                };
                T::read(cell).ok_or_else(odd)
            }
            Self::Postgres(row) => T::read(row.try_get::<_, Cell<'_>>(column)?).ok_or_else(odd),
        }
    }
}

/// What is in one column of one row.
pub(super) enum Cell<'r> {
    Null,
    Int(i64),
    Text(Cow<'r, str>),
    Blob(&'r [u8]),
}

impl<'r> FromSql<'r> for Cell<'r> {
    fn from_sql(ty: &Type, raw: &'r [u8]) -> Result<Self, BoxError> {
        match *ty {
            Type::INT8 => i64::from_sql(ty, raw).map(Self::Int),
            Type::INT4 => i32::from_sql(ty, raw).map(|number| Self::Int(number.into())),
            Type::TEXT | Type::VARCHAR | Type::NAME => {
                <&str>::from_sql(ty, raw).map(|written| Self::Text(text::read(written)))
            }
            Type::BYTEA => <&[u8]>::from_sql(ty, raw).map(Self::Blob),
            _ => Err(format!("a column of type {ty} was not expected").into()),
        }
    }

    fn from_sql_null(_: &Type) -> Result<Self, BoxError> {
        Ok(Self::Null)
    }

    fn accepts(_: &Type) -> bool {
        true
    }
}

/// What a column may be read as.
pub(super) trait Column: Sized {
    /// Said when it is not that.
    const MISSED: &'static str;

    fn read(cell: Cell<'_>) -> Option<Self>;
}

impl Column for i64 {
    const MISSED: &'static str = "a column holds no number";

    fn read(cell: Cell<'_>) -> Option<Self> {
        match cell {
            Cell::Int(number) => Some(number),
            Cell::Null | Cell::Text(_) | Cell::Blob(_) => None,
        }
    }
}

impl Column for u32 {
    const MISSED: &'static str = "a column holds no small number";

    fn read(cell: Cell<'_>) -> Option<Self> {
        i64::read(cell)?.try_into().ok()
    }
}

impl Column for u8 {
    const MISSED: &'static str = "a column holds no tiny number";

    fn read(cell: Cell<'_>) -> Option<Self> {
        i64::read(cell)?.try_into().ok()
    }
}

impl Column for bool {
    const MISSED: &'static str = "a column holds neither yes nor no";

    fn read(cell: Cell<'_>) -> Option<Self> {
        i64::read(cell).map(|number| number != 0)
    }
}

impl Column for String {
    const MISSED: &'static str = "a column holds no text";

    fn read(cell: Cell<'_>) -> Option<Self> {
        match cell {
            Cell::Text(text) => Some(text.into_owned()),
            Cell::Null | Cell::Int(_) | Cell::Blob(_) => None,
        }
    }
}

impl Column for [u8; 32] {
    const MISSED: &'static str = "a column holds no digest";

    fn read(cell: Cell<'_>) -> Option<Self> {
        match cell {
            Cell::Blob(bytes) => bytes.try_into().ok(),
            Cell::Null | Cell::Int(_) | Cell::Text(_) => None,
        }
    }
}

impl Column for Link {
    const MISSED: &'static str = "a column holds no link";

    fn read(cell: Cell<'_>) -> Option<Self> {
        <[u8; 32]>::read(cell).map(Self::from_bytes)
    }
}

impl<T: Column> Column for Option<T> {
    const MISSED: &'static str = T::MISSED;

    fn read(cell: Cell<'_>) -> Option<Self> {
        match cell {
            Cell::Null => Some(None),
            cell => T::read(cell).map(Some),
        }
    }
}
