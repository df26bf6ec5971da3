//! On a server that others write to as well.

use super::*;

#[path = "copies.rs"]
mod copies;
#[path = "history.rs"]
mod history;
#[path = "records.rs"]
mod records;
#[path = "replicas.rs"]
mod replicas;
#[path = "tree.rs"]
mod tree;

fn fresh() -> (Place, Store) {
    Place::server()
}
