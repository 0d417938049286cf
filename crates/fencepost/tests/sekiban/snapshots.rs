//! Projection states with blobs: both levels of offload, crashes between the blob and its row, what is collected; and our projections in the rows.

use std::sync::Arc;

use bytes::Bytes;
use fencepost::sekiban::{Blobs, Folded};
use fencepost::{CellKey, CellKind};
use object_store::memory::InMemory;
use object_store::path::Path;
use object_store::{ObjectStore, ObjectStoreExt};

use crate::*;

async fn keys(store: &InMemory) -> Vec<String> {
    let all: Vec<_> = store.list(None).try_collect().await.expect("list");
    all.into_iter().map(|object| object.location.to_string()).collect()
}

fn folded(events: u64) -> Folded {
    Folded {
        projector: "Rooms".into(),
        version: "1.0.0".into(),
        payload_type: "Rooms".into(),
        last: Some(id("063921792785123456000144769402")),
        events,
        caught_up: true,
    }
}

/// Bytes that do not pack.
pub(crate) fn noise(bytes: usize) -> Vec<u8> {
    let env = Env::seeded(7);
    (0..bytes).map(|_| u8::try_from(env.below(256)).expect("a byte")).collect()
}

#[tokio::test]
async fn large_states_go_to_the_bucket_and_both_levels_are_opened() {
    let bench = Bench::new();
    let bucket = Arc::new(InMemory::new());
    let with = |prefix: &str| bench.builder("&service=acme").blobs(Blobs::new(bucket.clone(), prefix));
    let sekiban = open(with("pre/fix")).await.sekiban().expect("sekiban");
    // From nothing to what fits in no item: the window in which Sekiban's own writes fail is in between.
    for (bytes, away) in [(0, false), (1_000, false), (200_000, false), (235_000, true), (262_000, true), (2_000_000, true)] {
        let state = noise(bytes);
        let row = sekiban.row_of(&folded(7), &state).expect("row");
        assert_eq!(sekiban.put_row(&row).await.expect("writes"), RowWrite::Committed(Control::default()), "{bytes}");
        let row = sekiban.projection_row("Rooms", "1.0.0").await.expect("reads").expect("there");
        assert_eq!((row.events, row.last.as_str()), (7, "063921792785123456000144769402"));
        match &row.body {
            RowBody::Offloaded { key, provider } => {
                assert!(away && provider == "AwsS3" && key.starts_with("pre/fix/acme/Rooms/1.0.0/"), "{bytes} {key}");
            }
            _ => assert!(!away, "{bytes}"),
        }
        assert_eq!(sekiban.state_of(&row).await.expect("opens").expect("a state"), state, "{bytes}");
        // By another process, with nothing in memory; and without the bucket, loudly not.
        let other = open(with("")).await.sekiban().expect("sekiban");
        assert_eq!(other.state_of(&row).await.expect("opens").expect("a state"), state, "{bytes}");
        let without = bench.sekiban("&service=acme").await.state_of(&row).await;
        assert_eq!(matches!(without, Err(Error::Refused(Refused::Unsupported { .. }))), away, "{bytes}");
    }
    // As Sekiban left them: the envelope in a blob without the prefix, and a payload in a blob that an envelope names.
    let bench = Bench::new();
    let sekiban = open(bench.builder("").blobs(Blobs::new(bucket.clone(), "pre/fix"))).await.sekiban().expect("sekiban");
    let offloaded = golden("16");
    bench.load(&offloaded).await;
    let envelope =
        format!("{{\"isOffloaded\":false,\"inlineState\":{{\"payloadBase64\":\"{}\"}},\"offloadedState\":null}}", "A".repeat(360_000));
    let key = text(&items(&offloaded, "SekibanProjectionStates")[0], "offloadKey").to_owned();
    let row = sekiban.newest_row("ClassRoomList").await.expect("reads").expect("there");
    let missing = sekiban.state_of(&row).await;
    assert!(matches!(&missing, Err(Error::Corrupt(corrupt)) if corrupt.what.contains(&key)), "{missing:?}");
    bucket.put(&Path::from(key.as_str()), envelope.clone().into()).await.expect("put");
    assert_eq!(sekiban.envelope_of(&row).await.expect("opens"), envelope);
    assert_eq!(sekiban.state_of(&row).await.expect("opens").expect("a state").len(), 270_000);
    let pointed = golden("17");
    bench.load(&pointed).await;
    let row =
        sekiban.newest_row(text(&items(&pointed, "SekibanProjectionStates")[0], "projectorName")).await.expect("reads").expect("there");
    let Payload::Offloaded { key, .. } = payload(&sekiban.envelope_of(&row).await.expect("opens")).expect("an envelope") else { panic!() };
    // The hash in the name is of a blob that is not in the golden file: another one is not taken for it.
    bucket.put(&Path::from(key.as_str()), "{}".into()).await.expect("put");
    let damaged = sekiban.state_of(&row).await;
    assert!(matches!(&damaged, Err(Error::Corrupt(corrupt)) if corrupt.what.contains("hash")), "{damaged:?}");
    // One of the same form whose blob is here: a payload, packed.
    let mut packed = Vec::new();
    std::io::Read::read_to_end(&mut flate2::read::GzEncoder::new(&b"{\"n\":1}"[..], flate2::Compression::fast()), &mut packed)
        .expect("packs");
    let key = format!("P/{}.bin", "0".repeat(32));
    bucket.put(&Path::from(key.as_str()), packed.into()).await.expect("put");
    let envelope =
        serde_json::json!({"isOffloaded": true, "inlineState": null, "offloadedState": {"offloadKey": key, "storageProvider": "AwsS3"}});
    let row = ProjectionRow { body: RowBody::Inline(envelope.to_string().into()), ..row };
    assert_eq!(sekiban.state_of(&row).await.expect("opens").expect("a state"), "{\"n\":1}");
}

/// First the blob, then the row: whoever dies in between, a row names what is there, and what no row names is collected.
#[tokio::test]
async fn a_writer_that_dies_anywhere_leaves_no_row_without_its_blob_and_blobs_without_rows_are_collected() {
    for after in [false, true] {
        let bench = Bench::new();
        let bucket = Arc::new(InMemory::new());
        let between = Faults::new(bench.http(), 1);
        let env = Env::system();
        let sekiban = open(bench.builder("").blobs(Blobs::new(bucket.clone(), "p")).http_client(between.http_client())).await;
        let sekiban = sekiban.sekiban().expect("sekiban");
        let (first, second) = (noise(300_000), noise(310_000));
        sekiban.create_row(&sekiban.row_of(&folded(1), &first).expect("row")).await.expect("writes");
        assert_eq!(keys(&bucket).await.len(), 1);
        let gate = Gate::new();
        let rule = Rule::on("PutItem");
        between.script(if after { rule.pause_after(&gate) } else { rule.pause_before(&gate) });
        let row = sekiban.row_of(&folded(2), &second).expect("row");
        let writer = tokio::spawn({
            let sekiban = sekiban.clone();
            async move { sekiban.replace_row(&row, Control { revision: 1, ..Control::default() }).await }
        });
        gate.reached(1).await;
        writer.abort();
        drop(writer.await);
        between.calm();
        // The blob was put; the row was, or was not.
        assert_eq!(keys(&bucket).await.len(), 2);
        let reader = open(bench.builder("").blobs(Blobs::new(bucket.clone(), "p"))).await.sekiban().expect("sekiban");
        let row = reader.projection_row("Rooms", "1.0.0").await.expect("reads").expect("there");
        let state = reader.state_of(&row).await.expect("its blob is there").expect("a state");
        assert_eq!((state == second, row.control.revision), (after, if after { 2 } else { 1 }));
        let young = reader.collect_blobs(Duration::from_secs(3600)).await.expect("gc");
        assert_eq!((young.seen, young.deleted, young.young), (2, 0, 1), "a writer may be about to name it");
        // Nothing else in the bucket is touched.
        bucket.put(&Path::from("p/photos/cat.bin"), "cat".into()).await.expect("put");
        let collected = reader.collect_blobs(Duration::ZERO).await.expect("gc");
        assert_eq!((collected.seen, collected.deleted), (2, 1));
        assert_eq!(keys(&bucket).await.len(), 2);
        let fresh = open(bench.builder("").env(env).blobs(Blobs::new(bucket.clone(), "p"))).await.sekiban().expect("sekiban");
        assert_eq!(fresh.state_of(&row).await.expect("still there").expect("a state"), state);
        // Who comes after goes on from what is there, with a blob of a new name even for the same state.
        let again = fresh.row_of(&folded(3), &second).expect("row");
        let done = fresh.replace_row(&again, row.control).await.expect("writes");
        assert!(matches!(done, RowWrite::Committed(control) if control.revision == row.control.revision + 1), "{done:?}");
        assert_eq!(keys(&bucket).await.len(), 3);
        let stale = fresh.replace_row(&again, row.control).await.expect("asks");
        assert!(matches!(stale, RowWrite::Rejected(Some(_))), "{stale:?}");
        assert_eq!(fresh.collect_blobs(Duration::ZERO).await.expect("gc").deleted, 2, "the one before, and the one of the rejected write");
        let row = fresh.projection_row("Rooms", "1.0.0").await.expect("reads").expect("there");
        assert_eq!(fresh.state_of(&row).await.expect("there").expect("a state"), second);
    }
}

/// A reader that has the row when another takes its place and the blob is collected reads that one; where none did, it is told.
#[tokio::test]
async fn a_row_that_changes_while_it_is_read_is_read_as_it_is_now() {
    let bench = Bench::new();
    let bucket = Arc::new(InMemory::new());
    let between = Faults::new(bench.http(), 1);
    let with_blobs = || bench.builder("").blobs(Blobs::new(bucket.clone(), ""));
    let (reader, writer) = (open(with_blobs().http_client(between.http_client())).await, open(with_blobs()).await);
    let key = CellKey::new(CellKind::Projection, "seen", 1).expect("a key");
    let body = |label: &str| Bytes::from([b"{\"state\":\"inline\"}\n", label.as_bytes(), &noise(300_000)].concat());
    let first = writer.cells().save(&key, &body("1"), None).await.expect("saves").expect("the first");
    let gate = Gate::new();
    between.script(Rule::on("GetItem").nth(1).pause_after(&gate));
    let reading = tokio::spawn({
        let (cells, key) = (reader.cells(), key.clone());
        async move { cells.load(&key).await }
    });
    gate.reached(1).await;
    let second = writer.cells().save(&key, &body("2"), Some(first)).await.expect("saves").expect("over it");
    assert_eq!(writer.sekiban().expect("sekiban").collect_blobs(Duration::ZERO).await.expect("gc").deleted, 1);
    gate.open();
    let cell = reading.await.expect("ends").expect("reads").expect("there");
    assert_eq!((cell.body, cell.revision), (body("2"), second));
    for key in keys(&bucket).await {
        bucket.delete(&Path::from(key)).await.expect("deletes");
    }
    let fresh = open(with_blobs()).await.cells().load(&key).await;
    assert!(matches!(&fresh, Err(Error::Corrupt(corrupt)) if corrupt.what.contains("is missing")), "{fresh:?}");
}

#[tokio::test]
async fn rows_and_heartbeats_are_listed_and_deleted_for_one_service_alone() {
    let bench = Bench::new();
    let bucket = Arc::new(InMemory::new());
    let open_for = async |service: &str| {
        open(bench.builder(&format!("&service={service}")).blobs(Blobs::new(bucket.clone(), ""))).await.sekiban().expect("sekiban")
    };
    let (one, other) = (open_for("one").await, open_for("other").await);
    for sekiban in [&one, &other] {
        for (projector, version) in [("A", "1"), ("A", "2"), ("B", "1")] {
            let folded = Folded { projector: projector.into(), version: version.into(), ..folded(1) };
            sekiban.create_row(&sekiban.row_of(&folded, &noise(300_000)).expect("row")).await.expect("writes");
            let beat = ProjectionHeartbeat {
                projector: projector.into(),
                version: version.into(),
                cluster: "c".into(),
                sequence: 1,
                phase: "active".into(),
                recorded_at: "2026-01-01T00:00:00Z".into(),
                ..ProjectionHeartbeat::default()
            };
            assert!(sekiban.put_heartbeat(&beat, 0).await.expect("writes"));
            assert!(sekiban.heartbeats_of(projector).await.expect("reads").contains(&beat));
        }
    }
    let listed =
        async |sekiban: &Sekiban| (sekiban.scan_rows().await.expect("rows").len(), sekiban.scan_heartbeats().await.expect("beats").len());
    assert_eq!((listed(&one).await, listed(&other).await), ((3, 3), (3, 3)));
    assert_eq!(one.delete_rows_of("A").await.expect("deletes"), 2);
    assert_eq!((listed(&one).await, listed(&other).await), ((1, 3), (3, 3)));
    assert_eq!(one.scan_and_delete_rows().await.expect("deletes"), 1);
    assert_eq!((listed(&one).await, listed(&other).await), ((0, 3), (3, 3)));
    // Blobs that another service names stay.
    assert_eq!(one.collect_blobs(Duration::ZERO).await.expect("gc").deleted, 3);
    for row in other.scan_rows().await.expect("rows") {
        assert!(other.state_of(&row).await.expect("there").is_some());
    }
}

/// A bucket on the S3 of the endpoint.
async fn make_bucket(endpoint: &str, name: &str) {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    let host = endpoint.trim_start_matches("http://").trim_end_matches('/').to_owned();
    let mut stream = tokio::net::TcpStream::connect(&host).await.expect("the endpoint answers");
    let request = format!("PUT /{name} HTTP/1.1\r\nHost: {host}\r\nContent-Length: 0\r\nConnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).await.expect("asks");
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await.expect("an answer");
    assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
}

const CHILD: &str = "FENCEPOST_SEKIBAN_BUCKET";

/// By the settings alone, over HTTP: on the S3 of the endpoint, where one is given, and else on the one of this test. In a process of its own, whose
/// keys and region are in the shared files, under the profile that the settings name.
#[tokio::test]
async fn a_bucket_of_the_settings_is_written_read_and_collected_by_the_profile_of_the_settings() {
    let name = format!("test-{}", Env::system().new_id().simple());
    let here = crate::bucket::Bucket::serve().await;
    let given = std::env::var("FENCEPOST_TEST_ENDPOINT").ok();
    if let Some(endpoint) = &given {
        make_bucket(endpoint, &name).await;
    }
    let folder = std::env::temp_dir().join(&name);
    std::fs::create_dir(&folder).expect("a folder");
    let keys = "[default]\naws_access_key_id = WRONG\naws_secret_access_key = wrong\n[acme]\naws_access_key_id = PROFILES\naws_secret_access_key = secret\n";
    std::fs::write(folder.join("credentials"), keys).expect("writes");
    // An endpoint may keep regions apart: there it is the bucket's.
    let region = if given.is_some() { "us-east-1" } else { "eu-west-3" };
    std::fs::write(folder.join("config"), format!("[profile acme]\nregion = {region}\n")).expect("writes");
    let mut child = tokio::process::Command::new(std::env::current_exe().expect("this test"));
    child.args(["--exact", "snapshots::child_with_a_bucket", "--ignored", "--nocapture"]);
    for variable in ["AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN", "AWS_REGION", "AWS_DEFAULT_REGION", "AWS_PROFILE"] {
        child.env_remove(variable);
    }
    // The tables are on the engine in the child, whatever the endpoint: it is the bucket that is looked at.
    child.env_remove("FENCEPOST_TEST_ENDPOINT").env("AWS_EC2_METADATA_DISABLED", "true");
    child.env("AWS_CONFIG_FILE", folder.join("config")).env("AWS_SHARED_CREDENTIALS_FILE", folder.join("credentials"));
    child.env(CHILD, format!("{} {name}", given.as_ref().unwrap_or(&here.endpoint)));
    let ended = child.output().await.expect("runs");
    std::fs::remove_dir_all(&folder).expect("removes");
    let told = String::from_utf8_lossy(&ended.stdout).into_owned() + &String::from_utf8_lossy(&ended.stderr);
    assert!(ended.status.success() && told.contains("1 passed"), "{told}");
    if given.is_none() {
        assert!(matches!(&here.keys()[..], [one] if one.starts_with(&format!("{name}/pre/fix/default/Rooms/1.0.0/"))), "{:?}", here.keys());
        let signed = here.signed();
        let by_profile = |signed: &String| signed.contains("Credential=PROFILES/") && signed.contains("/eu-west-3/s3/aws4_request");
        assert!(signed.len() >= 5 && signed.iter().all(by_profile), "{signed:?}");
    }
}

/// Not for itself: it is started by the test above.
#[tokio::test]
#[ignore = "another test starts it with a bucket and a profile"]
async fn child_with_a_bucket() {
    let given = std::env::var(CHILD).expect("a bucket");
    let (endpoint, name) = given.split_once(' ').expect("an endpoint and a name");
    let settings = serde_json::json!({
        "AWS": { "Profile": "acme" },
        "S3BlobStorage": { "BucketName": name, "Prefix": "pre/fix", "ServiceUrl": endpoint, "ForcePathStyle": true },
    });
    let settings = fencepost::sekiban::Settings::from_json(&settings.to_string()).expect("settings");
    let bench = Bench::embedded();
    let opened = async || open(bench.builder("").settings(&settings).expect("settings")).await.sekiban().expect("sekiban");
    let (writer, state) = (opened().await, noise(400_000));
    for (events, expect) in [(1, None), (2, Some(Control { revision: 1, ..Control::default() }))] {
        let row = writer.row_of(&folded(events), &state).expect("row");
        let done = match expect {
            None => writer.create_row(&row).await,
            Some(control) => writer.replace_row(&row, control).await,
        };
        assert!(matches!(done, Ok(RowWrite::Committed(_))), "{done:?}");
    }
    let reader = opened().await;
    let row = reader.projection_row("Rooms", "1.0.0").await.expect("reads").expect("there");
    assert!(matches!(&row.body, RowBody::Offloaded { key, .. } if key.starts_with("pre/fix/default/Rooms/1.0.0/")), "{row:?}");
    let collected = reader.collect_blobs(Duration::ZERO).await.expect("gc");
    assert_eq!((collected.seen, collected.deleted), (2, 1));
    assert_eq!(reader.state_of(&row).await.expect("opens").expect("a state"), state);
}

/// A row names a blob with an envelope, which names a blob with the state: neither is collected. An envelope that cannot be read stops the collector, since
/// nobody knows what it names.
#[tokio::test]
async fn a_blob_that_only_an_offloaded_envelope_names_is_not_collected() {
    let bench = Bench::embedded();
    let bucket = Arc::new(InMemory::new());
    let away = fencepost::sekiban::Settings::from_json(r#"{"DynamoDb":{"OffloadThresholdBytes":1}}"#).expect("settings");
    let builder = bench.builder("").settings(&away).expect("settings").blobs(Blobs::new(bucket.clone(), ""));
    let sekiban = open(builder).await.sekiban().expect("sekiban");
    let key = format!("Rooms/{}.bin", "0".repeat(32));
    bucket.put(&Path::from(key.as_str()), "{}".into()).await.expect("put");
    let envelope =
        serde_json::json!({"isOffloaded": true, "inlineState": null, "offloadedState": {"offloadKey": key, "storageProvider": "AwsS3"}});
    let row = sekiban.row_of(&folded(1), b"").expect("row");
    sekiban.put_row(&ProjectionRow { body: RowBody::Inline(envelope.to_string().into()), ..row.clone() }).await.expect("writes");
    let stored = sekiban.projection_row("Rooms", "1.0.0").await.expect("reads").expect("there");
    assert!(matches!(&stored.body, RowBody::Offloaded { .. }) && keys(&bucket).await.len() == 2);
    assert_eq!(sekiban.collect_blobs(Duration::ZERO).await.expect("gc").deleted, 0);
    assert_eq!(sekiban.state_of(&stored).await.expect("opens").expect("a state"), "{}");
    for threshold in [1, 350_000] {
        let away = format!(r#"{{"DynamoDb":{{"OffloadThresholdBytes":{threshold}}}}}"#);
        let away = fencepost::sekiban::Settings::from_json(&away).expect("settings");
        let builder = bench.builder("").settings(&away).expect("settings").blobs(Blobs::new(bucket.clone(), ""));
        let sekiban = open(builder).await.sekiban().expect("sekiban");
        sekiban.put_row(&ProjectionRow { body: RowBody::Inline("damaged".into()), ..row.clone() }).await.expect("writes");
        let before = keys(&bucket).await;
        assert!(sekiban.collect_blobs(Duration::ZERO).await.is_err(), "{threshold}");
        assert_eq!(keys(&bucket).await, before, "{threshold}: nothing was deleted");
    }
}
