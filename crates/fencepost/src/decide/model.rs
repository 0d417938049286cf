//! Models: what a decision is about and what it amounts to. They compose as tuples and lists: one read, one token, one condition.

use std::fmt;
use std::sync::Arc;

use crate::domain::{About, DomainEvent, Unknown, decode};
use crate::error::{Error, Refused, Result};
use crate::event::Recorded;
use crate::query::Query;

/// A query and a fold. Made by [`fold`]; tuples, lists and options of models are models, whose state is the tuple or list of theirs.
pub trait Model: Send + Sync {
    /// What the events amount to.
    type State: Clone + Send + Sync + 'static;

    /// What is read, and what of it a decision depends on.
    fn boundary(&self) -> Result<Boundary>;
    /// The state before any event.
    fn initial(&self) -> Self::State;
    /// Takes in one event of the boundary; one that other models asked for is passed over.
    fn fold(&self, state: &mut Self::State, event: &Recorded) -> Result<()>;
    /// Under which name the state may be kept between decisions; none where it may not.
    fn cache_name(&self) -> Option<String>;
}

/// What is read for a decision, and what guards it.
#[derive(Debug, Clone, Default, PartialEq)]
#[non_exhaustive]
pub struct Boundary {
    /// What is read; none where nothing is.
    pub read: Option<Query>,
    /// What must not have happened since; none where anything may.
    pub guard: Option<Query>,
}

impl Boundary {
    /// Reads the query, and is guarded by all of it.
    pub fn of(query: Query) -> Self {
        Self { guard: Some(query.clone()), read: Some(query) }
    }
    /// Guarded by this instead: a part of what is read.
    pub fn guarded_by(mut self, guard: Option<Query>) -> Self {
        self.guard = guard;
        self
    }
    /// Both.
    pub fn and(self, other: Boundary) -> Self {
        Self { read: either(self.read, other.read), guard: either(self.guard, other.guard) }
    }
}

/// An item asked for twice is asked for once.
fn either(one: Option<Query>, other: Option<Query>) -> Option<Query> {
    match (one, other) {
        (Some(one), Some(other)) if other.items().iter().all(|item| one.items().contains(item)) && !other.is_all() => Some(one),
        (Some(one), Some(other)) => Some(one.or(other)),
        (one, other) => one.or(other),
    }
}

type Step<S> = dyn Fn(&mut S, &Recorded, Unknown) -> Result<()> + Send + Sync;

/// A model by a fold over events of one type of the application's.
pub struct Fold<S> {
    query: Result<Query, Refused>,
    guard: Guard,
    initial: S,
    step: Arc<Step<S>>,
    query_of: fn(&About) -> Result<Query>,
    unknown: Unknown,
    name: Option<String>,
}

enum Guard {
    All,
    Nothing,
    Part(Result<Query, Refused>),
}

/// A model: the events it is about, the state before them, and what each changes.
///
/// `about` is a tag, `("course", id)`, or more ([`crate::about`]); the types are filled in: those of `E` that can carry the tags.
///
/// ```
/// # #[cfg(feature = "derive")] {
/// use fencepost::{Event, Model, fold};
/// use serde::{Deserialize, Serialize};
///
/// #[derive(Event, Serialize, Deserialize)]
/// enum Enrolment {
///     CourseDefined { #[tag("course")] course: String, seats: u32 },
///     StudentEnrolled { #[tag("course")] course: String, #[tag("student")] student: String },
/// }
///
/// fn free_seats(course: &str) -> impl Model<State = i64> + use<> {
///     fold(("course", course), 0, |free, event: &Enrolment| match event {
///         Enrolment::CourseDefined { seats, .. } => *free = i64::from(*seats),
///         Enrolment::StudentEnrolled { .. } => *free -= 1,
///     })
/// }
/// # }
/// ```
pub fn fold<E, S, F>(about: impl Into<About>, initial: S, step: F) -> Fold<S>
where
    E: DomainEvent,
    S: Clone + Send + Sync + 'static,
    F: Fn(&mut S, &E) + Send + Sync + 'static,
{
    fold_recorded(about, initial, move |state, event: &E, _| step(state, event))
}

/// The same, where the fold also looks at what the store recorded: time, position, metadata.
pub fn fold_recorded<E, S, F>(about: impl Into<About>, initial: S, step: F) -> Fold<S>
where
    E: DomainEvent,
    S: Clone + Send + Sync + 'static,
    F: Fn(&mut S, &E, &Recorded) + Send + Sync + 'static,
{
    let query = refused(about.into().query::<E>());
    let step = move |state: &mut S, recorded: &Recorded, unknown: Unknown| {
        if let Some(event) = decode::<E>(recorded, unknown)? {
            step(state, &event, recorded);
        }
        Ok(())
    };
    let query_of = |about: &About| about.query::<E>();
    Fold { query, guard: Guard::All, initial, step: Arc::new(step), query_of, unknown: Unknown::Refuse, name: None }
}

impl<S> Fold<S> {
    /// Guarded by less than it reads: only events of this part make a decision be taken again. Deposits need not invalidate a withdrawal.
    pub fn guarded_by(mut self, part: impl Into<About>) -> Self {
        self.guard = Guard::Part(refused((self.query_of)(&part.into())));
        self
    }
    /// Read, and guarded by nothing: what is decided may rest on a state of a moment ago.
    pub fn unguarded(mut self) -> Self {
        self.guard = Guard::Nothing;
        self
    }
    /// Passes over events whose type is none of the application's, where a query of one's own lets them in. Without this they are refused.
    pub fn skip_unknown(mut self) -> Self {
        self.unknown = Unknown::Skip;
        self
    }
    /// Keeps the state between decisions in the cache that they are given. The name must stand for this fold and its initial state:
    /// with the query, it is all that the cache goes by.
    pub fn cached_as(mut self, name: impl Into<String>) -> Self {
        self.name = Some(name.into());
        self
    }
}

// Queries are built where no error can be returned; it is returned when the model is used.
fn refused(query: Result<Query>) -> Result<Query, Refused> {
    query.map_err(|error| match error {
        Error::Refused(refused) => refused,
        other => Refused::Malformed { what: "query", why: other.to_string() },
    })
}

impl<S: Clone + Send + Sync + 'static> Model for Fold<S> {
    type State = S;

    fn boundary(&self) -> Result<Boundary> {
        let boundary = Boundary::of(self.query.clone()?);
        Ok(match &self.guard {
            Guard::All => boundary,
            Guard::Nothing => boundary.guarded_by(None),
            Guard::Part(part) => boundary.guarded_by(Some(part.clone()?)),
        })
    }
    fn initial(&self) -> S {
        self.initial.clone()
    }
    fn fold(&self, state: &mut S, event: &Recorded) -> Result<()> {
        match &self.query {
            Ok(query) if query.matches(&event.event_type, &event.tags) => (self.step)(state, event, self.unknown),
            _ => Ok(()),
        }
    }
    fn cache_name(&self) -> Option<String> {
        self.name.clone()
    }
}

impl<S> fmt::Debug for Fold<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Fold").field("query", &self.query).field("name", &self.name).finish_non_exhaustive()
    }
}

impl<M: Model> Model for &M {
    type State = M::State;
    fn boundary(&self) -> Result<Boundary> {
        (**self).boundary()
    }
    fn initial(&self) -> M::State {
        (**self).initial()
    }
    fn fold(&self, state: &mut M::State, event: &Recorded) -> Result<()> {
        (**self).fold(state, event)
    }
    fn cache_name(&self) -> Option<String> {
        (**self).cache_name()
    }
}

/// One for each id of a list that is known only at run time: each product of a cart.
impl<M: Model> Model for Vec<M> {
    type State = Vec<M::State>;
    fn boundary(&self) -> Result<Boundary> {
        self.iter().try_fold(Boundary::default(), |all, model| Ok(all.and(model.boundary()?)))
    }
    fn initial(&self) -> Vec<M::State> {
        self.iter().map(Model::initial).collect()
    }
    fn fold(&self, states: &mut Vec<M::State>, event: &Recorded) -> Result<()> {
        self.iter().zip(states).try_for_each(|(model, state)| model.fold(state, event))
    }
    fn cache_name(&self) -> Option<String> {
        let names: Option<Vec<_>> = self.iter().map(Model::cache_name).collect();
        names.map(|names| format!("[{}]", names.join(",")))
    }
}

/// One that only some decisions need.
impl<M: Model> Model for Option<M> {
    type State = Option<M::State>;
    fn boundary(&self) -> Result<Boundary> {
        self.as_ref().map_or(Ok(Boundary::default()), Model::boundary)
    }
    fn initial(&self) -> Option<M::State> {
        self.as_ref().map(Model::initial)
    }
    fn fold(&self, state: &mut Option<M::State>, event: &Recorded) -> Result<()> {
        self.as_ref().zip(state.as_mut()).map_or(Ok(()), |(model, state)| model.fold(state, event))
    }
    fn cache_name(&self) -> Option<String> {
        self.as_ref().map_or(Some("-".into()), Model::cache_name)
    }
}

/// None: a decision on nothing.
impl Model for () {
    type State = ();
    fn boundary(&self) -> Result<Boundary> {
        Ok(Boundary::default())
    }
    fn initial(&self) {}
    fn fold(&self, _: &mut (), _: &Recorded) -> Result<()> {
        Ok(())
    }
    fn cache_name(&self) -> Option<String> {
        None
    }
}

macro_rules! tuples_of_models {
    ($($name:ident $index:tt)+) => {
        impl<$($name: Model),+> Model for ($($name,)+) {
            type State = ($($name::State,)+);
            fn boundary(&self) -> Result<Boundary> {
                Ok(Boundary::default()$(.and(self.$index.boundary()?))+)
            }
            fn initial(&self) -> Self::State {
                ($(self.$index.initial(),)+)
            }
            fn fold(&self, state: &mut Self::State, event: &Recorded) -> Result<()> {
                $(self.$index.fold(&mut state.$index, event)?;)+
                Ok(())
            }
            fn cache_name(&self) -> Option<String> {
                let names = [$(self.$index.cache_name()?),+];
                Some(format!("({})", names.join(",")))
            }
        }
    };
}
tuples_of_models!(A 0);
tuples_of_models!(A 0 B 1);
tuples_of_models!(A 0 B 1 C 2);
tuples_of_models!(A 0 B 1 C 2 D 3);
tuples_of_models!(A 0 B 1 C 2 D 3 E 4);
tuples_of_models!(A 0 B 1 C 2 D 3 E 4 F 5);
tuples_of_models!(A 0 B 1 C 2 D 3 E 4 F 5 G 6);
tuples_of_models!(A 0 B 1 C 2 D 3 E 4 F 5 G 6 H 7);
