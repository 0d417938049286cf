//! A service that goes on with the tables of Sekiban: by its own settings, with events that Sekiban wrote, a decision that holds in the store, and
//! the safe and the served state of a projection.
//!
//! `cargo run -p fencepost --features embedded,testing --example sekiban_table [URL]`, on `memory:` where no URL is given.

use std::time::Duration;

use fencepost::sekiban::{Settings, SortableId, WriteOptions};
use fencepost::{Decision, Env, Event, Metadata, Projection, Projections, Recorded, Result, Store, decision, fold};
use serde::{Deserialize, Serialize};

/// As `appsettings.json` has them; keys of the account stay outside.
const SETTINGS: &str = r#"{
    "AWS": { "Region": "ap-northeast-1" },
    "DynamoDb": { "WriteShardCount": 4, "UseConsistentReads": true }, // Sekiban reads comments too
}"#;

const STUDENT: &str = "0b6d3b1e-2a53-4d55-9a5c-0b8a8c0a5c11";

/// Types and fields as Sekiban's domain has them: camel case, tags of a group and a content.
#[derive(Debug, Clone, PartialEq, Event, Serialize, Deserialize)]
enum School {
    StudentCreated {
        #[tag("Student")]
        #[serde(rename = "studentId")]
        student: String,
        #[serde(rename = "maxClassCount")]
        limit: usize,
    },
    StudentEnrolledInClassRoom {
        #[tag("Student")]
        #[serde(rename = "studentId")]
        student: String,
        #[tag("ClassRoom")]
        #[serde(rename = "classRoomId")]
        room: String,
    },
}
use School::*;

/// The limit, and how many rooms are taken: what a tag projector of Sekiban's would fold.
type Rooms = (usize, usize);

fn enrol(room: &str) -> impl Decision<Rejection = &'static str> {
    let rooms = fold(("Student", STUDENT), Rooms::default(), |(limit, taken), event: &School| match event {
        StudentCreated { limit: given, .. } => *limit = *given,
        StudentEnrolledInClassRoom { .. } => *taken += 1,
    });
    let room = room.to_owned();
    decision(rooms, move |(limit, taken)| match taken < limit {
        true => Ok([StudentEnrolledInClassRoom { student: STUDENT.into(), room: room.clone() }]),
        false => Err("no more rooms"),
    })
}

/// How many enrolments there are, over all students.
fn enrolments(name: &str) -> Result<Projection<u64>> {
    let count = |state: &mut u64, event: &Recorded| {
        *state += u64::from(event.event_type.as_str() == "StudentEnrolledInClassRoom");
        Ok::<_, String>(())
    };
    Ok(Projection::new(name, 1, || 0, count)?.save_every(1, Duration::from_millis(10)))
}

/// Runs it for a while; its state then.
async fn run(projections: &Projections, env: &Env, name: &str) -> Result<u64> {
    let _ = projections.run_until(&enrolments(name)?, env.sleep(Duration::from_millis(300))).await?;
    Ok(projections.get::<u64>(name).await?.map_or(0, |got| got.state))
}

#[tokio::main]
async fn main() -> Result<()> {
    let settings = Settings::from_json(SETTINGS)?;
    println!("on AWS these tables are {}", settings.url()?);
    let url = std::env::args().nth(1).unwrap_or_else(|| "memory:?table=Sekiban&layout=sekiban".into());
    let store = Store::builder(&url)?.settings(&settings)?.open().await?;
    let sekiban = store.sekiban()?;

    // What Sekiban's executor would write: id and place are given.
    let created = Event::new("StudentCreated", format!(r#"{{"studentId":"{STUDENT}","name":"Ada","maxClassCount":2}}"#))?;
    let created = created
        .tag(format!("Student:{STUDENT}"))?
        .id(store.env().new_id())
        .meta(Metadata { user: Some("u".into()), ..Metadata::default() });
    let written = sekiban.write(&[(SortableId::threshold(store.env().now()), created)], WriteOptions::default()).await?;
    println!("{} has {} event", written.tags[0].tag, written.tags[0].version);

    // Three at once, and two rooms: no actor, no lock, and never a third.
    let (a, b, c) = tokio::join!(store.decide(enrol("r1")), store.decide(enrol("r2")), store.decide(enrol("r3")));
    let rejected = [a?, b?, c?].iter().filter(|outcome| outcome.rejection().is_some()).count();
    println!("2 enrolled, {rejected} rejected");
    assert_eq!(rejected, 1);

    // Served: all that is there. Safe: what is older than the window of 20 s, which is nothing yet.
    let served = store.projections()?;
    let safe = Projections::new(store.safe_feed()?, store.cells(), store.env().clone());
    let (now, then) = (run(&served, store.env(), "enrolments").await?, run(&safe, store.env(), "enrolments-safe").await?);
    println!("{now} enrolments served, {then} safe");
    assert_eq!((now, then), (2, 0));
    let row = sekiban.projection_row("enrolments", "1").await?.expect("a row of Sekiban's");
    println!("in Sekiban's row: {} events up to {}", row.events, row.last);
    Ok(())
}
