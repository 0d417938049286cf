//! The loop: read, decide, append; on a conflict fold what it brought and decide again. One for boundaries and streams.

use std::fmt;
use std::future::IntoFuture;
use std::time::Duration;

use async_trait::async_trait;
use futures::future::BoxFuture;
use jiff::Timestamp;

use super::cache::{Cache, Cell, Key, Since};
use super::outcome::{Decided, Outcome};
use super::turn::{Turn, taken, wait};
use crate::env::Env;
use crate::error::{Conflict, Error, InDoubt, Refused, Result};
use crate::event::{CommitId, Event, Metadata, Recorded};
use crate::log::{Answer, Committed};
use crate::position::{Base, Token};
use crate::units::Units;

/// A decision about to be taken: await it, with or without more said.
#[must_use = "nothing is decided until it is awaited"]
pub struct Deciding<'a, R> {
    options: Options,
    run: Box<dyn FnOnce(Options) -> BoxFuture<'a, Result<Outcome<R>>> + Send + 'a>,
}

/// What a decision is taken under.
#[derive(Debug, Clone)]
pub(crate) struct Options {
    pub(super) env: Env,
    pub(super) cache: Option<Cache>,
    pub(super) commit: Option<CommitId>,
    pub(super) meta: Metadata,
    pub(super) deadline: Duration,
    pub(super) tries: u32,
    pub(super) max_age: Option<Duration>,
    /// Nothing is read first.
    pub(super) assume_empty: bool,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            env: Env::system(),
            cache: None,
            commit: None,
            meta: Metadata::default(),
            deadline: Duration::from_secs(30),
            tries: 200,
            max_age: None,
            assume_empty: false,
        }
    }
}

impl Options {
    /// As it is by default, with this clock and chance.
    #[cfg(feature = "dynamo")]
    pub(crate) fn with_env(env: Env) -> Self {
        Self { env, ..Self::default() }
    }
}

impl<'a, R> Deciding<'a, R> {
    pub(super) fn new(options: Options, run: impl FnOnce(Options) -> BoxFuture<'a, Result<Outcome<R>>> + Send + 'a) -> Self {
        Self { options, run: Box::new(run) }
    }
    /// Once, whatever happens to the caller: the same key again, a second or a year later, returns the first outcome without deciding.
    /// A rejection is not remembered: only what was recorded. Costs one more item, and one read unit for the look.
    pub fn once(mut self, key: impl AsRef<str>) -> Self {
        self.options.commit = Some(CommitId::of_key(key));
        self
    }
    /// What the events say about their origin.
    pub fn meta(mut self, meta: Metadata) -> Self {
        self.options.meta = meta;
        self
    }
    /// Begins with the state that the cache holds, if the models are [`cached`](crate::Fold::cached_as).
    pub fn cache(mut self, cache: &Cache) -> Self {
        self.options.cache = Some(cache.clone());
        self
    }
    /// Begins with the cache's state without reading what came since, if it was known to be so at most this long ago. What comes of it is
    /// held against the store all the same: an append by its token, and a decision to append nothing by a look.
    pub fn allow_stale(mut self, max_age: Duration) -> Self {
        self.options.max_age = Some(max_age);
        self
    }
    /// Begins with the cache's state, however old it is.
    pub fn any_cached(self) -> Self {
        self.allow_stale(Duration::MAX)
    }
    /// Gives up on conflicts after this long (30 seconds). A call under way is not cut short.
    pub fn deadline(mut self, deadline: Duration) -> Self {
        self.options.deadline = deadline;
        self
    }
    /// Decides at most so often (200 times).
    pub fn tries(mut self, tries: u32) -> Self {
        self.options.tries = tries;
        self
    }
    /// The clock for the deadline, and chance for the pauses between tries.
    pub fn env(mut self, env: Env) -> Self {
        self.options.env = env;
        self
    }
}

impl<'a, R: 'a> IntoFuture for Deciding<'a, R> {
    type Output = Result<Outcome<R>>;
    type IntoFuture = BoxFuture<'a, Result<Outcome<R>>>;
    fn into_future(self) -> Self::IntoFuture {
        (self.run)(self.options)
    }
}

impl<R> fmt::Debug for Deciding<'_, R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Deciding").field("options", &self.options).finish_non_exhaustive()
    }
}

/// What a decision is on: a boundary of a log, or a stream.
#[async_trait]
pub(super) trait Subject: Send + Sync {
    type State: Clone + Send + Sync + 'static;

    /// What its state is kept under; none where it is not.
    fn key(&self) -> Option<Key>;
    /// Before anything was read, where nothing may be taken for empty: only streams.
    fn empty(&self) -> Option<Self::State>;
    /// The state after these events were appended to it, where that needs no reading.
    fn after(&self, state: &Self::State, events: &[Event]) -> Option<Self::State>;
    /// Everything, folded.
    async fn load(&self) -> Result<Read<Self::State>>;
    /// What came since, folded onto this.
    async fn more(&self, state: Self::State, since: &Token) -> Result<Read<Self::State>>;
    fn fold(&self, state: &mut Self::State, events: &[Recorded]) -> Result<()>;
    /// What it may lose to others over: its tags, or its stream; all of them, or those that these events touch.
    fn places(&self, touched_by: Option<&[Recorded]>) -> Vec<String>;
    async fn append(&self, events: &[Event], at: &Read<Self::State>, id: Option<(CommitId, Option<Base>)>) -> Result<Committed>;
    async fn unchanged(&self, token: &Token) -> Result<Answer<bool>>;
    async fn committed(&self, commit: CommitId) -> Result<Answer<Option<Committed>>>;
}

/// A state and where it stands.
#[derive(Clone)]
pub(super) struct Read<S> {
    pub(super) state: S,
    /// None where nothing was read, since nothing is asked for.
    pub(super) token: Option<Token>,
    pub(super) at_one_instant: bool,
    pub(super) units: Units,
}

/// Takes the decision. `decide` hands back events, or the rejection; it may be asked several times.
pub(super) async fn run<S: Subject, R: Send>(
    subject: &S,
    options: &Options,
    decide: impl Fn(&S::State) -> Result<Result<Vec<Event>, R>> + Send + Sync,
) -> Result<Outcome<R>> {
    let mut units = Units::default();
    if let Some(committed) = earlier(subject, options, &mut units).await? {
        return Ok(Outcome { decided: Decided::Recorded(committed), events: Vec::new(), tries: 0, units });
    }
    let (mut read, kept) = begin(subject, options).await?;
    let limit = Limit::of(options);
    let mut turn: Option<Turn> = None;
    for tries in 1u32.. {
        units += std::mem::take(&mut read.units);
        if tries == 1
            && let Some(place) = taken(subject.places(None).into_iter())
            && let Some(token) = &read.token
        {
            turn = wait(&options.env, &place).await;
            read = subject.more(read.state, token).await?;
            units += std::mem::take(&mut read.units);
        }
        let conflict = match decide(&read.state)? {
            Ok(events) if !events.is_empty() => {
                let events: Vec<_> = events.into_iter().map(|event| with_meta(event, &options.meta)).collect();
                let asked = options.env.now();
                match append(subject, options, &limit, &events, &read).await {
                    Ok((committed, ours)) => {
                        units += committed.units;
                        // Under a key, what was recorded may be in the state already.
                        let after =
                            committed.token.clone().filter(|_| ours && options.commit.is_none()).zip(subject.after(&read.state, &events));
                        match after {
                            Some((token, state)) => keep(kept, Read { state, token: Some(token), ..read }, Some(asked)).await,
                            None => keep(kept, read, None).await,
                        }
                        let events = if ours { events } else { Vec::new() };
                        return Ok(Outcome { decided: Decided::Recorded(committed), events, tries, units });
                    }
                    Err(Error::Conflict(conflict)) => *conflict,
                    Err(error) => return Err(error),
                }
            }
            no_events => {
                let asked = options.env.now();
                let confirmed = match &read.token {
                    Some(token) if !read.at_one_instant => subject.unchanged(token).await?,
                    // Nothing was read, though there may be something.
                    None if !read.at_one_instant => Answer::new(false, Units::default()),
                    _ => Answer::new(true, Units::default()),
                };
                units += confirmed.units;
                if confirmed.value {
                    // Another run of the same command may have landed since the look, and be what it is rejected for.
                    if let Some(committed) = earlier(subject, options, &mut units).await? {
                        return Ok(Outcome { decided: Decided::Recorded(committed), events: Vec::new(), tries, units });
                    }
                    let at = (!read.at_one_instant).then_some(asked);
                    keep(kept, read, at).await;
                    let decided = no_events.map_or_else(Decided::Rejected, |_| Decided::Nothing);
                    return Ok(Outcome { decided, events: Vec::new(), tries, units });
                }
                Conflict { events: Vec::new(), token: None, units: Units::default() }
            }
        };
        units += conflict.units;
        if limit.is_reached(options, tries) {
            return Err(Error::Conflict(Box::new(Conflict { units, ..conflict })));
        }
        let whole = conflict.token.is_some();
        let fought_over = subject.places(Some(&conflict.events)).into_iter().next();
        // The conflict brought what the state lacks: nothing is read.
        if let Some(token) = conflict.token {
            subject.fold(&mut read.state, &conflict.events)?;
            read.token = Some(token);
        }
        match fought_over {
            // Losing again and again to one's own process: in a queue each decides once, on what is there by then.
            Some(place) if turn.is_none() && tries > 1 => turn = wait(&options.env, &place).await,
            _ => {
                pause(options, tries).await;
                if whole {
                    continue;
                }
            }
        }
        read = match read.token {
            Some(token) => match subject.more(read.state, &token).await {
                // Somebody wrote whom the store does not count: what is new cannot be told from what was read.
                Err(Error::Refused(Refused::Foreign { .. })) => subject.load().await?,
                read => read?,
            },
            None => subject.load().await?,
        };
    }
    unreachable!("the loop above only ends by returning")
}

/// What an earlier run under the same key recorded.
async fn earlier<S: Subject>(subject: &S, options: &Options, units: &mut Units) -> Result<Option<Committed>> {
    let Some(commit) = options.commit else { return Ok(None) };
    let found = subject.committed(commit).await?;
    *units += found.units;
    Ok(found.value)
}

/// The state to decide on: all of it read now, or the cache's and what came since.
async fn begin<S: Subject>(subject: &S, options: &Options) -> Result<(Read<S::State>, Option<Keep>)> {
    if options.assume_empty
        && let Some(state) = subject.empty()
    {
        // Nothing is begun with, and what the append makes is kept all the same, where nobody has kept anything.
        let cell = options.cache.as_ref().zip(subject.key()).map(|(cache, key)| cache.cell(key));
        let kept = cell.map(|cell| Keep { cell, since: Since::Nothing, at: options.env.now() });
        return Ok((Read { state, token: None, at_one_instant: false, units: Units::default() }, kept));
    }
    let now = options.env.now();
    let (Some(cache), Some(key)) = (&options.cache, subject.key()) else { return Ok((subject.load().await?, None)) };
    let cell = cache.cell(key);
    let mut read = None;
    let load = async {
        let loaded = subject.load().await?;
        let entry = loaded.token.clone().map(|token| (loaded.state.clone(), token));
        read = Some(loaded);
        entry.ok_or_else(|| Refused::Empty { what: "boundary" }.into())
    };
    let kept = cache.begin(&cell, now, load).await?;
    let kept = match (kept, read) {
        (Some(kept), _) => kept,
        (None, Some(read)) => return Ok((read, Some(Keep { cell, since: Since::Kept(0), at: now }))),
        (None, None) => return Ok((subject.load().await?, None)),
    };
    if options.max_age.is_some_and(|most| now.duration_since(kept.at).unsigned_abs() <= most) {
        let read = Read { state: kept.state, token: Some(kept.token), at_one_instant: false, units: Units::default() };
        return Ok((read, Some(Keep { cell, since: Since::Kept(kept.generation), at: kept.at })));
    }
    match subject.more(kept.state, &kept.token).await {
        // Of another incarnation of the store, or of a table made anew: what is kept is worth nothing.
        Err(Error::Refused(Refused::Foreign { .. })) => {
            cell.clear().await;
            Ok((subject.load().await?, None))
        }
        read => Ok((read?, Some(Keep { cell, since: Since::Kept(kept.generation), at: now }))),
    }
}

/// The state alone, as it is now.
pub(super) async fn look<S: Subject>(subject: &S, options: &Options) -> Result<S::State> {
    let (read, kept) = begin(subject, options).await?;
    let state = read.state.clone();
    keep(kept, read, None).await;
    Ok(state)
}

/// Where a state goes when its decision is over.
struct Keep {
    cell: std::sync::Arc<Cell>,
    since: Since,
    /// When it was read.
    at: Timestamp,
}

/// Known to be so at this time, or when it was read.
async fn keep<S: Send + Sync + 'static>(kept: Option<Keep>, read: Read<S>, known: Option<Timestamp>) {
    if let (Some(Keep { cell, since, at }), Some(token)) = (kept, read.token) {
        cell.put(read.state, token, known.unwrap_or(at), since).await;
    }
}

/// Appends, and again from its base as long as nobody can tell whether it was recorded; and whether what was recorded is these events.
async fn append<S: Subject>(
    subject: &S,
    options: &Options,
    limit: &Limit,
    events: &[Event],
    read: &Read<S::State>,
) -> Result<(Committed, bool)> {
    let mut id = options.commit.map(|commit| (commit, None));
    for tries in 1u32.. {
        match subject.append(events, read, id.clone()).await {
            Err(Error::InDoubt(doubt)) if !limit.is_reached(options, tries) => {
                let InDoubt { commit, base, .. } = *doubt;
                id = Some((commit, Some(base)));
                pause(options, tries + 1).await;
            }
            // Somebody else ran the same command, and came to other events: the first outcome counts.
            Err(Error::Refused(Refused::Reused { commit })) if options.commit == Some(commit) => {
                let first = subject.committed(commit).await?;
                return first.value.map(|first| (first, false)).ok_or_else(|| Refused::Reused { commit }.into());
            }
            done => return done.map(|committed| (committed, true)),
        }
    }
    unreachable!("the loop above only ends by returning")
}

fn with_meta(event: Event, meta: &Metadata) -> Event {
    if meta.is_empty() {
        return event;
    }
    let own = event.metadata().clone();
    let mut extra = meta.extra.clone();
    extra.extend(own.extra);
    event.meta(Metadata {
        correlation: own.correlation.or_else(|| meta.correlation.clone()),
        causation: own.causation.or_else(|| meta.causation.clone()),
        user: own.user.or_else(|| meta.user.clone()),
        schema: own.schema,
        occurred: own.occurred.or(meta.occurred),
        extra,
    })
}

/// When to stop trying.
struct Limit {
    at: Option<Timestamp>,
}

impl Limit {
    fn of(options: &Options) -> Self {
        Self { at: options.env.now().checked_add(options.deadline).ok() }
    }
    fn is_reached(&self, options: &Options, tries: u32) -> bool {
        tries >= options.tries || self.at.is_some_and(|at| options.env.now() >= at)
    }
}

/// None after the first conflict; then longer and longer, by chance, so that racers do not meet again.
async fn pause(options: &Options, tries: u32) {
    if tries > 1 {
        let most = (2_000u64 << (tries - 2).min(7)).min(100_000);
        options.env.sleep(Duration::from_micros(options.env.below(most))).await;
    }
}
