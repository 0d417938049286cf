//! Streams: a stream is a tag that is fenced, or a composite partition; its version is the number of events that carry it.

use std::collections::BTreeMap;

use async_trait::async_trait;
use futures::stream::{self, BoxStream};
use futures::{StreamExt, TryStreamExt};

use super::fence::Seen;
use super::place::Cover;
use super::source::{Asked, Looked};
use super::token::Held;
use super::{Reads, Reventless};
use crate::dynamo::{Freshness, Op, report};
use crate::error::{Error, Refused, Result};
use crate::event::{CommitId, Recorded, StreamName, Tag};
use crate::log::{After, Answer, Append, Committed, Consistency, Direction, ReadOptions};
use crate::position::Token;
use crate::query::Query;
use crate::state::{State, States, check_name};
use crate::stream::{Expect, LoadOptions, Loaded, Origin, Snapshot, Step, StreamReadOptions, StreamStore};

/// A stream as a boundary.
#[derive(Debug)]
struct Boundary {
    name: String,
    tags: Vec<Tag>,
    query: Query,
    cover: Cover,
}

fn version(seen: &Seen) -> u64 {
    seen.count + seen.foreign
}

fn number(events: Vec<Recorded>, after: u64) -> Vec<Recorded> {
    events.into_iter().zip(after + 1..).map(|(event, version)| Recorded { version: Some(version), ..event }).collect()
}

impl Reventless {
    fn stream_boundary(&self, stream: &StreamName) -> Result<Boundary> {
        let tags = self.settings().stream(stream)?;
        let query = Query::tags(&tags)?;
        let cover = self.settings().covers(&query)?.into_keys().next();
        let cover = cover.ok_or(Refused::Empty { what: "stream name" })?;
        Ok(Boundary { name: stream.to_string(), tags, query, cover })
    }

    fn stream_token(&self, stream: &Boundary, seen: Seen) -> Token {
        self.held(&stream.query, BTreeMap::from([(stream.cover.clone(), seen)])).seal()
    }

    fn stream_seen(&self, stream: &Boundary, token: &Token) -> Result<Seen> {
        let mut held = Held::open(token, self.table())?;
        let foreign = || Refused::Foreign { what: "token", of: "another stream".into(), here: format!("stream {}", stream.name) };
        Ok(held.covers.remove(&stream.cover).filter(|seen| !seen.typed).ok_or_else(foreign)?)
    }

    /// What stands behind this on the stream, numbered; and the stream as it stands.
    async fn stream_since(&self, op: &Op, stream: &Boundary, since: Option<Seen>, reads: Reads) -> Result<(Vec<Recorded>, Seen)> {
        let asked: Asked = BTreeMap::from([(stream.cover.clone(), None)]);
        let before = since.as_ref().map_or(0, version);
        let known = since.map(|seen| BTreeMap::from([(stream.cover.clone(), seen)]));
        let Looked { events, mut covers, .. } = self.look(op, &stream.query, &asked, known.as_ref(), reads).await?;
        let seen = covers.remove(&stream.cover).unwrap_or_default();
        Ok((number(events.into_iter().map(|event| event.recorded).collect(), before), seen))
    }

    async fn load_stream(&self, op: &Op, stream: &StreamName, options: &LoadOptions) -> Result<Loaded> {
        let stream = self.stream_boundary(stream)?;
        let reads = match options.consistency {
            Consistency::Strong => self.0.options.reads,
            Consistency::Eventual => Reads::Escalate,
        };
        let mut snapshots = Vec::new();
        let since = match (&options.since, &options.origin) {
            (Some(token), _) => Some(self.stream_seen(&stream, token)?),
            (None, Origin::Snapshot(names)) => match self.newest_snapshot(&stream, names).await? {
                None => None,
                Some((snapshot, seen)) => {
                    snapshots.push(snapshot);
                    Some(seen)
                }
            },
            (None, Origin::Start | Origin::Latest) => None,
        };
        let (mut events, seen) = match self.stream_since(op, &stream, since.clone(), reads).await {
            // The peer wrote since the snapshot: everything is read.
            Err(Error::Refused(Refused::Foreign { .. })) if !snapshots.is_empty() => {
                snapshots.clear();
                self.stream_since(op, &stream, None, reads).await?
            }
            read => read?,
        };
        if options.since.is_none() && options.origin == Origin::Latest {
            events = events.pop().into_iter().collect();
        }
        Ok(Loaded::new(snapshots, events, version(&seen), self.stream_token(&stream, seen), op.units()))
    }

    /// The newest of a stream's snapshots with one of these names.
    async fn newest_snapshot(&self, stream: &Boundary, names: &[String]) -> Result<Option<(Snapshot, Seen)>> {
        let mut newest: Option<(Snapshot, Seen)> = None;
        for name in names {
            check_name("snapshot name", name)?;
            let Some((state, _)) = States::load(self.side(), name, &stream.name).await? else { continue };
            let seen = self.stream_seen(stream, &state.token)?;
            if newest.as_ref().is_none_or(|(so_far, _)| so_far.version < version(&seen)) {
                newest = Some((Snapshot::at(name, version(&seen), state.body), seen));
            }
        }
        Ok(newest)
    }

    /// Stores a snapshot unless a newer one is there. The commit it goes with has landed: nothing here may fail it.
    async fn save_snapshot(&self, stream: &Boundary, snapshot: &Snapshot, seen: &Seen) -> Result<()> {
        let there = States::load(self.side(), &snapshot.name, &stream.name).await?;
        let newer = there.as_ref().and_then(|(state, _)| self.stream_seen(stream, &state.token).ok());
        if newer.is_some_and(|newer| version(&newer) >= version(seen)) {
            return Ok(());
        }
        let state = State { body: snapshot.state.clone(), token: self.stream_token(stream, seen.clone()) };
        States::save(self.side(), &snapshot.name, &stream.name, &state, there.map(|(_, revision)| revision)).await.map(drop)
    }

    async fn append_stream(&self, op: &Op, stream: &StreamName, mut step: Step) -> Result<Committed> {
        if self.published() {
            let remedy = "the published algorithm has no streams: append to the log, or leave fencing=as-published away".into();
            return Err(Refused::Unsupported { what: "appending to a stream as published".into(), remedy }.into());
        }
        let stream = self.stream_boundary(stream)?;
        let mut append = step.take_append(&stream.tags)?;
        let after = match step.expect {
            Expect::Any => None,
            Expect::None => Some(After::Nothing),
            Expect::Token(token) => {
                self.stream_seen(&stream, &token)?;
                Some(After::Token(token))
            }
            Expect::Version(wanted) => {
                // What cannot be held is refused before the stream is read.
                self.begin(&append, Some(&stream.cover))?.intent.check(0)?;
                let (mut events, seen) = self.stream_since(op, &stream, None, self.0.options.reads).await?;
                let token = self.stream_token(&stream, seen.clone());
                if version(&seen) != wanted {
                    events.retain(|event| event.version.is_some_and(|own| own > wanted));
                    let conflict = Error::conflict(events, Some(token));
                    // A repeat may find its own events where the version was.
                    return match append.commit_id() {
                        None => Err(conflict),
                        Some(_) => self.repeat_of(op, &stream, &append, conflict).await,
                    };
                }
                Some(After::Token(token))
            }
        };
        // How many events the snapshots were made on. Another run of the same command may have landed it behind events that they lack.
        let stood = match &after {
            None => None,
            Some(After::Token(token)) => Some(version(&self.stream_seen(&stream, token)?)),
            Some(_) => Some(0),
        };
        if let Some(after) = after {
            append = append.unless(stream.query.clone(), after);
        }
        let (mut committed, seen) = self.append_commit(op, &append, Some(&stream.cover)).await?;
        let seen = self.stream_end(op, &stream, seen, &committed, append.condition().is_some()).await?;
        committed.version = seen.as_ref().map(version);
        let behind = |seen: &&Seen| match stood {
            Some(stood) => stood + append.events().len() as u64 == version(seen),
            None => append.commit_id().is_none(),
        };
        for snapshot in &step.snapshots {
            let Some(seen) = seen.as_ref().filter(behind) else { continue };
            if let Err(error) = self.save_snapshot(&stream, snapshot, seen).await {
                tracing::warn!(stream = stream.name, snapshot = snapshot.name, %error, "the events were recorded, the snapshot was not");
            }
        }
        committed.units = op.units();
        Ok(committed)
    }

    /// The outcome of a commit that was recorded before, or the conflict.
    async fn repeat_of(&self, op: &Op, stream: &Boundary, append: &Append, conflict: Error) -> Result<Committed> {
        let Some((mut committed, seen)) = self.recorded_before(op, append, &stream.cover).await? else { return Err(conflict) };
        let seen = self.stream_end(op, stream, seen, &committed, false).await?;
        committed.version = seen.as_ref().map(version);
        committed.token = seen.map(|seen| self.stream_token(stream, seen));
        committed.units = op.units();
        Ok(committed)
    }

    /// The stream behind a commit. What the peer wrote is on no counter: where its traces show, events are counted.
    async fn stream_end(&self, op: &Op, stream: &Boundary, seen: Option<Seen>, committed: &Committed, read: bool) -> Result<Option<Seen>> {
        let Some(mut seen) = seen else { return Ok(None) };
        let foreign = seen.types.values().any(|(version, _)| *version == 0);
        if !read && foreign {
            let last = committed.last();
            let all = self.on_cover(op, &stream.cover, None, seen.more > 0, Freshness::Strong).await?;
            seen.foreign = all.iter().filter(|event| !event.is_ours() && Some(event.at.position()) <= last).count() as u64;
        }
        Ok(Some(seen))
    }

    async fn committed_to(&self, op: &Op, stream: &StreamName, commit: CommitId) -> Result<Option<Committed>> {
        let stream = self.stream_boundary(stream)?;
        let Some((mut committed, once)) = self.find_commit(op, commit).await? else { return Ok(None) };
        if !once.fences.contains(&stream.cover.fence()) {
            let here = format!("stream {}", stream.name);
            return Err(Refused::Foreign { what: "commit id", of: "a commit elsewhere".into(), here }.into());
        }
        let last = committed.last();
        let (events, _) = self.stream_since(op, &stream, None, Reads::Strong).await?;
        committed.version = Some(events.iter().filter(|event| Some(event.position) <= last).count() as u64);
        committed.units = op.units();
        Ok(Some(committed))
    }

    fn read_stream_lazily<'a>(&'a self, name: &StreamName, options: StreamReadOptions) -> BoxStream<'a, Result<Recorded>> {
        let stream = match self.stream_boundary(name) {
            Ok(stream) => stream,
            Err(error) => return stream::once(async { Err(error) }).boxed(),
        };
        let (after, limit) = (options.after, options.limit.map_or(usize::MAX, |limit| usize::try_from(limit).unwrap_or(usize::MAX)));
        // A version counts from the first event, so from the last back all are read; and what an index shows must be counted.
        if options.direction == Direction::Backwards || !self.settings().is_home(&stream.cover) {
            let backwards = options.direction == Direction::Backwards;
            let all = async move {
                let op = self.dynamo().long_op();
                let (mut events, _) = self.stream_since(&op, &stream, None, self.0.options.reads).await?;
                let behind = |own: u64, after: u64| if backwards { own < after } else { own > after };
                events.retain(|event| after.is_none_or(|after| event.version.is_some_and(|own| behind(own, after))));
                if backwards {
                    events.reverse();
                }
                Ok::<_, Error>(stream::iter(events.into_iter().take(limit).map(Ok)))
            };
            return stream::once(all).try_flatten().boxed();
        }
        let plain = ReadOptions { consistency: options.consistency, ..ReadOptions::default() };
        let numbered = self.read_query(stream.query, plain).enumerate().map(|(n, event)| {
            let version = u64::try_from(n).unwrap_or(u64::MAX - 1) + 1;
            event.map(|event| Recorded { version: Some(version), ..event })
        });
        let wanted = numbered.try_filter(move |event| futures::future::ready(after.is_none_or(|after| event.version > Some(after))));
        wanted.take(limit).boxed()
    }
}

#[async_trait]
impl StreamStore for Reventless {
    async fn load(&self, stream: &StreamName, options: LoadOptions) -> Result<Loaded> {
        let op = self.dynamo().op();
        let loaded = self.load_stream(&op, stream, &options).await;
        report("load", &op);
        loaded
    }

    async fn append(&self, stream: &StreamName, step: Step) -> Result<Committed> {
        let op = self.dynamo().op();
        let repeats = step.repeats();
        let committed = self.append_stream(&op, stream, step).await.map_err(|error| error.of_repeat(repeats).costing(op.units()));
        report("append", &op);
        committed
    }

    async fn committed(&self, stream: &StreamName, commit: CommitId) -> Result<Answer<Option<Committed>>> {
        let op = self.dynamo().op();
        let found = self.committed_to(&op, stream, commit).await;
        report("committed", &op);
        Ok(Answer::new(found?, op.units()))
    }

    fn read<'a>(&'a self, stream: &'a StreamName, options: StreamReadOptions) -> BoxStream<'a, Result<Recorded>> {
        self.read_stream_lazily(stream, options)
    }
}
