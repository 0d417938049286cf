//! Unique usernames: a name is claimed at most once at a time, given up, and claimed again by somebody else.
//!
//! `cargo run -p fencepost --features embedded --example unique_username [URL]`, on `memory:` where no URL is given.

use fencepost::{Append, Env, Error, Event, EventLog, Query, Recorded, Result, Store};
use futures::future::try_join_all;
use serde::{Deserialize, Serialize};
use uuid::Uuid;

#[derive(Serialize, Deserialize)]
struct UsernameClaimed {
    account: u32,
}

/// Tags stand in keys, and a username may be personal data: the tag holds a hash. In production key it with a secret.
fn tag_of(name: &str) -> String {
    format!("username:{}", Uuid::new_v5(&Uuid::NAMESPACE_OID, name.as_bytes()).simple())
}

/// Who has the name after these events, if anybody.
fn owner(events: &[Recorded]) -> Result<Option<u32>> {
    let mut owner = None;
    for event in events {
        match event.event_type.as_str() {
            "UsernameClaimed" => owner = Some(event.json::<UsernameClaimed>()?.account),
            "UsernameGivenUp" => owner = None,
            _ => {}
        }
    }
    Ok(owner)
}

/// Whether the account has the name now.
async fn claim(log: &dyn EventLog, name: &str, account: u32) -> Result<bool> {
    let query = Query::tag(tag_of(name))?;
    let read = log.source(&query, None).await?;
    if let Some(owner) = owner(&read.events)? {
        return Ok(owner == account);
    }
    let event = Event::json("UsernameClaimed", &UsernameClaimed { account })?.tag(tag_of(name))?;
    match log.append(Append::new([event]).unless(query, read.token)).await {
        Ok(_) => Ok(true),
        // Somebody was faster, and the conflict says who. One tag, one cover: it was so at one instant.
        Err(Error::Conflict(conflict)) => Ok(owner(&conflict.events)? == Some(account)),
        Err(error) => Err(error),
    }
}

/// Gives a name up, if the account has it.
async fn give_up(log: &dyn EventLog, name: &str, account: u32) -> Result<bool> {
    let query = Query::tag(tag_of(name))?;
    let read = log.source(&query, None).await?;
    if owner(&read.events)? != Some(account) {
        return Ok(false);
    }
    let event = Event::new("UsernameGivenUp", "{}")?.tag(tag_of(name))?;
    log.append(Append::new([event]).unless(query, read.token)).await?;
    Ok(true)
}

#[tokio::main]
async fn main() -> Result<()> {
    let url = std::env::args().nth(1).unwrap_or_else(|| "memory:".into());
    let store = Store::builder(&url)?.create(true).open().await?;
    let log = store.log()?;
    // A name of its own for each run, so that a store which stays can be used again.
    let name = format!("ada-{}", Env::system().new_id().simple());

    let racers = try_join_all((1..=8).map(async |account| Ok::<_, Error>((account, claim(&*log, &name, account).await?)))).await?;
    let winners: Vec<u32> = racers.iter().filter(|(_, won)| *won).map(|(account, _)| *account).collect();
    println!("{name} belongs to {winners:?}");
    assert_eq!(winners.len(), 1, "eight asked, one has it");

    let (winner, other) = (winners[0], winners[0] % 8 + 1);
    assert!(!claim(&*log, &name, other).await?);
    assert!(!give_up(&*log, &name, other).await?, "it is not theirs to give up");
    assert!(give_up(&*log, &name, winner).await?);
    assert!(claim(&*log, &name, other).await?, "free again");
    assert_eq!(log.source(&Query::tag(tag_of(&name))?, None).await?.events.len(), 3);
    Ok(())
}
