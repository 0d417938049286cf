//! Layouts whose tags have declared keys, for suites that know nothing of keys: every tag `a` of the suite is `KEY:a` of the layout, where
//! the test says which key, and comes back as `a`.

use std::sync::{Arc, Mutex};

use async_trait::async_trait;
use fencepost::testing::conformance::Subject;
use fencepost::{
    Answer, Append, CommitId, Committed, Conflict, Delivery, Error, Event, EventLog, Feed, From, LoadOptions, Loaded, Position, Query,
    QueryItem, ReadOptions, Recorded, Result, Sourced, Step, StreamName, StreamReadOptions, StreamStore, Tag, Token,
};
use futures::StreamExt;
use futures::stream::{self, BoxStream};

/// Which key a tag of the suite has.
pub(crate) type KeyOf = fn(&str) -> &'static str;

/// The reventless layout with these parameters, two handles, an indexer in the background.
pub(crate) async fn reventless(parameters: &str, key: KeyOf) -> Subject {
    let ground = super::Ground::fresh();
    let parameters = format!("layout=reventless&{parameters}");
    let (first, second) = (super::open(ground.builder(&parameters)).await, super::open(ground.builder(&parameters)).await);
    keyed(super::settled::subject(&first, &second), key)
}

/// The same subject, of which every tag has a key.
pub(crate) fn keyed(subject: Subject, key: KeyOf) -> Subject {
    Subject {
        log: subject.log.map(|inner| -> Arc<dyn EventLog> { Arc::new(Keyed { inner, key }) }),
        streams: Arc::new(Keyed { inner: subject.streams, key }),
        feed: subject.feed.map(|inner| -> Arc<dyn Feed> { Arc::new(Keyed { inner, key }) }),
        second: subject.second.map(|second| Box::new(keyed(*second, key))),
        ..subject
    }
}

#[derive(Debug)]
pub(crate) struct Keyed<T: ?Sized + std::fmt::Debug> {
    pub(crate) key: KeyOf,
    pub(crate) inner: Arc<T>,
}

/// Tags that have no room for a key, by number.
static LONG: Mutex<Vec<String>> = Mutex::new(Vec::new());

fn to(key: KeyOf, tag: &str) -> String {
    if tag.len() < 1_000 {
        return format!("{}:{tag}", key(tag));
    }
    let mut long = LONG.lock().expect("lock");
    let at = long.iter().position(|known| known == tag).unwrap_or_else(|| {
        long.push(tag.to_owned());
        long.len() - 1
    });
    format!("{}:~{at}~", key(tag))
}

fn back(tag: &Tag) -> Tag {
    let (_, value) = tag.as_str().split_once(':').expect("every tag has a key");
    let long = value.strip_prefix('~').and_then(|rest| rest.strip_suffix('~')).and_then(|at| at.parse::<usize>().ok());
    let value = long.and_then(|at| LONG.lock().expect("lock").get(at).cloned()).unwrap_or_else(|| value.to_owned());
    Tag::new(value).expect("a tag of the suite")
}

fn tag(key: KeyOf, tag: &Tag) -> Tag {
    Tag::new(to(key, tag.as_str())).expect("a tag")
}

fn query(key: KeyOf, query: &Query) -> Query {
    if query.is_all() {
        return Query::all();
    }
    let items = query
        .items()
        .iter()
        .map(|item| QueryItem::new(item.types().iter().cloned(), item.tags().iter().map(|one| tag(key, one))).expect("an item"));
    Query::any(items).expect("a query")
}

fn event(key: KeyOf, event: &Event) -> Event {
    let bare = Event::new(event.event_type(), event.data().clone()).expect("an event").meta(event.metadata().clone());
    let bare = event.given_id().into_iter().fold(bare, Event::id);
    event.tags().iter().fold(bare, |bare, one| bare.with_tag(tag(key, one)))
}

fn recorded(mut event: Recorded) -> Recorded {
    event.tags = event.tags.iter().map(back).collect();
    event.tags.sort_unstable();
    event
}

fn told(error: Error) -> Error {
    match error {
        Error::Conflict(conflict) => {
            let Conflict { events, token, .. } = *conflict;
            Error::conflict(events.into_iter().map(recorded).collect(), token)
        }
        other => other,
    }
}

impl<T: ?Sized + std::fmt::Debug> Keyed<T> {
    fn append_of(&self, append: &Append) -> Append {
        let mut keyed = Append::new(append.events().iter().map(|one| event(self.key, one)));
        if let Some(condition) = append.condition() {
            keyed = keyed.unless(query(self.key, &condition.query), condition.after.clone());
        }
        match (append.commit_id(), append.base()) {
            (Some(id), Some(base)) => keyed.again(id, base.clone()),
            (Some(id), None) => keyed.commit(id),
            _ => keyed,
        }
    }
}

#[async_trait]
impl EventLog for Keyed<dyn EventLog> {
    async fn source(&self, of: &Query, since: Option<&Token>) -> Result<Sourced> {
        let mut sourced = self.inner.source(&query(self.key, of), since).await?;
        sourced.events = sourced.events.into_iter().map(recorded).collect();
        Ok(sourced)
    }
    async fn append(&self, append: Append) -> Result<Committed> {
        self.inner.append(self.append_of(&append)).await.map_err(told)
    }
    async fn unchanged(&self, token: &Token) -> Result<Answer<bool>> {
        self.inner.unchanged(token).await
    }
    async fn committed(&self, commit: CommitId) -> Result<Answer<Option<Committed>>> {
        self.inner.committed(commit).await
    }
    fn read<'a>(&'a self, of: &'a Query, options: ReadOptions) -> BoxStream<'a, Result<Recorded>> {
        let of = query(self.key, of);
        let all = async move {
            let events: Vec<_> = self.inner.read(&of, options).map(|event| event.map(recorded)).collect().await;
            stream::iter(events)
        };
        stream::once(all).flatten().boxed()
    }
}

#[async_trait]
impl StreamStore for Keyed<dyn StreamStore> {
    async fn load(&self, stream: &StreamName, options: LoadOptions) -> Result<Loaded> {
        let mut loaded = self.inner.load(&self.stream(stream), options).await?;
        loaded.events = loaded.events.into_iter().map(recorded).collect();
        Ok(loaded)
    }
    async fn append(&self, stream: &StreamName, step: Step) -> Result<Committed> {
        self.inner.append(&self.stream(stream), step).await.map_err(told)
    }
    async fn committed(&self, stream: &StreamName, commit: CommitId) -> Result<Answer<Option<Committed>>> {
        self.inner.committed(&self.stream(stream), commit).await
    }
    fn read<'a>(&'a self, stream: &'a StreamName, options: StreamReadOptions) -> BoxStream<'a, Result<Recorded>> {
        let name = self.stream(stream);
        let all = async move {
            let events: Vec<_> = self.inner.read(&name, options).map(|event| event.map(recorded)).collect().await;
            stream::iter(events)
        };
        stream::once(all).flatten().boxed()
    }
}

impl Keyed<dyn StreamStore> {
    fn stream(&self, stream: &StreamName) -> StreamName {
        StreamName::new(to(self.key, stream.as_str())).expect("a name")
    }
}

#[async_trait]
impl Feed for Keyed<dyn Feed> {
    fn subscribe(&self, from: From, of: Query) -> BoxStream<'static, Result<Delivery>> {
        let deliveries = self.inner.subscribe(from, query(self.key, &of));
        let deliver = |delivery| match delivery {
            Ok(Delivery::Event { event, checkpoint }) => Ok(Delivery::Event { event: Box::new(recorded(*event)), checkpoint }),
            other => other,
        };
        deliveries.map(deliver).boxed()
    }
    async fn shows(&self, position: Position) -> Result<bool> {
        self.inner.shows(position).await
    }
    async fn unshown_since(&self) -> Result<Option<jiff::Timestamp>> {
        self.inner.unshown_since().await
    }
}
