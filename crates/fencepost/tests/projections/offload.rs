//! States that outgrow an item, in object storage: whole or loudly not, collected once nobody names them, and never before.

use std::sync::Arc;
use std::time::Duration;

use fencepost::{CellKey, CellKind, Ended, Env, Error, Memory, Objects, Projection, Projections, Reason, Recorded};

use crate::follow::cells::{Judged, Verdict};
use crate::follow::{self, Place, place, wait_for};
use crate::resumed::Short;
use crate::support::{Ground, open, subject};
use crate::{LEASE, append, projections};

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

/// Why it is refused. It ends too if it is not, once all is in the state.
async fn refused(all: &Projections, place: &Place) -> String {
    let last = place.history().await.last().map(|event| event.position);
    let reached = || async { all.get::<Vec<String>>("large").await.is_ok_and(|got| got.is_some_and(|got| got.position == last)) };
    let ended = all.run_until(&large(), wait_for(reached)).await;
    ended.map(|_| ()).expect_err("refused").to_string()
}

/// Objects in a folder; or, where an endpoint is given, in a bucket of its own there.
async fn objects(folder: &tempfile::TempDir) -> (Objects, Arc<dyn object_store::ObjectStore>) {
    let (_, _, store) = storage(folder).await;
    (Objects::new(store.clone(), "states/here", "main"), store)
}

/// Where objects go, as a user says it: a URL and options; and the same place as others see it.
async fn storage(folder: &tempfile::TempDir) -> (String, Vec<(String, String)>, Arc<dyn object_store::ObjectStore>) {
    use object_store::aws::AmazonS3Builder;
    match std::env::var("FENCEPOST_TEST_ENDPOINT") {
        Ok(endpoint) => {
            let bucket = format!("test-{}", Env::system().new_id().simple());
            make_bucket(&endpoint, &bucket).await;
            let url = format!("s3://{bucket}/states/here");
            let options = vec![("aws_endpoint".into(), endpoint.clone()), ("aws_allow_http".into(), "true".into())];
            let s3 = AmazonS3Builder::new().with_endpoint(endpoint).with_bucket_name(bucket).with_allow_http(true);
            let s3 = s3.with_region("us-east-1").with_access_key_id("test").with_secret_access_key("test");
            (url, options, Arc::new(s3.build().expect("it must succeed")))
        }
        Err(_) => {
            let store = object_store::local::LocalFileSystem::new_with_prefix(folder.path()).expect("it must succeed");
            (format!("file://{}/states/here", folder.path().display()), Vec::new(), Arc::new(store))
        }
    }
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
        let named = all.list().await.expect("it must succeed")[0].object.clone().expect("it must succeed");
        let mut left = all_keys(&*store).await;
        left.sort_unstable();
        assert_eq!(left, [named, "states/here/main/large/owner".to_owned()]);
        reach(&all, &place, 50).await;
        all.delete("large", 1).await.expect("it must succeed");
        assert_eq!(all.gc(Duration::ZERO).await.expect("it must succeed").deleted, 1, "{}: nobody names the last one any more", place.name);
    }
}

/// As its users open it: by URL, and on S3 with the keys and the region that the store of events has.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_state_goes_where_the_stores_url_of_objects_says_and_comes_back() {
    let folder = tempfile::tempdir().expect("a folder");
    let (url, options, there) = storage(&folder).await;
    let store = open(Ground::fresh().builder("feed=lanes-1")).await;
    let place = follow::of("lanes-1", subject(&store));
    // Each time as another process would open it.
    let all = || store.projections().expect("a feed").offload(store.objects(&url, options.clone()).expect("it opens"));
    for labels in [0..30, 30..40] {
        let events = labels.end;
        append(&place, labels).await;
        reach(&all(), &place, events).await;
    }
    assert!(object_keys(&*there).await.len() >= 2, "a superseded one is left");
    assert!(all().gc(Duration::ZERO).await.expect("collects").deleted >= 1);
    let (named, left) = (all().list().await.expect("lists")[0].object.clone().expect("offloaded"), object_keys(&*there).await);
    assert!(left.len() == 1 && left[0].starts_with("states/here/main/large/1/") && named.ends_with(&left[0]), "{named}: {left:?}");
    assert_eq!(all().get::<Vec<String>>("large").await.expect("reads").expect("is there").state.len(), 40_000);
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

/// Whoever reads meanwhile is told, and never given the part that is there as if it were all.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lost_state_is_built_anew_where_that_was_asked_for_and_readers_wait_until_it_has_caught_up() {
    use object_store::{ObjectStoreExt, PutPayload, path::Path};
    let folder = tempfile::tempdir().expect("a folder");
    let (objects, store) = objects(&folder).await;
    let place = place(Memory::new());
    let all = projections(&place, None).offload(objects.clone());
    append(&place, 0..40).await;
    reach(&all, &place, 40).await;
    let last = place.history().await.last().map(|event| event.position).expect("events");
    let late = |error: &Error| matches!(error, Error::Unavailable(told) if told.reason == Reason::Late && told.message.contains("anew"));
    for truncated in [false, true] {
        let before = all.list().await.expect("lists").remove(0);
        let at = Path::parse(before.object.clone().expect("offloaded")).expect("a path");
        if truncated {
            let bytes = store.get(&at).await.expect("it is there").bytes().await.expect("bytes");
            store.put(&at, PutPayload::from(bytes.slice(..bytes.len() / 2))).await.expect("put");
        } else {
            store.delete(&at).await.expect("deleted");
        }
        // On the way to all events: some are stored, by whoever builds it.
        let half = Projections::new(Arc::new(Short(place.feed.clone(), 15)), place.cells.clone(), Env::system()).offload(objects.clone());
        let some = || async { all.list().await.expect("lists")[0].position.is_some_and(|position| position < last) };
        let ended = half.run_until(&large().rebuild_if_lost(), wait_for(some)).await.expect("it is built anew");
        assert!(matches!(ended, Ended::Stopped), "{ended:?}");
        let status = all.list().await.expect("lists").remove(0);
        assert!(!status.caught_up && status.generation > before.generation, "{status:?}");
        for told in [all.get::<Vec<String>>("large").await, all.get_version("large", 1).await] {
            assert!(told.as_ref().is_err_and(late), "{:?}", told.map(|_| ()));
        }
        let first = place.history().await[0].position;
        assert!(all.wait_for("large", first, Duration::from_millis(20)).await.is_err(), "what nobody can read has reached nothing");
        // Killed and begun anew it goes on, by whoever: the loss was dealt with.
        reach(&all, &place, 40).await;
        assert!(all.get::<Vec<String>>("large").await.expect("reads").is_some_and(|got| got.caught_up));
    }
}

/// Between finding the object missing and writing that down somebody deletes the version: it stays deleted.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_was_written_since_a_loss_was_found_stands() {
    use futures::FutureExt;
    use object_store::{ObjectStoreExt, path::Path};
    let folder = tempfile::tempdir().expect("a folder");
    let (objects, store) = objects(&folder).await;
    let place = place(Memory::new());
    let all = projections(&place, None).offload(objects.clone());
    append(&place, 0..30).await;
    reach(&all, &place, 30).await;
    store
        .delete(&Path::parse(all.list().await.expect("lists")[0].object.clone().expect("offloaded")).expect("a path"))
        .await
        .expect("gone");
    let (state, deleted) = (CellKey::new(CellKind::Projection, "large", 1).expect("a key"), std::sync::Once::new());
    let other = all.clone();
    let judged = Judged::new(&place.cells, move |key, _| {
        if *key == state {
            deleted.call_once(|| other.delete("large", 1).now_or_never().expect("memory answers at once").expect("deletes"));
        }
        Verdict::Done
    });
    let late = Projections::new(place.feed.clone(), judged, Env::system()).offload(objects);
    let ended = late.run(&large().rebuild_if_lost()).await.map(|_| ()).expect_err("it is deleted");
    assert!(matches!(ended, Error::Refused(_)), "{ended}");
    assert!(all.list().await.expect("lists").is_empty(), "and stays so");
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

async fn all_keys(store: &dyn object_store::ObjectStore) -> Vec<String> {
    use futures::TryStreamExt;
    let listed: Vec<_> = store.list(None).try_collect().await.expect("lists");
    listed.into_iter().map(|object| object.location.to_string()).collect()
}

/// Of the states; whose they are is said beside them.
async fn object_keys(store: &dyn object_store::ObjectStore) -> Vec<String> {
    all_keys(store).await.into_iter().filter(|key| !key.ends_with("/owner")).collect()
}

/// A reader has loaded the cell; before it asks for the object, another is stored in its place and this one is collected.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_reader_whose_object_is_superseded_and_collected_reads_the_new_one() {
    let folder = tempfile::tempdir().expect("a folder");
    let (objects, _store) = objects(&folder).await;
    let mut place = place(Memory::new());
    append(&place, 0..30).await;
    reach(&projections(&place, None).offload(objects.clone()), &place, 30).await;
    let key = CellKey::new(CellKind::Projection, "large", 1).expect("a key");
    let old = place.cells.load(&key).await.expect("loads").expect("a state");
    append(&place, 30..40).await;
    let cells = Judged::new(&place.cells, |_, _| Verdict::Done);
    place.cells = cells.clone();
    let all = projections(&place, None).offload(objects);
    reach(&all, &place, 40).await;
    assert!(all.gc(Duration::ZERO).await.expect("collects").deleted >= 1);
    cells.serve_once(key.clone(), old.clone());
    let got = all.get::<Vec<String>>("large").await.expect("the new one").expect("is there");
    assert_eq!(got.state.len(), 40_000);
    // Who runs it reads the same way.
    cells.serve_once(key, old);
    reach(&all, &place, 40).await;
}

/// Killed between the object and the cell: the object is an orphan. It may be old enough to be collected at any moment, so who goes on stores
/// another, and does not name this one.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_orphan_of_a_crash_is_never_named_and_is_collected() {
    let folder = tempfile::tempdir().expect("a folder");
    let (objects, store) = objects(&folder).await;
    let place = place(Memory::new());
    append(&place, 0..40).await;
    let stored = Arc::new(std::sync::atomic::AtomicBool::new(false));
    let told = stored.clone();
    let dying = Judged::new(&place.cells, move |_, body| {
        if body.windows(9).any(|part| part == b"\"object\":") {
            told.store(true, std::sync::atomic::Ordering::SeqCst);
            return Verdict::Stopped;
        }
        Verdict::Done
    });
    let projection = || large().save_every(1000, Duration::from_secs(9));
    let mortal = Projections::new(place.feed.clone(), dying, Env::system()).offload(objects.clone());
    let died = follow::wait_until(|| stored.load(std::sync::atomic::Ordering::SeqCst));
    futures::future::select(Box::pin(mortal.run(&projection())), Box::pin(died)).await;
    let orphans = object_keys(&*store).await;
    assert_eq!(orphans.len(), 1);
    let all = projections(&place, None).offload(objects);
    let reached = || async { all.get::<Vec<String>>("large").await.expect("reads").is_some() };
    let _ = all.run_until(&projection(), wait_for(reached)).await.expect("it runs");
    let named = all.list().await.expect("lists")[0].clone();
    let object = named.object.expect("offloaded");
    assert_ne!(object, orphans[0], "the same state, under another name");
    assert!(object.contains(&format!("/{}-", named.generation)), "{object}");
    assert_eq!(all.gc(Duration::ZERO).await.expect("collects").deleted, 1);
    assert_eq!(object_keys(&*store).await, [object]);
    assert_eq!(all.get::<Vec<String>>("large").await.expect("reads").expect("is there").state.len(), 40_000);
}

/// Another store's objects under the same prefix and namespace, of projections that are unknown here: they are not ours to delete.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn objects_of_projections_that_are_unknown_here_are_left_alone() {
    let folder = tempfile::tempdir().expect("a folder");
    let (objects, store) = objects(&folder).await;
    let (theirs, ours) = (place(Memory::new()), place(Memory::new()));
    append(&theirs, 0..40).await;
    reach(&projections(&theirs, None).offload(objects.clone()), &theirs, 40).await;
    append(&ours, 0..1).await;
    let all = projections(&ours, None).offload(objects);
    let small = Projection::new(
        "small",
        1,
        || 0u64,
        |n: &mut u64, _: &Recorded| -> Result<(), String> {
            *n += 1;
            Ok(())
        },
    );
    let small = small.expect("a good name").lease(LEASE);
    let reached = || async { all.get::<u64>("small").await.expect("reads").is_some() };
    let _ = all.run_until(&small, wait_for(reached)).await.expect("it runs");
    let before = object_keys(&*store).await;
    assert!(!before.is_empty());
    assert_eq!(all.gc(Duration::ZERO).await.expect("collects").deleted, 0);
    assert_eq!(object_keys(&*store).await, before);
}

/// Two stores that share prefix and namespace and have a projection of one name: neither may take the other's states for its own leavings.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_folder_that_is_another_stores_is_refused_and_nothing_in_it_collected() {
    let folder = tempfile::tempdir().expect("a folder");
    let (objects, store) = objects(&folder).await;
    let (theirs, ours) = (place(Memory::new()), place(Memory::new()));
    append(&theirs, 0..40).await;
    reach(&projections(&theirs, None).offload(objects.clone()), &theirs, 40).await;
    let before = all_keys(&*store).await;
    append(&ours, 0..40).await;
    let all = projections(&ours, None).offload(objects);
    let told = refused(&all, &ours).await;
    assert!(told.contains("another store's") && told.contains("another prefix"), "{told}");
    let told = all.gc(Duration::ZERO).await.expect_err("refused").to_string();
    assert!(told.contains("another prefix"), "{told}");
    assert_eq!(all_keys(&*store).await, before, "nothing was written or deleted");
    reach(&projections(&theirs, None).offload(Objects::new(store.clone(), "states/here", "main")), &theirs, 40).await;
    // With a prefix of its own it goes on.
    reach(&projections(&ours, None).offload(Objects::new(store, "elsewhere", "main")), &ours, 40).await;
}

/// A folder of before there were owners becomes its store's at the next offload or collection; what lies there is left alone for the grace
/// period, so that another store which writes there hears of it first.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_folder_without_an_owner_gets_one_and_is_left_alone_for_the_grace_period() {
    use object_store::{ObjectStoreExt, path::Path};
    let folder = tempfile::tempdir().expect("a folder");
    let (objects, store) = objects(&folder).await;
    let (one, other) = (place(Memory::new()), place(Memory::new()));
    let owner = Path::from("states/here/main/large/owner");
    for place in [&one, &other] {
        append(place, 0..40).await;
        reach(&projections(place, None).offload(objects.clone()), place, 40).await;
        // As it was before there were owners.
        store.delete(&owner).await.expect("deletes");
    }
    let before = object_keys(&*store).await;
    // By a clock that is far ahead: all that lies there is old.
    let (ahead, grace) = (Env::seeded(1), Duration::from_secs(3600));
    ahead.set_clock(Env::system().now() + 2 * grace);
    let late = || Projections::new(one.feed.clone(), one.cells.clone(), ahead.clone()).offload(objects.clone());
    let collected = late().gc(grace).await.expect("collects");
    assert_eq!((collected.deleted, object_keys(&*store).await), (0, before), "it has just become its own");
    append(&other, 40..50).await;
    let told = refused(&projections(&other, None).offload(objects.clone()), &other).await;
    assert!(told.contains("another prefix"), "{told}");
    assert!(late().gc(grace).await.expect("collects").deleted >= 1, "it has been its own for longer than that");
    reach(&projections(&one, None).offload(objects), &one, 40).await;
}

/// Put-if-absent is what keeps two writers of one name apart: the store of objects that the tests run on must hold it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_second_object_under_one_name_is_refused_by_the_store() {
    use object_store::{ObjectStore, ObjectStoreExt, PutMode, path::Path};
    let folder = tempfile::tempdir().expect("a folder");
    let (_, store) = objects(&folder).await;
    let at = Path::from("states/here/main/large/1/1-x.zst");
    let puts = (0..8u8).map(|n| {
        let (store, at) = (store.clone(), at.clone());
        async move { store.put_opts(&at, vec![n; 1_000].into(), PutMode::Create.into()).await.map(|_| n) }
    });
    let (stored, refused): (Vec<_>, Vec<_>) = futures::future::join_all(puts).await.into_iter().partition(Result::is_ok);
    assert_eq!((stored.len(), refused.len()), (1, 7), "{refused:?}");
    assert!(refused.iter().all(|put| matches!(put, Err(object_store::Error::AlreadyExists { .. }))), "{refused:?}");
    let there = store.get(&at).await.expect("gets").bytes().await.expect("reads");
    assert_eq!(there, vec![*stored[0].as_ref().expect("stored"); 1_000]);
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
    // Half of them in the URL, as the command takes all of its.
    let (in_url, given) = options.split_at(4);
    let query: Vec<String> = in_url.iter().map(|(name, value)| format!("{name}={value}")).collect();
    let given = given.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned()));
    let objects = Objects::open(&format!("s3://states/here?{}", query.join("&")), "main", given).expect("it opens");
    let place = place(Memory::new());
    append(&place, 0..30).await;
    let all = projections(&place, None).offload(objects);
    let stored = || async { heads.lock().expect("the heads").iter().any(|head| head.contains("/large/1/")) };
    let _ = all.run_until(&large(), wait_for(stored)).await.expect("it runs");
    let heads = heads.lock().expect("the heads").clone();
    assert!(heads[0].starts_with("put /states/here/main/large/owner "), "whose they are comes first: {}", heads[0]);
    for head in heads {
        assert!(head.starts_with("put /states/here/main/large/") && head.contains("if-none-match: *"), "{head}");
        assert!(head.contains("x-amz-server-side-encryption: aws:kms\r\n"), "{head}");
        assert!(head.contains(&format!("x-amz-server-side-encryption-aws-kms-key-id: {key}\r\n")), "{head}");
    }
}

/// One that is misspelt would leave states unencrypted without a word.
#[test]
fn an_option_that_the_service_does_not_have_is_refused_and_no_value_is_told() {
    let told = |url: &str, options: &[(&str, &str)]| {
        let options = options.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned()));
        Objects::open(url, "main", options).map(|_| ()).expect_err("refused").to_string()
    };
    let misspelt = told("s3://states/here?aws_server_side_encrypton=SECRET", &[]);
    assert!(misspelt.contains("aws_server_side_encrypton") && !misspelt.contains("SECRET"), "{misspelt}");
    assert!(told("gs://states/here", &[("aws_sse_kms_key_id", "k")]).contains("aws_sse_kms_key_id"));
    assert!(told("file:///states?prefix=here", &[]).contains("prefix is no option"));
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
    assert!(told.contains("main/large/"), "{told}");
}

#[tokio::test]
async fn a_state_too_large_without_objects_is_refused_with_the_remedy() {
    let place = place(Memory::new());
    append(&place, 0..40).await;
    let refused = projections(&place, None).run(&large().save_every(1000, Duration::from_millis(5))).await.map(|_| ()).unwrap_err();
    assert!(matches!(&refused, Error::Refused(_)) && refused.to_string().contains("offload"), "{refused}");
}
