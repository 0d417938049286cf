//! Our contenders, each in a process of its own: a layout through the public API, or the bare SDK.

use std::sync::Arc;

use aws_smithy_http_client::Builder;
use fencepost::{Append, Error, EventLog, Expect, LoadOptions, Query, Snapshot, Step, Store, StreamName, StreamStore, Token, Units};
use fencepost_contest::{Fault, Row, Scenario, Speed, Stream, Task, Writer, first, grow, race, run_id, say};
use futures::future::join_all;

use crate::bare::Streamed;
use crate::contenders::{BARE, DECIDES, LEDGER, UNSTREAMED};
use crate::decides::{Decides, Shared};
use crate::floor;
use crate::ground::{Ground, Opened};
use crate::ours::{LAYOUTS, Layout, event, is_watched};

#[derive(clap::Args)]
pub(crate) struct Args {
    contender: String,
    endpoint: String,
    #[arg(trailing_var_arg = true)]
    task: Vec<String>,
}

impl Args {
    pub(crate) async fn run(self) -> Result<(), Fault> {
        let (ground, task) = (Ground::at(&self.endpoint), Task::parse(&self.task)?);
        match self.contender.as_str() {
            BARE => return floor::contend(&ground, task, Streamed::Yes).await,
            UNSTREAMED => return floor::contend(&ground, task, Streamed::No).await,
            _ => {}
        }
        let name = if self.contender == DECIDES { LEDGER } else { self.contender.as_str() };
        let layout = LAYOUTS.iter().find(|layout| layout.name == name).ok_or("no such layout")?;
        match task {
            Task::Speed(speed) if self.contender == DECIDES => {
                let shared = Shared::new(layout.open(&ground, &speed.table).await?);
                let writers: fencepost::Result<_> = (0..speed.writers).map(|number| Decides::new(&shared, &speed, number)).collect();
                say(&race(writers?, speed.scenario, speed.lasts).await?)
            }
            Task::Units(rows) => {
                let measured =
                    async |row: String| layout.measure(&ground, &row).await.unwrap_or_else(|error| Row::failed(&row, &error.to_string()));
                let (idle, busy): (Vec<String>, Vec<String>) = rows.into_iter().partition(|row| is_watched(row));
                for row in busy {
                    say(&measured(row).await)?;
                }
                join_all(idle.into_iter().map(measured)).await.iter().try_for_each(say)
            }
            Task::Prepare(table) => {
                layout.open(&ground, &table).await?;
                Ok(())
            }
            Task::Speed(speed) => {
                let store = layout.open(&ground, &speed.table).await?;
                let mut writers = Vec::new();
                for number in 0..speed.writers {
                    writers.push(Ours::new(layout, &store, &speed, number).await?);
                }
                say(&race(writers, speed.scenario, speed.lasts).await?)
            }
            Task::First(table) => {
                let store = layout.open(&ground, &table).await?;
                let name = StreamName::new(layout.named("first"))?;
                store.streams().append(&name, layout.first(Step::new([event(0)?]))).await?;
                say(&first())
            }
            Task::Growth(lengths, lasts) => {
                let opened = ground.store(&format!("growth-{}-{}", layout.table(), run_id()), layout.parameters).await?;
                let stream = StreamName::new(layout.stream)?;
                grow(&mut Growing { layout, opened, stream, token: None, eventual: false }, &lengths, lasts).await
            }
        }
    }
}

impl Layout {
    async fn open(&self, ground: &Ground, table: &str) -> fencepost::Result<Store> {
        ground.open(table, self.parameters, Builder::new().build_http()).await
    }

    /// A stream of this id, as the layout names streams.
    pub(crate) fn named(&self, id: &str) -> String {
        self.stream.trim_end_matches('1').to_owned() + id
    }

    /// v3 begins a stream with a snapshot.
    pub(crate) fn first(&self, step: Step) -> Step {
        if self.parameters.contains("v3") { step.snapshot(Snapshot::new("snapshot", "{}")) } else { step }
    }
}

struct Ours {
    streams: Arc<dyn StreamStore>,
    log: Option<Arc<dyn EventLog>>,
    name: StreamName,
    expect: Expect,
    /// Of each boundary: its tags, and how far it was read.
    boundaries: Vec<([String; 2], Query, Option<Token>)>,
    turn: u64,
}

impl Ours {
    async fn new(layout: &Layout, store: &Store, speed: &Speed, number: usize) -> Result<Ours, Fault> {
        let (streams, name) = (store.streams(), StreamName::new(layout.named(&speed.stream(number)))?);
        let mut boundaries = Vec::new();
        let mut expect = Expect::Any;
        if speed.scenario == Scenario::Boundaries {
            for n in 0..16 {
                let tags = speed.boundary(n);
                let query = Query::tag(&tags[0])?.or(Query::tag(&tags[1])?);
                boundaries.push((tags, query, None));
            }
        } else {
            // One after the other: the first begins the stream.
            let mut loaded = streams.load(&name, LoadOptions::default().latest()).await?;
            if loaded.version == 0 {
                streams.append(&name, layout.first(Step::new([event(0)?]))).await?;
                loaded = streams.load(&name, LoadOptions::default().latest()).await?;
            }
            expect = Expect::Token(loaded.token);
        }
        Ok(Ours { streams, log: store.log().ok(), name, expect, boundaries, turn: number as u64 * 7 })
    }

    async fn append(&mut self) -> Result<u64, Fault> {
        for conflicts in 0.. {
            let step = Step::new([event(self.turn)?]).expect(self.expect.clone());
            match self.streams.append(&self.name, step).await {
                Ok(done) => {
                    self.expect = match (done.token, done.version) {
                        (Some(token), _) => Expect::Token(token),
                        (None, Some(version)) => Expect::Version(version),
                        (None, None) => Expect::Any,
                    };
                    return Ok(conflicts);
                }
                Err(Error::Conflict(conflict)) => {
                    // It goes on from what the conflict brought; where that is nothing, it reads.
                    let token = match conflict.token {
                        Some(token) => token,
                        None => self.streams.load(&self.name, LoadOptions::default().latest()).await?.token,
                    };
                    self.expect = Expect::Token(token);
                }
                Err(error) => return Err(error.into()),
            }
        }
        Ok(0)
    }

    async fn decide(&mut self) -> Result<u64, Fault> {
        let log = self.log.clone().ok_or("no boundaries")?;
        let at = usize::try_from(self.turn * 5 % 16)?;
        let (tags, query, known) = &mut self.boundaries[at];
        let mut token = log.source(query, known.as_ref()).await?.token;
        for conflicts in 0.. {
            let event = event(self.turn)?.tag(&tags[0])?.tag(&tags[1])?;
            match log.append(Append::new([event]).unless(query.clone(), token.clone())).await {
                Ok(done) => {
                    *known = Some(done.token.unwrap_or(token));
                    return Ok(conflicts);
                }
                Err(Error::Conflict(conflict)) => match conflict.token {
                    // It goes on from what the conflict brought.
                    Some(behind) => token = behind,
                    None => token = log.source(query, Some(&token)).await?.token,
                },
                Err(error) => return Err(error.into()),
            }
        }
        Ok(0)
    }
}

impl Writer for Ours {
    async fn act(&mut self, scenario: Scenario) -> Result<u64, Fault> {
        self.turn += 1;
        match scenario {
            Scenario::Boundaries => self.decide().await,
            Scenario::Disjoint | Scenario::Hot => self.append().await,
        }
    }
}

struct Growing<'a> {
    layout: &'a Layout,
    opened: Opened,
    stream: StreamName,
    /// None: it does not exist yet.
    token: Option<Expect>,
    /// Of the last load.
    eventual: bool,
}

impl Stream for Growing<'_> {
    async fn append(&mut self) -> Result<(), Fault> {
        let step = Step::new([event(1)?]);
        let step = match self.token.take() {
            None => self.layout.first(step),
            Some(expect) => step.expect(expect),
        };
        let done = self.opened.store.streams().append(&self.stream, step).await?;
        self.token = Some(match (done.token, done.version) {
            (Some(token), _) => Expect::Token(token),
            (None, Some(version)) => Expect::Version(version),
            (None, None) => Expect::Any,
        });
        Ok(())
    }
    async fn load(&mut self) -> Result<u64, Fault> {
        self.opened.asked.take();
        let loaded = self.opened.store.streams().load(&self.stream, LoadOptions::default()).await?;
        self.eventual = self.opened.asked.take();
        Ok(loaded.events.len() as u64)
    }
    fn consumed(&mut self) -> Units {
        self.opened.meter.take()
    }
    fn is_eventual(&self) -> bool {
        self.eventual
    }
}
