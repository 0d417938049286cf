//! Tables on disk: which files this process has open, and the lock that keeps other processes away from them.

use std::collections::HashMap;
use std::fs::{File, OpenOptions, TryLockError};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::Duration;

use super::{Engine, Tables};
use crate::error::{Error, Reason, Refused, Result};

/// The right to be the only process on a file, while it lives.
pub(super) struct Held {
    path: PathBuf,
    _lock: File,
}

impl Held {
    pub(super) fn path(&self) -> &Path {
        &self.path
    }
}

/// By the path that the file really has, so that two names of it meet.
static OPEN: Mutex<Option<HashMap<PathBuf, Weak<Tables>>>> = Mutex::new(None);

/// The tables in this file: the same ones if this process has it open, refused if another one has.
pub(super) fn open(path: &Path) -> Result<Arc<Tables>> {
    let real = real_path(path).map_err(|e| unusable(path, &e))?;
    let Some(name) = real.to_str() else {
        return Err(Refused::Malformed { what: "path", why: format!("{} is not UTF-8", path.display()) }.into());
    };
    let mut open = OPEN.lock().unwrap_or_else(PoisonError::into_inner);
    let open = open.get_or_insert_default();
    let before = open.remove(&real);
    open.retain(|_, tables| tables.strong_count() > 0);
    if let Some(tables) = before.as_ref().and_then(Weak::upgrade) {
        open.insert(real, before.unwrap_or_default());
        return Ok(tables);
    }
    // What this process let go of may be closing on another thread at this moment, with the lock still in its hands.
    let lock = lock(path, &real, if before.is_some() { 100 } else { 1 })?;
    let database = super::open(name)
        .map_err(|e| Error::unavailable(Reason::Rejected, format!("{} cannot be opened as a store: {e}", path.display())))?;
    let engine = Engine::over(database, Some(Held { path: real.clone(), _lock: lock }));
    open.insert(real, Arc::downgrade(&engine.tables));
    Ok(engine.tables)
}

fn real_path(path: &Path) -> io::Result<PathBuf> {
    match path.canonicalize() {
        Err(e) if e.kind() == io::ErrorKind::NotFound => {
            let folder = path.parent().filter(|p| !p.as_os_str().is_empty()).unwrap_or(Path::new("."));
            let name = path.file_name().ok_or(io::ErrorKind::IsADirectory)?;
            Ok(folder.canonicalize()?.join(name))
        }
        found => found,
    }
}

/// A file of its own beside the database: SQLite locks the database in ways of its own, and on some systems the two would collide.
/// It stays when the store is closed, since a lock file that is deleted can be locked by two.
fn lock(path: &Path, real: &Path, tries: u32) -> Result<File> {
    let mut beside = real.as_os_str().to_owned();
    beside.push(".lock");
    let file = OpenOptions::new().create(true).truncate(false).write(true).open(PathBuf::from(beside)).map_err(|e| unusable(path, &e))?;
    for _ in 1..tries {
        match file.try_lock() {
            Err(TryLockError::WouldBlock) => std::thread::sleep(Duration::from_millis(5)),
            _ => break,
        }
    }
    match file.try_lock() {
        Ok(()) => Ok(file),
        Err(TryLockError::WouldBlock) => Err(Error::unavailable(
            Reason::Unreachable,
            format!(
                "{0} is served by another process: for several processes run `fencepost engine --file {0}` and connect by http",
                path.display()
            ),
        )),
        Err(TryLockError::Error(e)) => Err(unusable(path, &e)),
    }
}

fn unusable(path: &Path, error: &io::Error) -> Error {
    let reason = match error.kind() {
        io::ErrorKind::NotFound => Reason::Missing,
        io::ErrorKind::PermissionDenied => Reason::Denied,
        _ => Reason::Unreachable,
    };
    Error::unavailable(reason, format!("{}: {error}", path.display()))
}
