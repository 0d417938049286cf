//! The embedded engine (dynoxide on SQLite): opening it in memory or on a file, and handing it to the SDK or to a listener.

mod connector;
mod dispatch;
mod file;

use std::fmt;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use aws_smithy_runtime_api::client::http::SharedHttpClient;
use dynoxide::Database;

use crate::error::{Error, Reason, Result};

/// DynamoDB in this process, in memory or on a file. Cheap to clone; clones share their tables.
///
/// Give [`Engine::http_client`] to an SDK client: from there on, requests and answers are the ones that DynamoDB would see.
#[derive(Clone)]
pub struct Engine {
    tables: Arc<Tables>,
    tokens: Tokens,
}

/// What becomes of a transaction's `ClientRequestToken`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Tokens {
    /// Taken out. The SDK fills it in by itself, the engine remembers each for ten minutes and sweeps all of them on every
    /// transaction (4,564 a second fall to 653 after 40,000), and in process no answer is lost that a token could bring back.
    Dropped,
    Kept,
}

/// The tables, and what must be let go of after them.
struct Tables {
    database: Database,
    // Dropped after the database: whoever gets the lock next finds the file closed.
    on_disk: Option<file::Held>,
}

/// Every write to a table with a stream asks the engine for the highest sequence number so far, and the engine has no index
/// for that: without this one each write reads all records before it (3,800 puts a second fall to 407 after 20,000 items).
const STREAM_INDEX: &str = "CREATE INDEX IF NOT EXISTS fencepost_stream_order \
     ON _stream_records (table_name, CAST(sequence_number AS INTEGER))";

impl Engine {
    /// Fresh and empty, gone with its last clone. Holds a gigabyte, streams included; what is more fails as unavailable. [`Engine::file`] has no
    /// such bound.
    pub fn memory() -> Result<Self> {
        static NAMES: AtomicU64 = AtomicU64::new(0);
        // A name in SQLite's own memory instead of `:memory:`, so that a second connection can add the index. The slash makes
        // the name known to all connections of this process; what it names ends with the last of them.
        let name = format!("file:/fencepost-{}?vfs=memdb", NAMES.fetch_add(1, Ordering::Relaxed));
        let database = open(&name).map_err(|e| Error::unavailable(Reason::Unreachable, format!("the embedded engine: {e}")))?;
        Ok(Self::over(database, None))
    }

    /// The tables in this file, created where it is missing. Every acknowledged write survives the process, killed or not.
    ///
    /// One process at a time: the engine keeps what it knows of its tables in memory, and a second process would not see
    /// them change. `PATH.lock` beside the file is held while the engine lives, and another process is refused. Within one
    /// process, opening the same file again gives the same engine.
    pub fn file(path: impl AsRef<Path>) -> Result<Self> {
        file::open(path.as_ref()).map(|tables| Self { tables, tokens: Tokens::Dropped })
    }

    fn over(database: Database, on_disk: Option<file::Held>) -> Self {
        let tables = Tables { database, on_disk };
        Self { tables: Arc::new(tables), tokens: Tokens::Dropped }
    }

    /// This engine with idempotency tokens as DynamoDB has them: a transaction that comes again within ten minutes is
    /// answered and not repeated. For clients between which and the engine answers can be lost. Slower the more
    /// transactions there were in the last ten minutes.
    #[must_use]
    pub fn keep_tokens(mut self) -> Self {
        self.tokens = Tokens::Kept;
        self
    }

    /// For an SDK client's `http_client`: every request of that client is answered by this engine, whatever its endpoint.
    pub fn http_client(&self) -> SharedHttpClient {
        connector::client(self.clone())
    }

    /// Answers HTTP requests on the listener until `shutdown` resolves, then finishes those that run. Tokens are kept here,
    /// since an answer can be lost on the way.
    #[cfg(feature = "serve")]
    pub async fn serve(&self, listener: tokio::net::TcpListener, shutdown: impl Future<Output = ()> + Send + 'static) -> Result<()> {
        // `self` stays borrowed until the last answer, so the file's lock outlives what is served from it.
        dynoxide::server::serve_with_shutdown(listener, self.tables.database.clone(), shutdown)
            .await
            .map_err(|e| Error::unavailable(Reason::Unreachable, format!("the embedded engine: {e}")))
    }
}

impl fmt::Debug for Engine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let place = self.tables.on_disk.as_ref().map_or(Path::new(":memory:"), file::Held::path);
        f.debug_struct("Engine").field("place", &place).field("tokens", &self.tokens).finish()
    }
}

/// Opens what SQLite calls by this name, with our index on it.
fn open(name: &str) -> dynoxide::Result<Database> {
    let database = Database::new(name)?; // creates the engine's own tables where they are missing
    rusqlite::Connection::open(name)?.execute_batch(STREAM_INDEX)?;
    Ok(database)
}
