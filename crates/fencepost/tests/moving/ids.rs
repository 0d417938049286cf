//! An event is recorded once by its id, whatever the commits were that it came in before and comes in now, on every layout.

use fencepost::{Step, StreamName, StreamReadOptions, StreamStoreExt};

use super::*;

/// Layouts, and how the names of streams are spelt there. All keep the ids of what is imported: those of peers that have no place for an id of
/// their own, Equinox in the metadata, event-store-adapter in an attribute beside the peer's. (Its v3 begins no stream without a snapshot, which a
/// move does not bring.)
const LAYOUTS: [(&str, &str); 7] = [
    ("feed=lanes-1", "user-"),
    ("feed=lanes-8", "user-"),
    ("feed=streams", "user-"),
    ("layout=equinox", "user-"),
    ("layout=event-store-adapter-v5", "user-"),
    ("layout=sekiban", "user:"),
    ("layout=reventless&partition=user&cross=order", "user:"),
];

fn id(n: usize) -> Uuid {
    Uuid::from_u128(0x0191_d7a0_0000_7000_8000_0000_0000_0000 + n as u128)
}

/// Event `n`, of one of three streams, as one of several of its commit.
fn line(spelt: &str, n: usize, (part, of): (usize, usize)) -> String {
    let (id, stream) = (id(n), n % 3);
    let part = if of > 1 { format!(r#","part":[{part},{of}]"#) } else { String::new() };
    format!(r#"{{"type":"T","data":{{"n":{n}}},"tags":["{spelt}{stream}"],"id":"{id}"{part}}}"#) + "\n"
}

/// These events in commits of at most `size` of one stream each.
fn file(spelt: &str, events: impl IntoIterator<Item = usize>, size: usize) -> Vec<u8> {
    let mut streams = [vec![], vec![], vec![]];
    events.into_iter().for_each(|n| streams[n % 3].push(n));
    let mut file = String::new();
    for commit in streams.iter().flat_map(|stream| stream.chunks(size)) {
        commit.iter().enumerate().for_each(|(at, n)| file += &line(spelt, *n, (at + 1, commit.len())));
    }
    file.into_bytes()
}

async fn held_ids(store: &Store, spelt: &str) -> Vec<Vec<Uuid>> {
    let mut held = Vec::new();
    for stream in 0..3 {
        let stream = StreamName::new(format!("{spelt}{stream}")).expect("a name");
        let events = store.streams().read_stream(&stream, StreamReadOptions::default()).await.expect("reads");
        held.push(events.iter().map(|event| event.id).collect());
    }
    held
}

#[tokio::test]
async fn however_a_file_is_cut_an_event_is_recorded_once_on_every_layout() {
    for (layout, spelt) in LAYOUTS {
        let to = store(layout).await;
        let import = async |file: Vec<u8>| {
            let imported = moving::import(&to, lines(&file), &quiet).await.unwrap_or_else(|error| panic!("{layout}: {error}"));
            (imported.events, imported.repeated)
        };
        // The application itself has recorded one of them.
        let own = Event::new("T", r#"{"n":1}"#).expect("event").id(id(1));
        let first = StreamName::new(format!("{spelt}1")).expect("a name");
        to.streams().append(&first, Step::new([own])).await.expect("appends");
        assert_eq!(import(file(spelt, 0..18, 3)).await, (17, 1), "{layout}: the first time");
        assert_eq!(import(file(spelt, 0..18, 3)).await, (0, 18), "{layout}: the same again");
        assert_eq!(import(file(spelt, 0..18, 1)).await, (0, 18), "{layout}: without commits");
        assert_eq!(import(file(spelt, 0..18, 4)).await, (0, 18), "{layout}: in other commits");
        assert_eq!(import(file(spelt, (0..18).step_by(2), 2)).await, (0, 9), "{layout}: a part");
        assert_eq!(import(file(spelt, 12..24, 4)).await, (6, 6), "{layout}: one that overlaps");
        let twice = [file(spelt, 18..30, 2), file(spelt, 24..30, 1)].concat();
        assert_eq!(import(twice).await, (6, 12), "{layout}: twice in one file");
        let expected: Vec<Vec<Uuid>> = (0..3).map(|stream| (stream..30).step_by(3).map(id).collect()).collect();
        assert_eq!(held_ids(&to, spelt).await, expected, "{layout}: each once, in order");
    }
}

#[tokio::test]
async fn another_event_under_an_id_that_is_there_is_refused_and_nothing_of_its_commit_is_recorded() {
    for (layout, spelt) in LAYOUTS {
        let to = store(layout).await;
        moving::import(&to, lines(&file(spelt, 0..3, 1)), &quiet).await.expect("imports");
        let there = held_ids(&to, spelt).await;
        for (from, into, differs) in [(r#""n":0"#, r#""n":7"#, "body"), (r#""type":"T""#, r#""type":"U""#, "type")] {
            // A new event stands in the same commit, before the one that differs.
            let wrong = line(spelt, 3, (1, 2)) + &line(spelt, 0, (2, 2)).replace(from, into);
            let error = moving::import(&to, lines(wrong.as_bytes()), &quiet).await.expect_err("refused").to_string();
            assert!(error.contains(&id(0).to_string()) && error.contains(differs), "{layout}: {error}");
            assert_eq!(held_ids(&to, spelt).await, there, "{layout}");
        }
    }
}

/// What a store has recorded itself is there, under ids that it derived and in commits that no import knows.
#[tokio::test]
async fn what_a_store_exported_is_known_when_it_comes_back() {
    for feed in ["lanes-1", "lanes-8"] {
        let from = store(&format!("feed={feed}")).await;
        fill(&*from.log().expect("log"), &Env::seeded(15), 5).await;
        let events = all(&*from.log().expect("log")).await.len() as u64;
        let tag = Query::tag("tag:3").expect("query");
        let part: Vec<u8> = moving::export(&from, tag, None).expect("begins").try_concat().await.expect("exports");
        for file in [exported(&from, None).await, without_parts(&part)] {
            let imported = moving::import(&from, lines(&file), &quiet).await.expect("imports");
            assert_eq!((imported.events, imported.repeated), (0, file.iter().filter(|byte| **byte == b'\n').count() as u64), "{feed}");
        }
        assert_eq!(all(&*from.log().expect("log")).await.len() as u64, events, "{feed}");
    }
}

/// An export of one tag has only the events of a commit that carry it; beside the whole it is no other commit, but the same events.
#[tokio::test]
async fn a_part_and_the_whole_may_come_in_any_order() {
    let from = store("feed=lanes-8").await;
    fill(&*from.log().expect("log"), &Env::seeded(16), 30).await;
    let whole = exported(&from, None).await;
    let part: Vec<u8> =
        moving::export(&from, Query::tag("tag:1").expect("query"), None).expect("begins").try_concat().await.expect("exports");
    let events = all(&*from.log().expect("log")).await;
    for files in [[&part, &whole], [&whole, &part]] {
        for feed in ["lanes-1", "lanes-8"] {
            let to = store(&format!("feed={feed}")).await;
            for file in files {
                moving::import(&to, lines(file), &quiet).await.expect("imports");
            }
            assert_eq!(all(&*to.log().expect("log")).await.len(), events.len(), "{feed}");
        }
    }
}

/// The line numbers of parts are those of whole commits: alone they stand for themselves.
fn without_parts(file: &[u8]) -> Vec<u8> {
    let mut kept = Vec::new();
    for line in file.split(|byte| *byte == b'\n').filter(|line| !line.is_empty()) {
        let mut line: serde_json::Value = serde_json::from_slice(line).expect("a line");
        line.as_object_mut().expect("an object").remove("part");
        kept.extend(serde_json::to_vec(&line).expect("JSON"));
        kept.push(b'\n');
    }
    kept
}

/// Two at once would both find that an event is missing: whoever begins later goes on, and the other is told before it writes more.
#[tokio::test]
async fn of_two_imports_at_the_same_time_the_later_goes_on_and_the_other_is_told() {
    for (layout, spelt) in LAYOUTS {
        let to = store(layout).await;
        let (begun, go_on) = (tokio::sync::Semaphore::new(0), tokio::sync::Semaphore::new(0));
        let slow = stream::unfold(0, |n| {
            let go_on = &go_on;
            async move {
                if n == 1 {
                    let _ = go_on.acquire().await;
                }
                (n < 6).then(|| (Ok(line(spelt, n, (1, 1)).into_bytes()), n + 1))
            }
        });
        let later = async {
            let _ = begun.acquire().await;
            let imported = moving::import(&to, lines(&file(spelt, 0..4, 2)), &quiet).await;
            go_on.add_permits(1);
            imported.expect("imports").events
        };
        let recorded = |_| begun.add_permits(1);
        let (first, later) = futures::join!(moving::import(&to, slow.boxed(), &recorded), later);
        assert_eq!(later, 3, "{layout}: all but what the first had recorded");
        let told = first.expect_err("refused").to_string();
        assert!(told.contains("two imports"), "{layout}: {told}");
        moving::import(&to, lines(&file(spelt, 0..6, 1)), &quiet).await.expect("imports");
        let expected: Vec<Vec<Uuid>> = (0..3).map(|stream| (stream..6).step_by(3).map(id).collect()).collect();
        assert_eq!(held_ids(&to, spelt).await, expected, "{layout}");
    }
}
