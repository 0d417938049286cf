//! What a command sees to that reads the feed, where that is an index: that it shows what is recorded, or that whoever reads is told that it does not.

use fencepost::{IndexOptions, Store, Unread};

use crate::failure::Outcome;
use crate::output::warn;

/// A file, or this process's memory, has nobody else to build its index.
fn is_local(url: &str) -> bool {
    url.starts_with("file:") || url.starts_with("memory:")
}

/// Builds the index of a local store up to now; elsewhere says what it lacks, which is left out of whatever is read.
pub(crate) async fn catch_up(store: &Store, url: &str) -> Outcome {
    let Ok(index) = store.index() else { return Ok(()) };
    if is_local(url) {
        index.run(&IndexOptions::default().until_caught_up(), &|_| ()).await?;
    }
    // Who may read the feed may not always ask for this.
    let Ok(status) = index.status().await else { return Ok(()) };
    if status.epochs == 0 && !is_local(url) {
        warn("nothing is indexed yet, and only what is indexed is read: run `fencepost index run`, or deploy apps/indexer");
    } else if let Unread::Since(at) = status.unread {
        warn(format!("what was written since {at} is not indexed yet, and left out: is an indexer running?"));
    }
    if status.trimmed.is_some() {
        warn("records may have been lost before they were indexed, and events be missing here: run `fencepost index rebuild`");
    }
    Ok(())
}

/// The same, and what is recorded from now on is indexed as it comes, where nobody else does.
pub(crate) async fn keep_up(store: &Store, url: &str) -> Outcome {
    catch_up(store, url).await?;
    if let Some(index) = store.index().ok().filter(|_| is_local(url)) {
        tokio::spawn(async move {
            if let Err(error) = index.run(&IndexOptions::default(), &|_| ()).await {
                warn(format!("what is recorded from now on is not indexed, and left out: {error}"));
            }
        });
    }
    Ok(())
}
