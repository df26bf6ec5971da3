//! PostgreSQL as the store of several Loadlines at once.
//!
//! The rows are SQLite's, and so is nearly all of the code that writes and reads them; here is what differs because
//! others write too, somewhere else, and because the way to the database may be cut at any moment:
//!
//! * [`session`]: one connection, its statements and its transaction. A change locks its conversation first.
//! * [`writer`]: a few connections that write, each with group commit. A transaction is done again as a whole when it
//!   met another's, and when its connection was lost; a number in its own row tells whether a commit that nobody
//!   confirmed has happened, so that nothing is lost and nothing is stored twice.
//! * [`replica`]: that this process lives, what only one may do at a time, numbers, and what others have done.
//! * [`schema`]: tables, and bringing them up to date while others start as well.
//!
//! Nothing here needs an extension or a superuser; docs/replicas.md says which features were avoided.

mod address;
mod keeper;
mod replica;
mod schema;
mod session;
pub(super) mod text;
mod writer;

pub use address::{Address, AddressError};
pub(super) use keeper::Keeper;
pub(super) use replica::Replica;
pub use replica::{Signal, checkpoint_lease};
pub(super) use schema::{FOLDED_QUESTION, FOLDED_TEXT};
pub(super) use session::Session;
pub(super) use writer::{Writer, change_once};

/// A connection with the schema up to date, for a command that has the database to itself.
pub(super) fn open_alone(address: &Address) -> Result<Session, crate::store::StoreError> {
    let session = address.connect().map_err(|failure| failure.on(address))?;
    session.takes_its_time();
    let _unknown_there = session.batch("SET statement_timeout = 0");
    schema::migrate(&session, address)?;
    Ok(session)
}

/// Runs what waits for a server. Whoever waits on a thread that drives others lets these go on elsewhere.
pub(super) fn waiting<T: Send>(work: impl FnOnce() -> T + Send) -> T {
    use tokio::runtime::{Handle, RuntimeFlavor};
    match Handle::try_current().map(|runtime| runtime.runtime_flavor()) {
        Ok(RuntimeFlavor::CurrentThread) => std::thread::scope(|scope| match scope.spawn(work).join() {
            Ok(done) => done,
            Err(panic) => std::panic::resume_unwind(panic),
        }),
        Ok(_) => tokio::task::block_in_place(work),
        Err(_) => work(),
    }
}
