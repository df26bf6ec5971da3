//! How much room the store takes, and how much is left.

use std::io;
use std::path::Path;

use super::open::{database_path, log_path};

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Disk {
    pub database_bytes: u64,
    /// The write-ahead log.
    pub log_bytes: u64,
    /// What is left for users that are not root.
    pub free_bytes: u64,
}

/// Looks at the disk that a data directory is on.
pub fn disk(dir: &Path) -> io::Result<Disk> {
    let size = |path: &Path| std::fs::metadata(path).map_or(0, |file| file.len());
    let room = rustix::fs::statvfs(dir)?;
    Ok(Disk {
        database_bytes: size(&database_path(dir)),
        log_bytes: size(&log_path(dir)),
        free_bytes: room.f_bavail.saturating_mul(room.f_frsize),
    })
}

impl Disk {
    /// What the store takes.
    pub fn size_bytes(&self) -> u64 {
        self.database_bytes + self.log_bytes
    }
}
