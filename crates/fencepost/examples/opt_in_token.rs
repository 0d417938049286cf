//! Opt-in tokens: a sign-up is confirmed with the token that was mailed, once, by that mail address, within an hour. No table of tokens.
//!
//! `cargo run -p fencepost --features embedded,testing --example opt_in_token [URL]`, on `memory:` where no URL is given.

use std::time::Duration;

use fencepost::testing::given;
use fencepost::{Decision, Env, Event, Fold, Result, Store, about, decision, fold_recorded};
use futures::future::try_join_all;
use jiff::Timestamp;
use serde::{Deserialize, Serialize};

/// `person` is a pseudonym for the mail address: tags stand in keys, and addresses do not belong there.
#[derive(Event, Serialize, Deserialize)]
#[rustfmt::skip] // one event, one line
enum SignUp {
    Requested { #[tag("person")] person: u64, #[tag("token")] token: u64, name: String },
    Confirmed { #[tag("person")] person: u64, #[tag("token")] token: u64, name: String },
}
use SignUp::*;

#[derive(Debug, PartialEq)]
enum No {
    UnknownToken,
    Expired,
    AlreadyUsed,
}

#[derive(Clone)]
enum Token {
    Unknown,
    Pending { name: String, since: Timestamp },
    Used,
}

const VALID_FOR: Duration = Duration::from_mins(60);

/// Of this person: a token that somebody else was mailed is unknown.
fn token_of(person: u64, token: u64) -> Fold<Token> {
    fold_recorded(about("person", person).and("token", token), Token::Unknown, |token, event, recorded| {
        *token = match event {
            Requested { name, .. } => Token::Pending { name: name.clone(), since: recorded.recorded_at },
            Confirmed { .. } => Token::Used,
        }
    })
}

/// Whoever makes the token makes it unguessable; a request needs no rule.
fn request(person: u64, token: u64, name: &str) -> impl Decision<Rejection = No> + use<> {
    let name = name.to_owned();
    decision((), move |()| Ok([Requested { person, token, name: name.clone() }]))
}

fn confirm(person: u64, token: u64, now: Timestamp) -> impl Decision<Rejection = No> {
    decision(token_of(person, token), move |state| match state {
        Token::Unknown => Err(No::UnknownToken),
        Token::Used => Err(No::AlreadyUsed),
        Token::Pending { since, .. } if now > *since + VALID_FOR => Err(No::Expired),
        Token::Pending { name, .. } => Ok([Confirmed { person, token, name: name.clone() }]),
    })
}

fn cases() {
    let requested = given([Requested { person: 1, token: 1234, name: "Ada".into() }]);
    let confirmed = || Confirmed { person: 1, token: 1234, name: "Ada".into() };
    let now = requested.now();
    given(()).when(confirm(1, 1234, now)).then_rejected(No::UnknownToken);
    requested.clone().when(confirm(1, 9999, now)).then_rejected(No::UnknownToken);
    requested.clone().when(confirm(2, 1234, now)).then_rejected(No::UnknownToken);
    requested.clone().and([confirmed()]).when(confirm(1, 1234, now)).then_rejected(No::AlreadyUsed);
    requested.clone().when(confirm(1, 1234, now)).then([confirmed()]);
    requested.clone().when(confirm(1, 1234, now + VALID_FOR)).then([confirmed()]);
    requested.when(confirm(1, 1234, now + VALID_FOR + Duration::from_secs(1))).then_rejected(No::Expired);
}

#[tokio::main]
async fn main() -> Result<()> {
    cases();
    let url = std::env::args().nth(1).unwrap_or_else(|| "memory:".into());
    let store = Store::builder(&url)?.create(true).open().await?;
    let env = Env::system();
    let (person, token) = (env.below(1 << 60), env.below(1 << 60));
    assert!(store.decide(request(person, token, "Ada")).await?.committed().is_some());

    // An impatient double click, six times.
    let clicks = try_join_all((0..6).map(async |_| store.decide(confirm(person, token, env.now())).await)).await?;
    let used = clicks.iter().filter(|one| one.rejection() == Some(&No::AlreadyUsed)).count();
    println!("6 clicks on one link: {} confirmed, {used} told that it was used", 6 - used);
    assert_eq!(used, 5);
    assert_eq!(store.decide(confirm(person + 1, token, env.now())).await?.rejection(), Some(&No::UnknownToken));
    Ok(())
}
