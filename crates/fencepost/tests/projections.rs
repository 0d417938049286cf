//! Projections over every feed: no state differs from a fold of the whole history, whatever is killed; versions beside each other; stale
//! writers fenced; large states in object storage, whole or loudly not.

mod follow;
mod support;

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use fencepost::{
    Cell, CellKey, CellKind, Cells, Ended, Env, Error, Memory, Objects, Projection, Projections, Query, Reason, Recorded, Revision,
};
use follow::crash::{Deaths, Fate, Point};
use follow::{Place, place, wait_for};
use futures::future::{Either, select};

const LEASE: Duration = Duration::from_millis(30);

/// Under each tag, the labels in the order in which they came.
type Seen = BTreeMap<String, Vec<usize>>;

fn fold(state: &mut Seen, event: &Recorded) -> Result<(), String> {
    for tag in &event.tags {
        state.entry(tag.to_string()).or_default().push(follow::label(event));
    }
    Ok(())
}

fn seen(version: u32) -> Projection<Seen> {
    let projection = Projection::new("seen", version, Seen::new, fold).expect("a good name");
    projection.lease(LEASE).save_every(5, Duration::from_millis(5))
}

fn projections(place: &Place, fate: Option<&Fate>) -> Projections {
    match fate {
        Some(fate) => Projections::new(fate.feed(&place.feed), fate.cells(&place.cells), Env::system()),
        None => Projections::new(place.feed.clone(), place.cells.clone(), Env::system()),
    }
}

async fn whole(place: &Place) -> Seen {
    let mut state = Seen::new();
    for event in place.history().await {
        fold(&mut state, &event).expect("folds");
    }
    state
}

async fn state(projections: &Projections) -> Option<Seen> {
    projections.get::<Seen>("seen").await.expect("reads").map(|got| got.state)
}

async fn append(place: &Place, labels: std::ops::Range<usize>) {
    for n in labels {
        place.append(&[(&n.to_string(), &[&format!("s:{}", n % 3)])]).await;
    }
}

/// Runs it until what is stored equals a fold of everything.
async fn catch_up(place: &Place, projection: &Projection<Seen>) {
    let all = projections(place, None);
    let expected = whole(place).await;
    let version = projection_version(projection);
    let reached = || async {
        let got = all.get_version::<Seen>("seen", version).await.expect("it must succeed");
        got.is_some_and(|got| got.caught_up && got.state == expected)
    };
    let ended = all.run_until(projection, wait_for(reached)).await.expect("it must succeed");
    assert!(matches!(ended, Ended::Stopped), "{ended:?}");
}

fn projection_version(projection: &Projection<Seen>) -> u32 {
    let text = format!("{projection:?}");
    let digits: String = text.split("version: ").nth(1).expect("it says").chars().take_while(char::is_ascii_digit).collect();
    digits.parse().expect("a number")
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_state_is_the_fold_of_all_and_goes_on_where_it_was() {
    for place in follow::places().await {
        let all = projections(&place, None);
        assert!(state(&all).await.is_none(), "{}", place.name);
        append(&place, 0..20).await;
        catch_up(&place, &seen(1)).await;
        assert_eq!(state(&all).await, Some(whole(&place).await), "{}", place.name);
        append(&place, 20..30).await;
        catch_up(&place, &seen(1)).await;
        let got = all.get::<Seen>("seen").await.expect("it must succeed").expect("it is there");
        assert_eq!((got.version, got.position), (1, place.history().await.last().map(|event| event.position)), "{}", place.name);
        let listed = all.list().await.expect("it must succeed");
        assert_eq!((listed.len(), listed[0].live, listed[0].caught_up, listed[0].holder), (1, true, true, None), "{}", place.name);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_new_version_is_built_beside_the_old_one_and_takes_over_when_it_has_caught_up() {
    let place = place(Memory::new());
    append(&place, 0..10).await;
    catch_up(&place, &seen(1)).await;
    let all = projections(&place, None);
    // The second version counts, and is killed while it catches up.
    let fate = Fate::new(Point::AfterSave(CellKind::Projection), 2);
    let mortal = projections(&place, Some(&fate));
    let second = || seen(2).save_every(2, Duration::from_secs(9));
    match select(Box::pin(mortal.run(&second())), Box::pin(fate.struck())).await {
        Either::Left((ended, _)) => panic!("{ended:?}"),
        Either::Right(_) => {}
    }
    assert!(all.get_version::<Seen>("seen", 2).await.expect("it must succeed").is_some_and(|got| !got.caught_up), "it is on its way");
    assert_eq!(all.get::<Seen>("seen").await.expect("it must succeed").map(|got| got.version), Some(1), "the old one is read");
    catch_up(&place, &second()).await;
    assert_eq!(all.get::<Seen>("seen").await.expect("it must succeed").map(|got| got.version), Some(2));
    catch_up(&place, &seen(1)).await;
    assert_eq!(
        all.get::<Seen>("seen").await.expect("it must succeed").map(|got| got.version),
        Some(2),
        "the old one does not come back by running"
    );
    all.delete("seen", 2).await.expect("it must succeed");
    assert_eq!(all.get::<Seen>("seen").await.expect("it must succeed").map(|got| got.version), Some(1), "but by deleting the new one");
    assert_eq!(all.list().await.expect("it must succeed").iter().map(|status| status.version).collect::<Vec<_>>(), [1]);
    assert!(all.delete("seen", 7).await.is_err() && all.reset("unheard", 1).await.is_err());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn reset_it_is_built_anew_also_while_it_runs() {
    let place = place(Memory::new());
    append(&place, 0..10).await;
    let all = projections(&place, None);
    let projection = seen(1);
    let script = async {
        wait_for(|| async { state(&all).await == Some(whole(&place).await) }).await;
        let before = all.list().await.expect("it must succeed")[0].generation;
        all.reset("seen", 1).await.expect("it must succeed");
        append(&place, 10..15).await;
        wait_for(|| async { state(&all).await == Some(whole(&place).await) }).await;
        assert!(all.list().await.expect("it must succeed")[0].generation > before + 1);
    };
    let _ = all.run_until(&projection, script).await.expect("it must succeed");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_fold_that_fails_ends_it_before_the_event_and_what_was_saved_stands() {
    let place = place(Memory::new());
    append(&place, 0..10).await;
    let picky = |state: &mut Seen, event: &Recorded| {
        fold(state, event)?;
        if follow::label(event) == 7 { Err("not seven".to_owned()) } else { Ok(()) }
    };
    let projection =
        Projection::new("seen", 1, Seen::new, picky).expect("it must succeed").lease(LEASE).save_every(3, Duration::from_secs(9));
    let all = projections(&place, None);
    match all.run(&projection).await.expect("it must succeed") {
        Ended::Failed(failed) => assert_eq!((failed.position.as_number(), failed.reason.as_str()), (Some(8), "not seven")),
        other => panic!("{other:?}"),
    }
    let got = all.get_version::<Seen>("seen", 1).await.expect("it must succeed").expect("saved before");
    assert_eq!(got.position.and_then(|at| at.as_number()), Some(6), "nothing of the failed event is in it");
}

const POINTS: &[Point] = &[Point::BeforeSave(CellKind::Projection), Point::AfterSave(CellKind::Projection), Point::InFeed];
/// A name is entered once: this comes in a projection's first life.
const FIRST_POINTS: &[Point] = &[Point::BeforeSave(CellKind::Names), Point::AfterSave(CellKind::Names)];

/// Kills a projection at a random point, again and again, while two writers write; sometimes another instance runs beside it.
async fn killed(place: Place, rounds: u64, seed: u64) -> Deaths {
    let chance = Env::seeded(seed);
    let projection = seen(1);
    let deaths = Deaths::of(format!("{} seed {seed}", place.name));
    let killing = async {
        for round in 1..=rounds {
            let fate = if round == 1 { deaths.choose(FIRST_POINTS, &chance, 1) } else { deaths.choose(POINTS, &chance, 6) };
            let (mortal, beside) = (projections(&place, Some(&fate)), projections(&place, None));
            let run = async {
                match chance.below(3) {
                    0 => drop(select(Box::pin(mortal.run(&projection)), Box::pin(beside.run(&projection))).await),
                    _ => drop(mortal.run(&projection).await),
                }
            };
            match select(Box::pin(run), Box::pin(deaths.struck(&fate))).await {
                Either::Left(_) => panic!("seed {seed} round {round}: it ended by itself"),
                Either::Right(((), run)) => drop(run),
            }
        }
    };
    let events = place.load(seed, killing).await;
    assert!(events > 20, "{}: the writers wrote {events} events", place.name);
    catch_up(&place, &projection).await;
    assert_eq!(state(&projections(&place, None)).await, Some(whole(&place).await), "{} seed {seed}", place.name);
    deaths
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn killed_at_random_points_the_state_is_still_the_fold_of_all_in_memory() {
    // Mostly they wait, for a point or for a dead one's lease: several histories at a time.
    let deaths = futures::future::join_all((1..=5).map(|seed| killed(place(Memory::new()), 50, seed))).await;
    Deaths::assert_met(&deaths, &[POINTS, FIRST_POINTS].concat());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn killed_at_random_points_the_state_is_still_the_fold_of_all_on_the_ledger() {
    // Feeds of several lanes give different tags in different orders, and each tag in one: the state is the same.
    let places = follow::places().await.into_iter().skip(1);
    let deaths = futures::future::join_all(places.zip(2..).map(|(place, seed)| killed(place, 50, seed))).await;
    Deaths::assert_met(&deaths, POINTS);
}

/// Cells that note how many events count in each state that is stored.
#[derive(Debug)]
struct Counted(Arc<dyn Cells>, Arc<Mutex<Vec<usize>>>);

#[async_trait::async_trait]
impl Cells for Counted {
    async fn load(&self, key: &CellKey) -> fencepost::Result<Option<Cell>> {
        self.0.load(key).await
    }
    async fn save(&self, key: &CellKey, body: &bytes::Bytes, expect: Option<Revision>) -> fencepost::Result<Option<Revision>> {
        let saved = self.0.save(key, body, expect).await?;
        let state = body.split(|byte| *byte == b'\n').nth(1).and_then(|state| serde_json::from_slice::<Seen>(state).ok());
        if let (Some(state), Some(_)) = (state, saved) {
            self.1.lock().expect("it must succeed").push(state.values().map(Vec::len).sum());
        }
        Ok(saved)
    }
    async fn delete(&self, key: &CellKey, expect: Revision) -> fencepost::Result<bool> {
        self.0.delete(key, expect).await
    }
    async fn list(&self, kind: CellKind, name: &str) -> fencepost::Result<Vec<Cell>> {
        self.0.list(kind, name).await
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_stale_writer_cannot_overwrite() {
    for mut place in follow::places().await {
        let stored = Arc::new(Mutex::new(Vec::new()));
        place.cells = Arc::new(Counted(place.cells, stored.clone()));
        append(&place, 0..10).await;
        // It stops right before it stores its state; its lease goes to another, which goes on; then it wakes.
        let fate = Fate::new(Point::BeforeSave(CellKind::Projection), 1);
        let stale = projections(&place, Some(&fate));
        let (projection, all) = (seen(1), projections(&place, None));
        let script = async {
            fate.struck().await;
            catch_up(&place, &seen(1)).await;
            append(&place, 10..20).await;
            catch_up(&place, &seen(1)).await;
            let (generation, expected) = (all.list().await.expect("it must succeed")[0].generation, whole(&place).await);
            fate.wake();
            // It reads again what is there, and goes on from that.
            append(&place, 20..25).await;
            wait_for(|| async { state(&all).await == Some(whole(&place).await) }).await;
            assert!(all.list().await.expect("it must succeed")[0].generation > generation, "{}", place.name);
            assert_ne!(Some(expected), state(&all).await);
        };
        let script = tokio::time::timeout(follow::PATIENCE, script);
        match select(Box::pin(stale.run(&projection)), Box::pin(script)).await {
            Either::Left((ended, _)) => panic!("{}: {ended:?}", place.name),
            Either::Right((done, _)) => done.expect("in time"),
        }
        let stored = stored.lock().expect("it must succeed").clone();
        assert!(stored.len() > 3 && stored.is_sorted(), "{}: a state was replaced by an older one: {stored:?}", place.name);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_a_commit_wrote_can_be_waited_for() {
    let soon = Duration::from_secs(30);
    for place in follow::places().await {
        let (all, projection) = (projections(&place, None), seen(1).query(Query::tag("s:1").expect("it must succeed")));
        let mailer = fencepost::Consumer::new("mailer", place.feed.clone(), place.cells.clone(), Env::system()).expect("it must succeed");
        let mailer = mailer.lease(LEASE).save_every(1, Duration::from_millis(5));
        let first = place.append(&[("0", &["s:1"])]).await;
        fencepost::feed_reaches(&*place.feed, &first, soon, &Env::system()).await.expect("it must succeed");
        let late = all.wait_for("seen", &first, Duration::from_millis(20)).await.unwrap_err();
        assert!(matches!(&late, Error::Unavailable(u) if u.reason == Reason::Late), "{late}");
        assert!(late.to_string().contains("projection seen") && !late.to_string().contains("nothing was recorded"), "{late}");
        assert!(mailer.wait_for(&first, Duration::from_millis(20)).await.is_err(), "{}: it has never run", place.name);
        let script = async {
            for n in 1..20usize {
                let label = n.to_string();
                let tag = if n % 2 == 0 { "s:1" } else { "s:2" };
                let committed = place.append(&[(&label, &[tag]), (&label, &["other"])]).await;
                all.wait_for("seen", &committed, soon).await.expect("it must succeed");
                let state = state(&all).await.unwrap_or_default();
                assert_eq!(state.get("s:1").is_some_and(|seen| seen.contains(&n)), n % 2 == 0, "{}: read after written", place.name);
                mailer.wait_for(&committed, soon).await.expect("it must succeed");
            }
        };
        let handled = follow::Recording::default();
        let run = futures::future::join(Box::pin(all.run(&projection)), Box::pin(mailer.run(handled.handler())));
        select(Box::pin(run), Box::pin(script)).await;
        assert_eq!(handled.len(), 39, "{}", place.name);
        let stopped = place.append(&[("99", &["s:1"])]).await;
        assert!(all.wait_for("seen", &stopped, Duration::from_millis(50)).await.is_err(), "{}: nobody runs", place.name);
        assert!(mailer.wait_for(&stopped, Duration::from_millis(50)).await.is_err(), "{}: nobody runs", place.name);
    }
}

// ---- large states ----

/// A state of some 35 KB for each event, which compresses to half.
fn large() -> Projection<Vec<String>> {
    let grow = |state: &mut Vec<String>, event: &Recorded| {
        let chance = Env::seeded(follow::label(event) as u64);
        state.extend((0..1000).map(|_| format!("{:016x}{:016x}", chance.below(u64::MAX), chance.below(u64::MAX))));
        Ok::<_, String>(())
    };
    Projection::new("large", 1, Vec::new, grow).expect("it must succeed").lease(LEASE).save_every(10, Duration::from_millis(5))
}

async fn reach(all: &Projections, place: &Place, events: usize) {
    let projection = large();
    let last = place.history().await.last().map(|event| event.position);
    let reached = || async { all.get::<Vec<String>>("large").await.is_ok_and(|got| got.is_some_and(|got| got.position == last)) };
    let _ = all.run_until(&projection, wait_for(reached)).await.expect("it must succeed");
    let got = all.get::<Vec<String>>("large").await.expect("it must succeed").expect("it is there");
    assert_eq!(got.state.len(), events * 1000);
}

/// Objects in a folder; or, where an endpoint is given, in a bucket of its own there.
async fn objects(folder: &tempfile::TempDir) -> (Objects, Arc<dyn object_store::ObjectStore>) {
    use object_store::aws::AmazonS3Builder;
    let store: Arc<dyn object_store::ObjectStore> = match std::env::var("FENCEPOST_TEST_ENDPOINT") {
        Ok(endpoint) => {
            let bucket = format!("test-{}", Env::system().new_id().simple());
            make_bucket(&endpoint, &bucket).await;
            let s3 = AmazonS3Builder::new().with_endpoint(endpoint).with_bucket_name(bucket).with_allow_http(true);
            Arc::new(
                s3.with_region("us-east-1").with_access_key_id("test").with_secret_access_key("test").build().expect("it must succeed"),
            )
        }
        Err(_) => Arc::new(object_store::local::LocalFileSystem::new_with_prefix(folder.path()).expect("it must succeed")),
    };
    (Objects::new(store.clone(), "states/here", "main"), store)
}

/// `PUT /bucket`, in plain HTTP: the client of objects makes none.
async fn make_bucket(endpoint: &str, bucket: &str) {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    let host = endpoint.trim_start_matches("http://").trim_end_matches('/').to_owned();
    let mut stream = tokio::net::TcpStream::connect(&host).await.expect("the endpoint answers");
    let request = format!("PUT /{bucket} HTTP/1.1\r\nHost: {host}\r\nContent-Length: 0\r\nConnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).await.expect("it must succeed");
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await.expect("it must succeed");
    assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_state_that_outgrows_its_item_goes_to_objects_and_superseded_ones_are_collected() {
    use futures::TryStreamExt;
    for place in follow::places().await {
        let folder = tempfile::tempdir().expect("it must succeed");
        let (objects, store) = objects(&folder).await;
        let all = projections(&place, None).offload(objects);
        append(&place, 0..10).await;
        reach(&all, &place, 10).await;
        assert_eq!(all.list().await.expect("it must succeed")[0].object, None, "{}: it fits", place.name);
        append(&place, 10..40).await;
        reach(&all, &place, 40).await;
        let status = all.list().await.expect("it must succeed").remove(0);
        let object = status.object.expect("it does not fit");
        let shape = object.strip_prefix("states/here/main/large/1/").and_then(|name| name.strip_suffix(".zst")).expect("as documented");
        let (generation, sha256) = shape.split_once('-').expect("as documented");
        assert_eq!((generation, sha256.len()), (status.generation.to_string().as_str(), 64), "{}", place.name);
        // Without the store it is refused, not empty.
        let without = projections(&place, None).get::<Vec<String>>("large").await;
        assert!(matches!(without, Err(Error::Refused(_))), "{}: {:?}", place.name, without.map(|_| ()));
        // Superseded ones go, after their grace.
        append(&place, 40..50).await;
        reach(&all, &place, 50).await;
        let young = all.gc(Duration::from_secs(3600)).await.expect("it must succeed");
        assert!(young.deleted == 0 && young.young >= 1, "{}: {young:?}", place.name);
        let collected = all.gc(Duration::ZERO).await.expect("it must succeed");
        assert!(collected.deleted >= 1, "{}: {collected:?}", place.name);
        let left: Vec<_> = store.list(None).try_collect().await.expect("it must succeed");
        assert_eq!(
            left.iter().map(|object| object.location.to_string()).collect::<Vec<_>>(),
            [all.list().await.expect("it must succeed")[0].object.clone().expect("it must succeed")]
        );
        reach(&all, &place, 50).await;
        all.delete("large", 1).await.expect("it must succeed");
        assert_eq!(all.gc(Duration::ZERO).await.expect("it must succeed").deleted, 1, "{}: nobody names the last one any more", place.name);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_missing_or_truncated_object_is_told_and_the_state_built_anew_after_a_reset() {
    use object_store::{ObjectStoreExt, PutPayload, path::Path};
    let folder = tempfile::tempdir().expect("it must succeed");
    let (objects, store) = objects(&folder).await;
    let place = place(Memory::new());
    let all = projections(&place, None).offload(objects);
    append(&place, 0..30).await;
    reach(&all, &place, 30).await;
    let path = || async {
        Path::parse(all.list().await.expect("it must succeed")[0].object.clone().expect("offloaded")).expect("it must succeed")
    };
    let bytes = || async { store.get(&path().await).await.expect("it must succeed").bytes().await.expect("it must succeed") };
    let older = bytes().await;
    append(&place, 30..40).await;
    reach(&all, &place, 40).await;
    let bytes = bytes().await;
    let changed = bytes.iter().map(|byte| byte ^ 1).collect();
    for damaged in [None, Some(bytes.slice(..bytes.len() / 2)), Some(changed), Some(older)] {
        let at = path().await;
        match damaged {
            None => store.delete(&at).await.expect("it must succeed"),
            Some(bytes) => drop(store.put(&at, PutPayload::from(bytes)).await.expect("it must succeed")),
        }
        let told = all.get::<Vec<String>>("large").await.map(|_| ()).unwrap_err();
        assert!(matches!(&told, Error::Corrupt(corrupt) if corrupt.what.contains(at.as_ref()) && corrupt.what.contains("reset")), "{told}");
        let run = all.run(&large()).await.map(|_| ()).unwrap_err();
        assert!(matches!(run, Error::Corrupt(_)), "who runs it stops, too: {run}");
        all.reset("large", 1).await.expect("it must succeed");
        assert!(all.get::<Vec<String>>("large").await.expect("it must succeed").is_none(), "not there, rather than empty");
        reach(&all, &place, 40).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn racing_writers_of_one_state_leave_one_whole_state() {
    let folder = tempfile::tempdir().expect("it must succeed");
    let (objects, _store) = objects(&folder).await;
    let place = place(Memory::new());
    append(&place, 0..40).await;
    // A save takes longer than their leases: they take over from each other in the middle of it, and the cell chooses.
    let all = projections(&place, None).offload(objects);
    let runs = (0..4).map(|_| {
        let all = all.clone();
        async move {
            let hasty = large().lease(Duration::from_millis(20));
            let _ = tokio::time::timeout(Duration::from_secs(2), all.run(&hasty)).await;
        }
    });
    futures::future::join_all(runs).await;
    reach(&all, &place, 40).await;
}

/// Answers every `PUT` as a bucket would, and keeps the heads of the requests.
async fn bucket() -> (String, Arc<std::sync::Mutex<Vec<String>>>) {
    use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let endpoint = format!("http://{}", listener.local_addr().expect("an address"));
    let heads = Arc::new(std::sync::Mutex::new(Vec::new()));
    let kept = heads.clone();
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            let kept = kept.clone();
            tokio::spawn(async move {
                let mut stream = BufReader::new(stream);
                loop {
                    let mut head = String::new();
                    while !head.ends_with("\r\n\r\n") {
                        if stream.read_line(&mut head).await.unwrap_or(0) == 0 {
                            return;
                        }
                    }
                    let head = head.to_ascii_lowercase();
                    let length = head.lines().find_map(|line| line.strip_prefix("content-length: ")?.trim().parse().ok());
                    let mut body = vec![0; length.unwrap_or(0)];
                    stream.read_exact(&mut body).await.expect("the body");
                    kept.lock().expect("the heads").push(head);
                    let answer = b"HTTP/1.1 200 OK\r\nETag: \"x\"\r\nContent-Length: 0\r\n\r\n";
                    stream.write_all(answer).await.expect("the answer");
                }
            });
        }
    });
    (endpoint, heads)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn encryption_by_a_key_is_asked_for_with_every_state() {
    let (endpoint, heads) = bucket().await;
    let key = "arn:aws:kms:eu-west-1:1:key/k1";
    let options = [
        ("aws_endpoint", endpoint.as_str()),
        ("aws_allow_http", "true"),
        ("aws_region", "eu-west-1"),
        ("aws_access_key_id", "any"),
        ("aws_secret_access_key", "any"),
        ("aws_server_side_encryption", "aws:kms"),
        ("aws_sse_kms_key_id", key),
    ];
    let options = options.map(|(name, value)| (name.to_owned(), value.to_owned()));
    let objects = Objects::open("s3://states/here", "main", options).expect("it opens");
    let place = place(Memory::new());
    append(&place, 0..30).await;
    let all = projections(&place, None).offload(objects);
    let stored = || async { !heads.lock().expect("the heads").is_empty() };
    let _ = all.run_until(&large(), wait_for(stored)).await.expect("it runs");
    let heads = heads.lock().expect("the heads").clone();
    for head in heads {
        assert!(head.starts_with("put /states/here/main/large/1/") && head.contains("if-none-match: *"), "{head}");
        assert!(head.contains("x-amz-server-side-encryption: aws:kms\r\n"), "{head}");
        assert!(head.contains(&format!("x-amz-server-side-encryption-aws-kms-key-id: {key}\r\n")), "{head}");
    }
}

/// A store of objects that takes nothing.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_state_that_cannot_be_stored_ends_the_projection_with_the_reason() {
    let place = place(Memory::new());
    append(&place, 0..40).await;
    let folder = tempfile::tempdir().expect("it must succeed");
    // Where the folder of the projection should be, there is a file.
    std::fs::create_dir_all(folder.path().join("main")).expect("it must succeed");
    std::fs::write(folder.path().join("main/large"), "in the way").expect("it must succeed");
    let objects = Objects::open(&format!("file://{}", folder.path().display()), "main", []).expect("it must succeed");
    let all = projections(&place, None).offload(objects);
    let ended = tokio::time::timeout(follow::PATIENCE, all.run(&large())).await.expect("it ends by itself");
    let told = ended.map(|_| ()).expect_err("it cannot be stored").to_string();
    assert!(told.contains("main/large/1/"), "{told}");
}

#[tokio::test]
async fn a_state_too_large_without_objects_is_refused_with_the_remedy() {
    let place = place(Memory::new());
    append(&place, 0..40).await;
    let refused = projections(&place, None).run(&large().save_every(1000, Duration::from_millis(5))).await.map(|_| ()).unwrap_err();
    assert!(matches!(&refused, Error::Refused(_)) && refused.to_string().contains("offload"), "{refused}");
}
