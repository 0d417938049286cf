//! Unique usernames: one account at a time has a name, and a name that was given up stays reserved for a while.
//!
//! `cargo run -p fencepost --features embedded,testing --example unique_username [URL]`, on `memory:` where no URL is given.

use std::fmt;
use std::time::Duration;

use fencepost::testing::given;
use fencepost::{Decision, Env, Event, Fold, Outcome, Result, Store, decision, fold_recorded};
use futures::future::join_all;
use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use uuid::Uuid;

/// Tags stand in keys, and a username may be personal data: in a tag it is a hash. In production key it with a secret.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
struct Username(String);

impl fmt::Display for Username {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        Uuid::new_v5(&Uuid::NAMESPACE_OID, self.0.as_bytes()).simple().fmt(f)
    }
}

#[derive(Event, Serialize, Deserialize)]
#[rustfmt::skip] // one event, one line
enum Accounts {
    AccountRegistered { #[tag("username")] name: Username },
    AccountClosed { #[tag("username")] name: Username },
    UsernameChanged { #[tag("username")] from: Username, #[tag("username")] to: Username },
}
use Accounts::*;

#[derive(Debug, PartialEq)]
enum No {
    Claimed,
    StillReserved,
    NotYours,
}

#[derive(Clone)]
enum Name {
    Free,
    Claimed,
    GivenUp(Timestamp),
}

const RETENTION: Duration = Duration::from_hours(3 * 24);

impl Name {
    fn check_claim(&self, now: Timestamp) -> Result<(), No> {
        match self {
            Name::Claimed => Err(No::Claimed),
            Name::GivenUp(at) if now < *at + RETENTION => Err(No::StillReserved),
            Name::Free | Name::GivenUp(_) => Ok(()),
        }
    }
}

fn state_of(name: &Username) -> Fold<Name> {
    let this = name.clone();
    fold_recorded(("username", name), Name::Free, move |state, event, recorded| {
        *state = match event {
            AccountRegistered { .. } => Name::Claimed,
            UsernameChanged { to, .. } if *to == this => Name::Claimed,
            UsernameChanged { .. } | AccountClosed { .. } => Name::GivenUp(recorded.recorded_at),
        }
    })
}

fn register(name: &Username, now: Timestamp) -> impl Decision<Rejection = No> + use<> {
    let claim = name.clone();
    decision(state_of(name), move |name| name.check_claim(now).map(|()| [AccountRegistered { name: claim.clone() }]))
}

fn rename(from: &Username, to: &Username, now: Timestamp) -> impl Decision<Rejection = No> + use<> {
    let event = (from.clone(), to.clone());
    decision((state_of(from), state_of(to)), move |(old, new)| match old {
        Name::Claimed => new.check_claim(now).map(|()| [UsernameChanged { from: event.0.clone(), to: event.1.clone() }]),
        Name::Free | Name::GivenUp(_) => Err(No::NotYours),
    })
}

fn cases() {
    let (u1, u2, now) = (Username("u1".into()), Username("u2".into()), given(()).now());
    let registered = |name: &Username| given([AccountRegistered { name: name.clone() }]);
    given(()).when(register(&u1, now)).then([AccountRegistered { name: u1.clone() }]);
    registered(&u1).when(register(&u1, now)).then_rejected(No::Claimed);
    registered(&u1).when(register(&u2, now)).then([AccountRegistered { name: u2.clone() }]);
    given(()).when(rename(&u1, &u2, now)).then_rejected(No::NotYours);
    registered(&u1).when(rename(&u1, &u2, now)).then([UsernameChanged { from: u1.clone(), to: u2.clone() }]);
    let closed = registered(&u1).and([AccountClosed { name: u1.clone() }]);
    let renamed = registered(&u1).and([UsernameChanged { from: u1.clone(), to: u2.clone() }]);
    renamed.when(register(&u2, now)).then_rejected(No::Claimed);
    for given_up in [closed, renamed] {
        given_up.when(register(&u1, now + RETENTION - Duration::from_secs(1))).then_rejected(No::StillReserved);
        given_up.when(register(&u1, now + RETENTION)).then([AccountRegistered { name: u1.clone() }]);
    }
}

async fn at_once<D: Decision<Rejection = No> + 'static>(store: &Store, all: impl Iterator<Item = D>) -> Result<Vec<Outcome<No>>> {
    let tasks = all.map(|one| (store.clone(), one)).map(|(store, one)| tokio::spawn(async move { store.decide(one).await }));
    join_all(tasks).await.into_iter().map(|outcome| outcome.expect("no panic")).collect()
}

#[tokio::main]
async fn main() -> Result<()> {
    cases();
    let url = std::env::args().nth(1).unwrap_or_else(|| "memory:".into());
    let (store, env) = (Store::builder(&url)?.create(true).open().await?, Env::system());
    let (ada, grace) = (Username(format!("ada-{}", env.new_id())), Username(format!("grace-{}", env.new_id())));

    let racers = at_once(&store, (0..8).map(|_| register(&ada, env.now()))).await?;
    assert_eq!(racers.iter().filter(|one| one.committed().is_some()).count(), 1);
    println!("8 asked for one name, and one has it");
    assert!(store.decide(rename(&ada, &grace, env.now())).await?.committed().is_some());
    assert_eq!(store.decide(register(&ada, env.now())).await?.rejection(), Some(&No::StillReserved));
    Ok(())
}
