//! The projections of a store: run, read, listed, reset, deleted; each version's state in a cell, and a pointer to the one that is read.

use std::future::poll_fn;
use std::pin::Pin;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use futures::future::{BoxFuture, Either, FutureExt, select};
use futures::stream::BoxStream;
use futures::{StreamExt, pin_mut};
use jiff::Timestamp;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use tokio::time::Instant;
use uuid::Uuid;

use super::consumer::Lag;
use super::lost;
use super::names;
use super::offload::{Objects, Offload};
use super::projection::{Header, Projection, Stored, Where, body, lease_key, pointer_key, save, state_key};
use super::run::{Ended, Failed};
use super::wait::{Target, until};
use crate::env::Env;
use crate::error::{Error, Refused, Result};
use crate::feed::{Delivery, Feed, From};
use crate::position::{Checkpoint, Position};
use crate::query::Query;
use crate::state::{Cells, Lease, Revision, Standing, seen};

/// A checkpoint that moved over nothing that matches is worth a write of the whole state only so often.
const IDLE_SAVE: Duration = Duration::from_secs(300);

/// So many saves, takes or loads in a row may fail, each after the retries of whoever was asked, before the projection ends with the error.
const FAILED_SAVES: u32 = 5;

/// The projections over a feed, with their states in these cells.
#[derive(Debug, Clone)]
pub struct Projections {
    feed: Arc<dyn Feed>,
    cells: Arc<dyn Cells>,
    env: Env,
    offload: Option<Offload>,
}

/// A projection's state, as it was last saved.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct Projected<S> {
    /// The state.
    pub state: S,
    /// Which version's it is.
    pub version: u32,
    /// The last event that counts in it.
    pub position: Option<Position>,
    /// Covers all that counts in it.
    pub checkpoint: Option<Checkpoint>,
    /// Whether it has once seen all that there was; not so while it is built anew.
    pub caught_up: bool,
    /// For how long it has been stored, by the clocks of its writer and of this process.
    pub age: Duration,
}

/// A version of a projection as it stands.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[non_exhaustive]
pub struct ProjectionStatus {
    /// The projection's name.
    pub name: String,
    /// The version.
    pub version: u32,
    /// Whether it is the one that is read.
    pub live: bool,
    /// Whether it has once seen all that there was.
    pub caught_up: bool,
    /// Counts the states stored and the resets.
    pub generation: u64,
    /// The last event that counts in it.
    pub position: Option<Position>,
    /// Covers all that counts in it.
    pub checkpoint: Option<Checkpoint>,
    /// When it was saved.
    pub saved_at: Option<Timestamp>,
    /// Bytes of the state.
    pub bytes: u64,
    /// The object that holds it, where it is not in the item.
    pub object: Option<String>,
    /// The instance that works on it, or last did and died.
    pub holder: Option<Uuid>,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
struct Pointer {
    live: Option<u32>,
}

impl Projections {
    /// Over this feed, in these cells. Nothing is called yet.
    pub fn new(feed: Arc<dyn Feed>, cells: Arc<dyn Cells>, env: Env) -> Self {
        Self { feed, cells, env, offload: None }
    }

    /// States that outgrow an item go here.
    #[cfg(feature = "offload")]
    pub fn offload(mut self, objects: Objects) -> Self {
        self.offload = Some(Offload::new(objects));
        self
    }

    fn objects(&self) -> Option<&Objects> {
        self.offload.as_ref().map(|offload| &offload.objects)
    }

    /// Runs it until it is dropped. While another instance does, it stands by.
    pub async fn run<S: Serialize + DeserializeOwned + Send>(&self, projection: &Projection<S>) -> Result<Ended> {
        self.run_until(projection, std::future::pending()).await
    }

    /// Runs it until the future ends: then it is saved, and free for others at once.
    pub async fn run_until<S>(&self, projection: &Projection<S>, until: impl Future<Output = ()> + Send) -> Result<Ended>
    where
        S: Serialize + DeserializeOwned + Send,
    {
        let key = lease_key(&projection.name, projection.version)?;
        let me = self.env.new_id();
        pin_mut!(until);
        let mut failures = 0;
        loop {
            let taking = async {
                names::register(&*self.cells, names::PROJECTIONS, &projection.name).await?;
                Lease::take(&self.cells, &key, me, projection.silence(), &self.env).await
            };
            let lease = match select(taking.boxed(), until.as_mut()).await {
                Either::Left((lease, _)) => lease,
                Either::Right(_) => return Ok(Ended::Stopped),
            };
            let lease = match lease {
                Err(error) if error.is_retryable() && failures + 1 < FAILED_SAVES => {
                    failures += 1;
                    self.env.sleep(again(failures)).await;
                    continue;
                }
                lease => lease?,
            };
            let loaded = loop {
                match load(self, projection).await {
                    Err(error) if error.is_retryable() && failures + 1 < FAILED_SAVES => {
                        failures += 1;
                        self.env.sleep(again(failures)).await;
                    }
                    loaded => break loaded,
                }
            };
            failures = 0;
            let (outcome, lease) = match loaded {
                Ok(loaded) => {
                    let mut fold = Fold::begin(self, projection, lease, loaded);
                    (fold.work(until.as_mut()).await, fold.lease)
                }
                Err(error) => (Err(error), lease),
            };
            // Somebody else has written: they may hold the lease by now.
            let Some(ended) = outcome.transpose() else {
                self.env.sleep(projection.lease / 8).await;
                continue;
            };
            let released = lease.release(Value::Null).await;
            let ended = ended?;
            let _ = released?;
            return Ok(ended);
        }
    }

    /// The state that is read: of the live version; none where there is none yet.
    pub async fn get<S: DeserializeOwned>(&self, name: &str) -> Result<Option<Projected<S>>> {
        match self.live(name).await? {
            Some((version, stored)) => self.projected(name, version, stored).await,
            None => Ok(None),
        }
    }

    /// The state of this version, live or not.
    pub async fn get_version<S: DeserializeOwned>(&self, name: &str, version: u32) -> Result<Option<Projected<S>>> {
        match Stored::load(&*self.cells, name, version).await? {
            Some(stored) => self.projected(name, version, stored).await,
            None => Ok(None),
        }
    }

    /// The version that is read, as the pointer says; where that one is deleted (who moved it came late), the highest other that has caught up.
    async fn live(&self, name: &str) -> Result<Option<(u32, Stored)>> {
        let Some(version) = self.pointer(name).await?.0.live else { return Ok(None) };
        match Stored::load(&*self.cells, name, version).await? {
            Some(stored) if stored.header.state == Where::Deleted => {}
            stored => return Ok(stored.map(|stored| (version, stored))),
        }
        let Some(version) = highest(&self.versions_but_live(name).await?, version) else { return Ok(None) };
        Ok(Stored::load(&*self.cells, name, version).await?.map(|stored| (version, stored)))
    }

    async fn projected<S: DeserializeOwned>(&self, name: &str, version: u32, stored: Stored) -> Result<Option<Projected<S>>> {
        stored.header.readable(name, version)?;
        let (stored, bytes) = stored.whole(&*self.cells, self.objects(), (name, version)).await?;
        stored.header.readable(name, version)?;
        let Some(bytes) = bytes else { return Ok(None) };
        let Header { position, checkpoint, caught_up, saved_at, .. } = stored.header;
        let age = saved_at.map_or(Duration::ZERO, |saved| Duration::try_from(self.env.now().duration_since(saved)).unwrap_or_default());
        Ok(Some(Projected { state: decode(name, version, &bytes)?, version, position, checkpoint, caught_up, age }))
    }

    /// All versions of all projections.
    pub async fn list(&self) -> Result<Vec<ProjectionStatus>> {
        let mut all = Vec::new();
        for name in names::all(&*self.cells, names::PROJECTIONS).await? {
            all.extend(self.versions(&name).await?);
        }
        Ok(all)
    }

    /// All versions of one projection.
    pub async fn versions(&self, name: &str) -> Result<Vec<ProjectionStatus>> {
        let mut versions = self.versions_but_live(name).await?;
        let pointed = self.pointer(name).await?.0.live;
        let live = pointed.and_then(|at| if versions.iter().any(|one| one.version == at) { Some(at) } else { highest(&versions, at) });
        for one in &mut versions {
            one.live = live == Some(one.version);
        }
        Ok(versions)
    }

    async fn versions_but_live(&self, name: &str) -> Result<Vec<ProjectionStatus>> {
        let cells = self.cells.list(pointer_key(name)?.kind(), name).await?;
        let mut versions = Vec::new();
        for cell in &cells {
            let Some(version) = u32::try_from(cell.number).ok().filter(|version| *version > 0) else { continue };
            let header = Stored::read(&state_key(name, version)?, cell.clone())?.header;
            if header.state == Where::Deleted {
                continue;
            }
            let lease = lease_key(name, version)?;
            let holder = cells.iter().find(|cell| cell.number == lease.number()).map(|cell| seen(&lease, cell)).transpose()?;
            versions.push(ProjectionStatus {
                name: name.into(),
                version,
                live: false,
                caught_up: header.caught_up,
                generation: header.generation,
                position: header.position,
                checkpoint: header.checkpoint,
                saved_at: header.saved_at,
                bytes: header.bytes,
                object: if let Where::Object(object) = header.state { Some(object.key) } else { None },
                holder: holder.and_then(|seen| seen.holder),
            });
        }
        Ok(versions)
    }

    /// Forgets a version's state: whoever runs it builds it anew from the first event. One that runs now is refused at its next save.
    pub async fn reset(&self, name: &str, version: u32) -> Result<()> {
        self.clear(name, version, Where::Reset).await
    }

    /// Deletes a version's state. Where it was the live one, the highest other that has caught up is; none where there is none. Whoever runs it
    /// is refused from then on, until it is reset.
    pub async fn delete(&self, name: &str, version: u32) -> Result<()> {
        // The pointer first: whoever is killed in between has hidden nothing.
        let next = highest(&self.versions_but_live(name).await?, version);
        self.point(name, |now| Pointer { live: if now.live == Some(version) { next } else { now.live } }).await?;
        self.clear(name, version, Where::Deleted).await
    }

    async fn clear(&self, name: &str, version: u32, state: Where) -> Result<()> {
        loop {
            let Some(stored) = Stored::load(&*self.cells, name, version).await? else {
                return Err(Refused::Malformed { what: "projection", why: format!("{name} has no version {version} here") }.into());
            };
            let header = Header { generation: stored.header.generation + 1, state: state.clone(), ..Header::default() };
            if self.cells.save(&state_key(name, version)?, &body(&header, &[]), Some(stored.revision)).await?.is_some() {
                return Ok(());
            }
        }
    }

    /// Deletes objects that no version names any more, or never did, and that are older than the grace period: longer than any instance
    /// takes between storing an object and naming it.
    ///
    /// Of projections that are unknown here nothing is deleted. Refused where the folder of one is another store's: nothing is deleted then, and
    /// the two need another prefix. A folder of before there were owners becomes this store's; nothing in it is deleted until the grace period has
    /// passed since, so that another store that writes there is refused first.
    #[cfg(feature = "offload")]
    pub async fn gc(&self, grace: Duration) -> Result<super::offload::ObjectsCollected> {
        let mut collected = super::offload::ObjectsCollected::default();
        let Some(offload) = &self.offload else { return Ok(collected) };
        // First what is there, then what is named: an object that is named in between is not among the first.
        let all = offload.objects.all().await?;
        let named = self.list().await?.into_iter().filter_map(|status| status.object).collect::<std::collections::BTreeSet<_>>();
        let now = self.env.now();
        let mut due = Vec::new();
        for projection in names::all(&*self.cells, names::PROJECTIONS).await? {
            let (states, owned_since) = offload.objects.of(&all, &projection);
            if owned_since.is_some() || !states.is_empty() {
                offload.claim(&*self.cells, &self.env, &projection).await?;
                let owned = owned_since.map_or(Duration::ZERO, |since| Duration::try_from(now.duration_since(since)).unwrap_or_default());
                due.push((states, if owned < grace { Duration::MAX } else { grace }));
            }
        }
        for (states, grace) in due {
            collected += offload.objects.sweep(states, &named, now, grace).await?;
        }
        Ok(collected)
    }

    /// Waits until the live version of a projection holds all that a commit wrote, as far as it matches. Past the deadline it is an error
    /// ([`crate::Reason::Late`]): the commit stands all the same.
    pub async fn wait_for(&self, name: &str, target: impl Into<Target>, deadline: Duration) -> Result<()> {
        let target = target.into();
        until(&self.env, &format!("projection {name}"), &target, deadline, || self.has_reached(name, &target)).await
    }

    /// How far the live version is behind, counting at most so many events: reads the feed from its place on, and so costs what they cost. None
    /// where there is no live version. Where the feed is an index, the stream is looked at for what that lacks ([`Feed::unshown_since`]): not
    /// counted, but told.
    pub async fn lag(&self, name: &str, count_to: u64) -> Result<Option<Lag>> {
        let Some((_, stored)) = self.live(name).await? else { return Ok(None) };
        let Header { checkpoint, query, .. } = stored.header;
        let (from, query) = (checkpoint.map_or(From::Start, From::Checkpoint), query.unwrap_or_else(Query::all));
        let unshown = Lag::unshown(&*self.feed, &self.env).await?;
        Ok(Some(unshown.and(Lag::behind(&*self.feed, from, &query, count_to, &self.env, |_| true).await?)))
    }

    async fn has_reached(&self, name: &str, target: &Target) -> Result<bool> {
        let Some((_, stored)) = self.live(name).await? else { return Ok(false) };
        if matches!(stored.header.state, Where::Reset | Where::Deleted) || stored.header.is_rebuilt() {
            return Ok(false);
        }
        let from = stored.header.checkpoint.map_or(From::Start, From::Checkpoint);
        target.is_behind(&*self.feed, from, &stored.header.query.unwrap_or_else(Query::all), |_| true).await
    }

    async fn pointer(&self, name: &str) -> Result<(Pointer, Option<Revision>)> {
        let key = pointer_key(name)?;
        let Some(cell) = self.cells.load(&key).await? else { return Ok((Pointer::default(), None)) };
        let pointer = serde_json::from_slice(&cell.body).map_err(|_| Error::corrupt("cells", format!("{key}: not a pointer")))?;
        Ok((pointer, Some(cell.revision)))
    }

    async fn point(&self, name: &str, change: impl Fn(Pointer) -> Pointer) -> Result<()> {
        loop {
            let (before, revision) = self.pointer(name).await?;
            let after = change(before);
            let json = serde_json::to_vec(&after).unwrap_or_default().into();
            if before == after || self.cells.save(&pointer_key(name)?, &json, revision).await?.is_some() {
                return Ok(());
            }
        }
    }
}

/// The highest version that has caught up, but for this one.
fn highest(versions: &[ProjectionStatus], but: u32) -> Option<u32> {
    versions.iter().filter(|one| one.caught_up && one.version != but).map(|one| one.version).max()
}

fn decode<S: DeserializeOwned>(name: &str, version: u32, bytes: &[u8]) -> Result<S> {
    serde_json::from_slice(bytes).map_err(|error| {
        // The place only: a message of serde_json's may quote the state.
        let (line, column) = (error.line(), error.column());
        let what = format!("the state of {name} version {version} does not decode (line {line} column {column}): was its type changed under the same version?");
        Error::corrupt("projections", what)
    })
}

/// One instance at work on one version.
struct Fold<'a, S> {
    projections: &'a Projections,
    projection: &'a Projection<S>,
    lease: Lease,
    state: S,
    header: Header,
    revision: Option<Revision>,
    feed: BoxStream<'static, Result<Delivery>>,
    /// Events since the last save.
    unsaved: u64,
    saved_at: Instant,
    /// The checkpoint as last saved.
    saved: Option<Checkpoint>,
    /// Saves that failed since.
    failures: u32,
    /// Whether it has seen to the pointer since it began.
    pointed: bool,
}

type Loaded<S> = (S, Header, Option<Revision>);

async fn load<S: DeserializeOwned>(projections: &Projections, projection: &Projection<S>) -> Result<Loaded<S>> {
    let Projection { name, version, .. } = projection;
    let (stored, bytes) = lost::load(&*projections.cells, projections.objects(), projection).await?.unzip();
    if stored.as_ref().is_some_and(|stored| stored.header.state == Where::Deleted) {
        let what = format!("running version {version} of {name}, which is deleted");
        return Err(Refused::Unsupported { what, remedy: "reset it, and it is built anew; or give the fold another version".into() }.into());
    }
    let state = match bytes.flatten() {
        Some(bytes) => decode(name, *version, &bytes)?,
        None => (projection.initial)(),
    };
    let (header, revision) = stored.map(|stored| (stored.header, stored.revision)).unzip();
    Ok((state, Header { query: Some(projection.query.clone()), ..header.unwrap_or_default() }, revision))
}

/// What became of a save.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[must_use]
enum Saved {
    Stored,
    /// Somebody else has written.
    Refused,
    /// It may have been stored, or not: the next save finds out.
    Later,
}

/// Before the try after this many.
fn again(tries: u32) -> Duration {
    Duration::from_millis(50 << tries.min(6))
}

enum Turn {
    Until,
    Tick,
    Delivered(Option<Result<Delivery>>),
}

impl<'a, S: Serialize + DeserializeOwned + Send> Fold<'a, S> {
    fn begin(projections: &'a Projections, projection: &'a Projection<S>, lease: Lease, (state, header, revision): Loaded<S>) -> Self {
        let from = header.checkpoint.clone().map_or(From::Start, From::Checkpoint);
        let feed = projections.feed.subscribe(from, projection.query.clone());
        let (saved, saved_at) = (header.checkpoint.clone(), Instant::now());
        Fold { projections, projection, lease, state, header, revision, feed, unsaved: 0, saved_at, saved, failures: 0, pointed: false }
    }

    /// Works until it is to stop. None: somebody else has written in its place.
    async fn work(&mut self, mut until: Pin<&mut (impl Future<Output = ()> + Send)>) -> Result<Option<Ended>> {
        let env = &self.projections.env;
        let period = self.projection.save_time.min(self.projection.lease / 4).max(Duration::from_millis(1));
        let mut tick = env.sleep(period).boxed();
        let mut errors = 0;
        loop {
            match self.turn(until.as_mut(), &mut tick).await {
                Turn::Until => {
                    while self.unsaved > 0 || self.header.checkpoint != self.saved {
                        match self.save().await? {
                            Saved::Stored => break,
                            Saved::Refused => return Ok(None),
                            // So many times, then it is an error: nobody is told that it stopped well.
                            Saved::Later => env.sleep(again(self.failures)).await,
                        }
                    }
                    return Ok(Some(Ended::Stopped));
                }
                Turn::Tick => {
                    tick = env.sleep(period).boxed();
                    let due = (self.unsaved > 0 || self.failures > 0) && self.saved_at.elapsed() >= self.projection.save_time;
                    let idle = self.header.checkpoint != self.saved && self.saved_at.elapsed() >= IDLE_SAVE;
                    if (due || idle) && self.save().await? == Saved::Refused {
                        return Ok(None);
                    }
                    self.point().await?;
                    if self.lease.silence() >= self.projection.lease / 4 && !self.renew().await? {
                        return Ok(None);
                    }
                }
                Turn::Delivered(Some(Ok(Delivery::Event { event, checkpoint }))) => {
                    errors = 0;
                    if let Err(reason) = (self.projection.apply)(&mut self.state, &event) {
                        // Half of the event may be in the state: what was saved before it stands.
                        return Ok(Some(Ended::Failed(Failed::new(&event, 1, reason))));
                    }
                    (self.header.position, self.header.recorded_at) = (Some(event.position), Some(event.recorded_at));
                    self.header.checkpoint = Some(checkpoint);
                    self.header.events += 1;
                    self.unsaved += 1;
                    // After a failure it is tried again at the next tick, not at every event.
                    if self.failures == 0 && self.unsaved >= self.projection.save_events && self.save().await? == Saved::Refused {
                        return Ok(None);
                    }
                }
                Turn::Delivered(Some(Ok(Delivery::CaughtUp { checkpoint }))) => {
                    errors = 0;
                    self.header.checkpoint = Some(checkpoint);
                    // Also where it had caught up before: it may have been killed between that and the pointer.
                    if !self.pointed {
                        let first = !std::mem::replace(&mut self.header.caught_up, true);
                        self.header.lost = false;
                        let news = self.unsaved > 0 || first;
                        if news && self.failures == 0 && self.save().await? == Saved::Refused {
                            return Ok(None);
                        }
                        self.point().await?;
                    }
                }
                Turn::Delivered(Some(Err(error))) if !error.is_retryable() => return Err(error),
                Turn::Delivered(Some(Err(_)) | None) => {
                    errors += 1;
                    env.sleep(again(errors)).await;
                    let from = self.header.checkpoint.clone().map_or(From::Start, From::Checkpoint);
                    self.feed = self.projections.feed.subscribe(from, self.projection.query.clone());
                }
            }
        }
    }

    async fn turn(&mut self, mut until: Pin<&mut (impl Future<Output = ()> + Send)>, tick: &mut BoxFuture<'_, ()>) -> Turn {
        let feed = &mut self.feed;
        poll_fn(|context| {
            if until.as_mut().poll(context).is_ready() {
                return Poll::Ready(Turn::Until);
            }
            if tick.poll_unpin(context).is_ready() {
                return Poll::Ready(Turn::Tick);
            }
            feed.poll_next_unpin(context).map(Turn::Delivered)
        })
        .await
    }

    /// Moves the pointer to this version, once a state is stored that has caught up.
    async fn point(&mut self) -> Result<()> {
        match self.move_pointer().await {
            // At the next tick.
            Err(error) if error.is_retryable() => Ok(()),
            moved => moved,
        }
    }

    async fn move_pointer(&mut self) -> Result<()> {
        if self.pointed || !self.header.caught_up || self.failures > 0 || self.revision.is_none() {
            return Ok(());
        }
        let mine = self.projection.version;
        self.projections.point(&self.projection.name, |now| Pointer { live: now.live.max(Some(mine)) }).await?;
        self.pointed = true;
        Ok(())
    }

    /// State and checkpoint in one write, over the one that it knows.
    async fn save(&mut self) -> Result<Saved> {
        let Projections { cells, env, offload, .. } = self.projections;
        let Projection { name, version, .. } = self.projection;
        let header = Header { generation: self.header.generation + 1, saved_at: Some(env.now()), ..self.header.clone() };
        let state = serde_json::to_vec(&self.state)
            .map_err(|_| Refused::Malformed { what: "state", why: format!("the state of {name} does not serialise to JSON") })?;
        match save(&**cells, (offload.as_ref(), env), (name, *version), header, &state, self.revision).await {
            Ok(Some((header, revision))) => {
                (self.header, self.revision) = (header, Some(revision));
                (self.unsaved, self.saved_at, self.saved) = (0, Instant::now(), self.header.checkpoint.clone());
                self.failures = 0;
                Ok(Saved::Stored)
            }
            Ok(None) => Ok(Saved::Refused),
            Err(error) if error.is_retryable() && self.failures + 1 < FAILED_SAVES => {
                self.failures += 1;
                Ok(Saved::Later)
            }
            Err(error) => Err(error),
        }
    }

    async fn renew(&mut self) -> Result<bool> {
        match self.lease.renew(Value::Null).await {
            Ok(Standing::Kept { .. }) => Ok(true),
            Ok(Standing::Lost) => Ok(false),
            Err(error) if error.is_retryable() => Ok(self.lease.silence() < self.projection.silence()),
            Err(error) => Err(error),
        }
    }
}
