//! Where a store is: a directory, or a server that several Loadlines share, and a directory for what is one's own.

use std::path::{Path, PathBuf};

use super::copy::UNFINISHED;
use super::{
    Address, Change, Durability, ReadOnly, Store, StoreError, change_beside, open_read_only, open_server_read_only,
    postgres,
};

#[derive(Debug, Clone)]
pub struct Home {
    pub dir: PathBuf,
    /// None: everything is in the directory.
    pub server: Option<Address>,
}

/// For people.
impl std::fmt::Display for Home {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match &self.server {
            Some(server) => server.fmt(formatter),
            None => self.dir.display().fmt(formatter),
        }
    }
}

impl Home {
    pub fn in_directory(dir: &Path) -> Self {
        Self { dir: dir.to_owned(), server: None }
    }

    /// Opens it for a process that serves.
    pub fn open(&self, durability: Durability) -> Result<Store, StoreError> {
        let store = match &self.server {
            None => Store::open(&self.dir, durability)?,
            Some(server) => Store::connect(&self.dir, server.clone())?,
        };
        let half = store.reader()?.cursor(UNFINISHED)?.is_some();
        if half { Err(StoreError::HalfCopied { place: self.to_string() }) } else { Ok(store) }
    }

    /// Opens it for a command that changes things. A directory that a process serves from cannot be; a server can.
    pub fn open_for_command(&self) -> Result<Store, StoreError> {
        match &self.server {
            None => Store::open(&self.dir, Durability::Full),
            Some(server) => Store::connect_beside(&self.dir, server.clone()),
        }
    }

    /// Opens it without locking, making or changing anything.
    pub fn open_read_only(&self) -> Result<ReadOnly, StoreError> {
        match &self.server {
            None => open_read_only(&self.dir),
            Some(server) => open_server_read_only(server.clone()),
        }
    }

    /// Makes one change beside those who serve. Only for what no process remembers: tokens, and the search index.
    pub fn change_beside(&self, change: &Change) -> Result<(), StoreError> {
        match &self.server {
            None => change_beside(&self.dir, change),
            Some(server) => postgres::change_once(server, change),
        }
    }
}
