//! Cells that a test stands in front of: it sees each save before it is done, and says what becomes of it.

use std::fmt;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use fencepost::{Cell, CellKey, CellKind, CellWrite, Cells, Env, Error, Reason, Result, Revision};

/// What becomes of a save.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Verdict {
    Done,
    /// It is stored, and the answer is lost.
    Unheard,
    /// It is not stored, and may be later.
    Failed,
    /// Whoever saves stops here for ever.
    Stopped,
}

type Judge = dyn Fn(&CellKey, &Bytes) -> Verdict + Send + Sync;

pub(crate) struct Judged {
    inner: Arc<dyn Cells>,
    judge: Box<Judge>,
    lists: AtomicUsize,
    transactions: AtomicUsize,
    /// How long a list of parked events takes.
    listing: Mutex<Duration>,
    /// Served once in place of what is there.
    stale: Mutex<Option<(CellKey, Cell)>>,
}

impl fmt::Debug for Judged {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Judged").finish_non_exhaustive()
    }
}

impl Judged {
    pub(crate) fn new(inner: &Arc<dyn Cells>, judge: impl Fn(&CellKey, &Bytes) -> Verdict + Send + Sync + 'static) -> Arc<Judged> {
        Arc::new(Judged {
            inner: inner.clone(),
            judge: Box::new(judge),
            lists: AtomicUsize::new(0),
            transactions: AtomicUsize::new(0),
            listing: Mutex::default(),
            stale: Mutex::default(),
        })
    }
    /// How often parked events were listed.
    pub(crate) fn lists(&self) -> usize {
        self.lists.load(Ordering::SeqCst)
    }
    /// A list of parked events takes so long from now on.
    pub(crate) fn list_slowly(&self, takes: Duration) {
        *self.listing.lock().expect("a time") = takes;
    }
    /// How many transactions were asked for.
    pub(crate) fn transactions(&self) -> usize {
        self.transactions.load(Ordering::SeqCst)
    }
    /// The next load of this key finds this.
    pub(crate) fn serve_once(&self, key: CellKey, cell: Cell) {
        *self.stale.lock().expect("the cell") = Some((key, cell));
    }
}

#[async_trait]
impl Cells for Judged {
    async fn load(&self, key: &CellKey) -> Result<Option<Cell>> {
        let stale = self.stale.lock().expect("the cell").take_if(|(at, _)| at == key);
        match stale {
            Some((_, cell)) => Ok(Some(cell)),
            None => self.inner.load(key).await,
        }
    }
    async fn save(&self, key: &CellKey, body: &Bytes, expect: Option<Revision>) -> Result<Option<Revision>> {
        let lost = || Error::unavailable(Reason::Unreachable, "no answer");
        match (self.judge)(key, body) {
            Verdict::Done => self.inner.save(key, body, expect).await,
            Verdict::Unheard => self.inner.save(key, body, expect).await.and_then(|_| Err(lost())),
            Verdict::Failed => Err(lost()),
            Verdict::Stopped => std::future::pending().await,
        }
    }
    async fn write_all(&self, writes: &[CellWrite]) -> Result<bool> {
        let lost = || Error::unavailable(Reason::Unreachable, "no answer");
        self.transactions.fetch_add(1, Ordering::SeqCst);
        let judged = writes.iter().map(|write| match write {
            CellWrite::Save { key, body, .. } => (self.judge)(key, body),
            CellWrite::Delete { .. } => Verdict::Done,
        });
        match judged.fold(Verdict::Done, |all, one| if all == Verdict::Done { one } else { all }) {
            Verdict::Done => self.inner.write_all(writes).await,
            Verdict::Unheard => self.inner.write_all(writes).await.and_then(|_| Err(lost())),
            Verdict::Failed => Err(lost()),
            Verdict::Stopped => std::future::pending().await,
        }
    }
    async fn delete(&self, key: &CellKey, expect: Revision) -> Result<bool> {
        self.inner.delete(key, expect).await
    }
    async fn list(&self, kind: CellKind, name: &str) -> Result<Vec<Cell>> {
        let takes = *self.listing.lock().expect("a time");
        if kind == CellKind::Parked && !takes.is_zero() {
            Env::system().sleep(takes).await;
        }
        let listed = self.inner.list(kind, name).await;
        self.lists.fetch_add(usize::from(kind == CellKind::Parked), Ordering::SeqCst);
        listed
    }
}
