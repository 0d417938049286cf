//! Decisions over a boundary of a log: any models together.

use std::any::TypeId;
use std::fmt;

use async_trait::async_trait;
use futures::FutureExt;

use super::cache::Key;
use super::model::{Boundary, Model};
use super::run::{Deciding, Options, Read, Subject, run};
use crate::domain::IntoEvents;
use crate::error::Result;
use crate::event::{CommitId, Event, Recorded};
use crate::log::{Answer, Append, Committed, EventLog};
use crate::position::{Base, Token};
use crate::query::{Query, QueryItem};
use crate::units::Units;

/// A decision: on what, and what comes of it. Made by [`decision`], or a type of one's own that holds the command.
pub trait Decision: Send + Sync {
    /// What it is decided on: one model, a tuple or a list.
    type Model: Model;
    /// What it records: a list of events, possibly empty.
    type Events: IntoEvents;
    /// Why it may be rejected.
    type Rejection: Send;

    /// What it is decided on.
    fn model(&self) -> &Self::Model;
    /// Events, or why not. Asked again after a conflict: it must be a function of the state and of what the decision holds.
    fn decide(&self, state: &<Self::Model as Model>::State) -> Result<Self::Events, Self::Rejection>;
}

/// A decision by models and a function.
#[derive(Clone)]
pub struct Inline<M, F> {
    model: M,
    decide: F,
}

/// A decision on these models by this function.
///
/// ```
/// # #[cfg(feature = "derive")]
/// # mod doc {
/// use fencepost::{Decision, Event, Memory, decide, decision, fold};
/// use serde::{Deserialize, Serialize};
///
/// #[derive(Event, Serialize, Deserialize)]
/// enum Account { Opened { #[tag("account")] id: u32 } }
///
/// #[derive(Debug, PartialEq)]
/// struct Exists;
///
/// fn open(id: u32) -> impl Decision<Rejection = Exists> {
///     let exists = fold(("account", id), false, |exists, _: &Account| *exists = true);
///     decision(exists, move |exists| if *exists { Err(Exists) } else { Ok([Account::Opened { id }]) })
/// }
///
/// # #[tokio::main(flavor = "current_thread")]
/// # pub async fn main() -> fencepost::Result<()> {
/// let log = Memory::new();
/// assert!(decide(&log, open(7)).await?.accepted().is_ok());
/// assert_eq!(decide(&log, open(7)).await?.rejection(), Some(&Exists));
/// # Ok(()) }
/// # }
/// # #[cfg(feature = "derive")] doc::main().unwrap();
/// ```
pub fn decision<M, F, E, R>(model: M, decide: F) -> Inline<M, F>
where
    M: Model,
    F: Fn(&M::State) -> Result<E, R> + Send + Sync,
    E: IntoEvents,
    R: Send,
{
    Inline { model, decide }
}

impl<M, F, E, R> Decision for Inline<M, F>
where
    M: Model,
    F: Fn(&M::State) -> Result<E, R> + Send + Sync,
    E: IntoEvents,
    R: Send,
{
    type Model = M;
    type Events = E;
    type Rejection = R;
    fn model(&self) -> &M {
        &self.model
    }
    fn decide(&self, state: &M::State) -> Result<E, R> {
        (self.decide)(state)
    }
}

impl<M: fmt::Debug, F> fmt::Debug for Inline<M, F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Inline").field("model", &self.model).finish_non_exhaustive()
    }
}

impl<D: Decision> Decision for &D {
    type Model = D::Model;
    type Events = D::Events;
    type Rejection = D::Rejection;
    fn model(&self) -> &D::Model {
        (**self).model()
    }
    fn decide(&self, state: &<D::Model as Model>::State) -> Result<D::Events, D::Rejection> {
        (**self).decide(state)
    }
}

/// Takes a decision on a log: reads what its models are about, decides, appends what comes of it unless something of that has changed, and
/// if it has, decides again. On a [`crate::Store`]: [`Store::decide`](crate::Store::decide).
pub fn decide<'a, D: Decision + 'a>(log: &'a dyn EventLog, decision: D) -> Deciding<'a, D::Rejection>
where
    D::Rejection: 'a,
{
    decide_on(Ok(log), Options::default(), decision)
}

/// The same, where the log may be missing.
pub(crate) fn decide_on<'a, D: Decision + 'a>(log: Result<&'a dyn EventLog>, options: Options, decision: D) -> Deciding<'a, D::Rejection>
where
    D::Rejection: 'a,
{
    Deciding::new(options, move |options| {
        async move {
            let model = decision.model();
            let subject = Bounded { log: log?, boundary: model.boundary()?, model };
            run(&subject, &options, |state| match decision.decide(state) {
                Ok(events) => Ok(Ok(events.into_events()?)),
                Err(rejection) => Ok(Err(rejection)),
            })
            .await
        }
        .boxed()
    })
}

/// What a model amounts to now, read strongly. For answers to people: it guards nothing, and several tags are read one after the other.
pub async fn look<M: Model>(log: &dyn EventLog, model: M) -> Result<Answer<M::State>> {
    let read = Bounded { log, boundary: model.boundary()?, model: &model }.load().await?;
    Ok(Answer::new(read.state, read.units))
}

struct Bounded<'a, M> {
    log: &'a dyn EventLog,
    model: &'a M,
    boundary: Boundary,
}

impl<M: Model> Bounded<'_, M> {
    async fn source(&self, mut state: M::State, since: Option<&Token>) -> Result<Read<M::State>> {
        let Some(query) = &self.boundary.read else {
            return Ok(Read { state, token: None, at_one_instant: true, units: Units::default() });
        };
        let sourced = self.log.source(query, since).await?;
        self.fold(&mut state, &sourced.events)?;
        Ok(Read { state, token: Some(sourced.token), at_one_instant: sourced.at_one_instant, units: sourced.units })
    }

    fn guard(&self) -> Option<&Query> {
        self.boundary.guard.as_ref()
    }
}

#[async_trait]
impl<M: Model> Subject for Bounded<'_, M> {
    type State = M::State;

    fn key(&self) -> Option<Key> {
        let query = self.boundary.read.as_ref()?;
        Some(Key { name: self.model.cache_name()?, about: format!("{:016x}", query.fingerprint()), state: TypeId::of::<M::State>() })
    }

    fn empty(&self) -> Option<M::State> {
        None
    }

    fn after(&self, _: &M::State, _: &[Event]) -> Option<M::State> {
        // A model may go by positions and times, which only a read tells.
        None
    }

    async fn load(&self) -> Result<Read<M::State>> {
        self.source(self.model.initial(), None).await
    }

    async fn more(&self, state: M::State, since: &Token) -> Result<Read<M::State>> {
        self.source(state, Some(since)).await
    }

    fn fold(&self, state: &mut M::State, events: &[Recorded]) -> Result<()> {
        events.iter().try_for_each(|event| self.model.fold(state, event))
    }

    fn places(&self, touched_by: Option<&[Recorded]>) -> Vec<String> {
        let log = std::ptr::from_ref(self.log).cast::<()>();
        let touched = |item: &&QueryItem| match touched_by {
            None => true,
            Some(events) => events.iter().any(|event| item.matches(&event.event_type, &event.tags)),
        };
        let items = self.guard().map_or(&[][..], Query::items).iter().filter(touched);
        items.map(|item| format!("{log:p} {}", item.tags().first().map_or("", |tag| tag.as_str()))).collect()
    }

    async fn append(&self, events: &[Event], at: &Read<M::State>, id: Option<(CommitId, Option<Base>)>) -> Result<Committed> {
        let mut append = Append::new(events.to_vec());
        if let Some(guard) = self.guard() {
            append = append.unless(guard.clone(), at.token.clone());
        }
        append = match id {
            None => append,
            Some((commit, None)) => append.commit(commit),
            Some((commit, Some(base))) => append.again(commit, base),
        };
        self.log.append(append).await
    }

    async fn unchanged(&self, token: &Token) -> Result<Answer<bool>> {
        self.log.unchanged(token).await
    }

    async fn committed(&self, commit: CommitId) -> Result<Answer<Option<Committed>>> {
        self.log.committed(commit).await
    }
}
