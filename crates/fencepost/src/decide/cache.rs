//! The cache: states and the tokens they were folded at, so that a warm decision reads only the difference.

use std::any::{Any, TypeId};
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use jiff::Timestamp;
use tokio::sync::Mutex;

use crate::error::Result;
use crate::position::Token;

/// States of models and deciders between decisions, the most useful of them. Cheap to clone; clones share what they hold.
///
/// It saves reading and folding, never a check: whatever it holds, a decision reads what came since, strongly, unless it was
/// [allowed](crate::Deciding::allow_stale) to begin with what was known a while ago; and the append holds the token against the store. A state is found by its name, its type and what it is about, so use one cache for one store.
#[derive(Clone)]
pub struct Cache(Arc<Shared>);

struct Shared {
    cells: moka::sync::Cache<Key, Arc<Cell>>,
    hits: AtomicU64,
    misses: AtomicU64,
}

/// How often the cache had a state to begin with.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct CacheStats {
    /// A state was there.
    pub hits: u64,
    /// None was: everything was read, by one reader for all who asked meanwhile.
    pub misses: u64,
    /// States held, about.
    pub states: u64,
}

/// What a state is found by.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct Key {
    pub(super) name: String,
    /// The query's fingerprint, or the stream.
    pub(super) about: String,
    pub(super) state: TypeId,
}

/// One state. The lock is held while it is read for the first time, so that many who miss at once read once.
#[derive(Default)]
pub(super) struct Cell(Mutex<Option<Entry>>);

struct Entry {
    state: Arc<dyn Any + Send + Sync>,
    token: Token,
    /// When it was known to be so.
    at: Timestamp,
    /// Counts what was put: only who began with the newest puts the next.
    generation: u64,
}

/// What was kept when a decision began.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Since {
    Nothing,
    /// The state of this generation.
    Kept(u64),
}

/// A state to begin with.
pub(super) struct Kept<S> {
    pub(super) state: S,
    pub(super) token: Token,
    pub(super) at: Timestamp,
    pub(super) generation: u64,
}

impl Cache {
    /// At most so many states.
    pub fn new(states: u64) -> Self {
        Self(Arc::new(Shared { cells: moka::sync::Cache::new(states), hits: AtomicU64::new(0), misses: AtomicU64::new(0) }))
    }

    /// Hits and misses so far. Also counted as `fencepost_cache_hits_total` and `fencepost_cache_misses_total`.
    pub fn stats(&self) -> CacheStats {
        self.0.cells.run_pending_tasks();
        CacheStats {
            hits: self.0.hits.load(Ordering::Relaxed),
            misses: self.0.misses.load(Ordering::Relaxed),
            states: self.0.cells.entry_count(),
        }
    }

    pub(super) fn cell(&self, key: Key) -> Arc<Cell> {
        self.0.cells.get_with(key, Arc::default)
    }

    fn hit(&self) {
        self.0.hits.fetch_add(1, Ordering::Relaxed);
        metrics::counter!("fencepost_cache_hits_total").increment(1);
    }
    fn missed(&self) {
        self.0.misses.fetch_add(1, Ordering::Relaxed);
        metrics::counter!("fencepost_cache_misses_total").increment(1);
    }

    /// The state that is kept; none after `load` has read it now, which then is kept.
    pub(super) async fn begin<S: Clone + Send + Sync + 'static>(
        &self,
        cell: &Cell,
        at: Timestamp,
        load: impl Future<Output = Result<(S, Token)>>,
    ) -> Result<Option<Kept<S>>> {
        let mut entry = cell.0.lock().await;
        if let Some(kept) = entry.as_ref().and_then(Entry::kept) {
            self.hit();
            return Ok(Some(kept));
        }
        self.missed();
        let (state, token) = load.await?;
        *entry = Some(Entry { state: Arc::new(state), token, at, generation: 0 });
        Ok(None)
    }
}

impl Entry {
    fn kept<S: Clone + 'static>(&self) -> Option<Kept<S>> {
        let state = self.state.downcast_ref::<S>()?.clone();
        Some(Kept { state, token: self.token.clone(), at: self.at, generation: self.generation })
    }
}

impl Cell {
    /// Keeps a newer state, unless somebody else did since.
    pub(super) async fn put<S: Send + Sync + 'static>(&self, state: S, token: Token, at: Timestamp, since: Since) {
        let mut entry = self.0.lock().await;
        let generation = match (&*entry, since) {
            (None, Since::Nothing) => 0,
            (Some(entry), Since::Kept(since)) if entry.generation == since => since + 1,
            _ => return,
        };
        *entry = Some(Entry { state: Arc::new(state), token, at, generation });
    }

    /// Forgets it: the store refused its token.
    pub(super) async fn clear(&self) {
        *self.0.lock().await = None;
    }
}

impl fmt::Debug for Cache {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Cache").field("stats", &self.stats()).finish()
    }
}
