//! On a file of its own.

use super::*;

#[path = "commit.rs"]
mod commit;
#[path = "files.rs"]
mod files;
#[path = "history.rs"]
mod history;
#[path = "leftovers.rs"]
mod leftovers;
#[path = "records.rs"]
mod records;
#[path = "speed.rs"]
mod speed;
#[path = "tree.rs"]
mod tree;

fn fresh() -> (Place, Store) {
    Place::file()
}
