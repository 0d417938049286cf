//! Unique usernames: one account at a time has a name, and a name that was given up stays reserved for a while.
//!
//! `cargo run -p fencepost --features embedded,testing --example unique_username [URL]`, on `memory:` where no URL is given.

use std::fmt;
use std::time::Duration;

use fencepost::testing::given;
use fencepost::{Decision, Env, Event, Fold, Result, Store, decision, fold_recorded};
use futures::future::try_join_all;
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
    let name = |name: &str| Username(name.into());
    let (u1, u2, now) = (name("u1"), name("u2"), given(()).now());
    let registered = |name: &Username| given([AccountRegistered { name: name.clone() }]);
    given(()).when(register(&u1, now)).then([AccountRegistered { name: u1.clone() }]);
    registered(&u1).when(register(&u1, now)).then_rejected(No::Claimed);
    registered(&u1).when(register(&u2, now)).then([AccountRegistered { name: u2.clone() }]);
    given(()).when(rename(&u1, &u2, now)).then_rejected(No::NotYours);
    registered(&u1).when(rename(&u1, &u2, now)).then([UsernameChanged { from: u1.clone(), to: u2.clone() }]);
    let closed = registered(&u1).and([AccountClosed { name: u1.clone() }]);
    let renamed = registered(&u1).and([UsernameChanged { from: u1.clone(), to: u2.clone() }]);
    renamed.clone().when(register(&u2, now)).then_rejected(No::Claimed);
    for given_up in [closed, renamed] {
        given_up.clone().when(register(&u1, now + RETENTION - Duration::from_secs(1))).then_rejected(No::StillReserved);
        given_up.when(register(&u1, now + RETENTION)).then([AccountRegistered { name: u1.clone() }]);
    }
}

#[tokio::main]
async fn main() -> Result<()> {
    cases();
    let url = std::env::args().nth(1).unwrap_or_else(|| "memory:".into());
    let store = Store::builder(&url)?.create(true).open().await?;
    let env = Env::system();
    let (ada, grace) = (Username(format!("ada-{}", env.new_id())), Username(format!("grace-{}", env.new_id())));

    let racers = try_join_all((0..8).map(async |_| store.decide(register(&ada, env.now())).await)).await?;
    let winners = racers.iter().filter(|one| one.committed().is_some()).count();
    println!("8 asked for one name: {winners} has it");
    assert_eq!(winners, 1);
    assert!(store.decide(rename(&ada, &grace, env.now())).await?.committed().is_some());
    assert_eq!(store.decide(register(&ada, env.now())).await?.rejection(), Some(&No::StillReserved));
    Ok(())
}
