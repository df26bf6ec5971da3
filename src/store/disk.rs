//! How much room the store takes, and how much is left.

use std::io;
use std::path::Path;

use super::open::database_path;

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Disk {
    /// The database and its write-ahead log.
    pub size_bytes: u64,
    /// What is left for users that are not root.
    pub free_bytes: u64,
}

/// Looks at the disk that a data directory is on.
pub fn disk(dir: &Path) -> io::Result<Disk> {
    let database = database_path(dir);
    let mut log = database.clone().into_os_string();
    log.push("-wal");
    let size = |path: &Path| std::fs::metadata(path).map_or(0, |file| file.len());
    let room = rustix::fs::statvfs(dir)?;
    Ok(Disk { size_bytes: size(&database) + size(Path::new(&log)), free_bytes: room.f_bavail * room.f_frsize })
}
