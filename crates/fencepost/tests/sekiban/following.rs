//! Tag projectors and multi-projections on Sekiban's tables: states of tags, the safe and the served state, in Sekiban's rows; and waiting for
//! one's own writes, which fails loudly.

use std::sync::Arc;

use fencepost::sekiban::Blobs;
use fencepost::testing::Lag;
use fencepost::{Ended, Feed, LoadOptions, Projection, Projections, Reason, StreamName, decision, feed_reaches, fold};
use object_store::memory::InMemory;
use serde::{Deserialize, Serialize};

use crate::*;

/// Labels in the order in which they came.
type Seen = Vec<String>;

fn seen(version: u32) -> Projection<Seen> {
    let fold = |state: &mut Seen, event: &Recorded| {
        state.push(String::from_utf8_lossy(&event.data).into_owned());
        Ok::<_, String>(())
    };
    Projection::new("seen", version, Seen::new, fold)
        .expect("a projection")
        .lease(Duration::from_millis(200))
        .save_every(1, Duration::from_millis(5))
}

async fn state(projections: &Projections, version: u32) -> Seen {
    projections.get_version::<Seen>("seen", version).await.expect("reads").map(|got| got.state).unwrap_or_default()
}

/// Runs it until its state is this.
async fn run_to(projections: &Projections, version: u32, expected: &[&str]) {
    let reached = async {
        while state(projections, version).await != expected {
            Env::system().sleep(Duration::from_millis(5)).await;
        }
    };
    let projection = seen(version);
    let run = projections.run_until(&projection, reached);
    let ended = tokio::time::timeout(Duration::from_secs(20), run).await.expect("it comes").expect("runs");
    assert!(matches!(ended, Ended::Stopped), "{ended:?}");
}

#[derive(Debug, Clone, PartialEq, Event, Serialize, Deserialize)]
enum School {
    StudentCreated {
        #[tag("Student")]
        #[serde(rename = "studentId")]
        student: String,
        name: String,
    },
    ClassRoomCreated {
        #[tag("ClassRoom")]
        #[serde(rename = "classRoomId")]
        room: String,
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

/// All that a feed hands over behind a place, until it has caught up.
async fn handed_over(feed: &Arc<dyn Feed>, from: From) -> (Vec<String>, Checkpoint) {
    let mut deliveries = feed.subscribe(from, Query::all());
    let mut met = Vec::new();
    loop {
        match deliveries.next().await.expect("never ends").expect("delivers") {
            Delivery::Event { event, .. } => met.push(String::from_utf8_lossy(&event.data).into_owned()),
            Delivery::CaughtUp { checkpoint } => return (met, checkpoint),
            _ => {}
        }
    }
}

/// A tag projector is a fold over a tag: its state, how many events it folded, and the last of them, as Sekiban's tag states have it.
#[tokio::test]
async fn the_state_of_a_tag_is_a_fold_and_decisions_on_it_hold() {
    let golden = golden("04");
    let bench = Bench::new();
    let store = bench.store("").await;
    bench.load(&golden).await;
    const STUDENT: &str = "0b6d3b1e-2a53-4d55-9a5c-0b8a8c0a5c11";
    let name = format!("Student:{STUDENT}");
    let rooms = || {
        fold(("Student", STUDENT), Vec::<String>::new(), |rooms, event: &School| {
            if let School::StudentEnrolledInClassRoom { room, .. } = event {
                rooms.push(room.clone());
            }
        })
    };
    let loaded = store.streams().load(&StreamName::new(&name).expect("a name"), LoadOptions::default()).await.expect("load");
    assert_eq!(
        (store.look(rooms()).await.expect("look").value.len(), loaded.version),
        (1, 2),
        "each event once, where Sekiban's folds twice"
    );
    let last = loaded.events.last().and_then(|event| SortableId::of(&event.position));
    assert_eq!(store.sekiban().expect("sekiban").latest_of(&tag(&name)).await.expect("latest"), last);
    // Two decide at once on what both have read: the one that comes second decides again, and sees the room taken.
    let enrol = |room: &str| {
        let room = room.to_owned();
        decision(rooms(), move |rooms: &Vec<String>| {
            if rooms.len() >= 2 {
                return Err(rooms.len());
            }
            Ok([School::StudentEnrolledInClassRoom { student: STUDENT.into(), room: room.clone() }])
        })
    };
    let between = Faults::new(bench.http(), 1);
    let slow = open(bench.builder("").http_client(between.http_client())).await;
    let gate = Gate::new();
    between.script(Rule::on("TransactWriteItems").nth(1).pause_before(&gate));
    let quick = async {
        gate.reached(1).await;
        let outcome = store.decide(enrol("y")).await.expect("decides");
        gate.open();
        outcome
    };
    let (second, first) = tokio::join!(slow.decide(enrol("x")), quick);
    assert_eq!((first.rejection(), second.expect("decides").rejection()), (None, Some(&2)));
    assert_eq!(store.look(rooms()).await.expect("look").value.len(), 2);
}

/// The served state has what is there; the safe one what nothing can come before any more, in the order of ids, whatever came late.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_safe_state_waits_for_the_window_and_has_the_order_of_ids() {
    let bench = Bench::embedded();
    let env = Env::seeded(1);
    let store = open(bench.builder("&safe_window=20000").env(env.clone())).await;
    let served = store.projections().expect("projections");
    let safe = Projections::new(store.safe_feed().expect("feed"), store.cells(), env.clone());
    let log = store.log().expect("log");
    let early = env.now();
    env.advance(Duration::from_secs(1));
    let first = log.append(Append::new([event("1", &["a:1"])])).await.expect("append");
    run_to(&served, 1, &["1"]).await;
    // Somebody's clock is behind, or their write was slow.
    let late = (SortableId::threshold(early), event("late", &["b:1"]).id(Uuid::from_u128(3)));
    store.sekiban().expect("sekiban").write(&[late], WriteOptions::default()).await.expect("writes");
    run_to(&served, 1, &["1", "late"]).await;
    let feed = store.safe_feed().expect("feed");
    assert!(!feed.shows(first.positions[0]).await.expect("asks"), "young");
    assert_eq!(handed_over(&feed, From::Start).await.0, Vec::<String>::new());
    env.advance(Duration::from_millis(18_500));
    let (old, checkpoint) = handed_over(&feed, From::Start).await;
    assert_eq!(old, Vec::<String>::new());
    env.advance(Duration::from_secs(1));
    let (old, checkpoint) = handed_over(&feed, From::Checkpoint(checkpoint)).await;
    assert_eq!(old, ["late"]);
    run_to(&safe, 2, &["late"]).await;
    env.advance(Duration::from_secs(1));
    assert_eq!(handed_over(&feed, From::Checkpoint(checkpoint)).await.0, ["1"]);
    assert!(feed.shows(first.positions[0]).await.expect("asks"));
    run_to(&safe, 2, &["late", "1"]).await;
    // A new one from its checkpoint: none twice, none lost.
    log.append(Append::new([event("2", &["a:1"])])).await.expect("append");
    run_to(&served, 1, &["1", "late", "2"]).await;
    env.advance(Duration::from_secs(21));
    run_to(&safe, 2, &["late", "1", "2"]).await;
    // What Sekiban would read of it.
    let row = store.sekiban().expect("sekiban").projection_row("seen", "2").await.expect("reads").expect("a row of Sekiban's");
    assert_eq!((row.events, row.last.as_str() > SortableId::threshold(early).to_string().as_str()), (3, true));
    assert!(row.last.as_str() <= row.safe_window_threshold.as_str(), "only what is safe is in it");
    let stored = store.sekiban().expect("sekiban").state_of(&row).await.expect("opens").expect("a state");
    assert_eq!(&stored[..], br#"["late","1","2"]"#);
    let envelope: Json = serde_json::from_slice(&store.sekiban().expect("sekiban").envelope_of(&row).await.expect("opens")).expect("JSON");
    assert_eq!((&envelope["inlineState"]["isSafeState"], &envelope["inlineState"]["version"]), (&Json::from(true), &Json::from(3)));
}

/// One state machine for both: what Sekiban gives up is built anew here, what is reset here is given up there; a row of Sekiban's own is left.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn our_projections_lie_in_sekibans_rows_and_give_up_as_those_do() {
    let bench = Bench::new();
    let bucket = Arc::new(InMemory::new());
    let store = open(bench.builder("").blobs(Blobs::new(bucket, "p"))).await;
    let (projections, sekiban) = (store.projections().expect("projections"), store.sekiban().expect("sekiban"));
    let log = store.log().expect("log");
    for label in ["1", "2"] {
        log.append(Append::new([event(label, &["a:1"])])).await.expect("append");
    }
    run_to(&projections, 1, &["1", "2"]).await;
    let row = sekiban.projection_row("seen", "1").await.expect("reads").expect("a row");
    assert_eq!((row.events, row.control.generation, row.control.tombstoned), (2, 0, false));
    assert_eq!(projections.list().await.expect("lists").iter().map(|one| one.version).collect::<Vec<_>>(), [1]);
    // Sekiban gives it up.
    let given_up = sekiban.invalidate_row("seen", "1", row.control).await.expect("gives up");
    assert!(matches!(given_up, RowWrite::Committed(_)));
    assert_eq!(state(&projections, 1).await, Seen::new(), "nothing is read of it");
    run_to(&projections, 1, &["1", "2"]).await;
    let rebuilt = sekiban.projection_row("seen", "1").await.expect("reads").expect("a row");
    assert_eq!((rebuilt.events, rebuilt.control.generation), (2, 1));
    // We do.
    projections.reset("seen", 1).await.expect("resets");
    assert!(sekiban.projection_row("seen", "1").await.expect("reads").is_none(), "given up there as well");
    run_to(&projections, 1, &["1", "2"]).await;
    // One that outgrows the row.
    let big = base64::engine::general_purpose::STANDARD.encode(snapshots::noise(240_000));
    log.append(Append::new([event(&big, &["a:1"])])).await.expect("append");
    run_to(&projections, 1, &["1", "2", &big]).await;
    let row = sekiban.projection_row("seen", "1").await.expect("reads").expect("a row");
    assert!(matches!(row.body, RowBody::Offloaded { .. }), "{row:?}");
    projections.delete("seen", 1).await.expect("deletes");
    assert!(sekiban.projection_row("seen", "1").await.expect("reads").is_none());
    // Sekiban's own.
    let built = fencepost::sekiban::Folded { projector: "seen".into(), version: "9".into(), ..Default::default() };
    sekiban.create_row(&sekiban.row_of(&built, b"{}").expect("row")).await.expect("writes");
    let refused = tokio::time::timeout(Duration::from_secs(20), projections.run(&seen(9))).await.expect("ends");
    assert!(matches!(&refused, Err(Error::Refused(Refused::Unsupported { what, .. })) if what.contains("Sekiban built")), "{refused:?}");
}

/// A reader of one's own writes waits, and past the deadline hears that it is late: never an old state as if it were the new one.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn waiting_for_ones_own_write_ends_with_it_or_loudly() {
    let engines = [Engine::memory().expect("engine"), Engine::memory().expect("engine")];
    let lag = Lag::new(engines[0].http_client(), engines[1].http_client(), 1);
    let builder = Store::builder("memory:?table=Sekiban&layout=sekiban").expect("url").http_client(lag.http_client());
    let store = open(builder).await;
    let projections = store.projections().expect("projections");
    let done = store.log().expect("log").append(Append::new([event("1", &["a:1"])])).await.expect("append");
    let (feed, short) = (store.feed().expect("feed"), Duration::from_millis(80));
    let is_late = |waited: fencepost::Result<()>| matches!(waited, Err(Error::Unavailable(why)) if why.reason == Reason::Late);
    assert!(is_late(feed_reaches(&*feed, &done, short, store.env()).await), "the index does not show it");
    assert!(is_late(projections.wait_for("seen", &done, short).await), "nobody runs it");
    lag.apply_all().await;
    feed_reaches(&*feed, &done, Duration::from_secs(10), store.env()).await.expect("it shows");
    assert!(is_late(projections.wait_for("seen", &done, short).await), "still nobody");
    let projection = seen(1);
    let waited = async { projections.wait_for("seen", &done, Duration::from_secs(10)).await.expect("it comes") };
    let ended = projections.run_until(&projection, waited).await.expect("runs");
    assert!(matches!(ended, Ended::Stopped), "{ended:?}");
    assert_eq!(state(&projections, 1).await, ["1"]);
}
