//! Projection states and heartbeats in Sekiban's rows: every form of them is read, and written as it does.

use crate::*;

/// The state of a golden row, as the call gave it.
fn row_of(stored: &Json) -> ProjectionRow {
    let number = |name: &str| stored[name]["N"].as_str().unwrap_or("0").parse().expect("number");
    let envelope = base64::engine::general_purpose::STANDARD.decode(text(stored, "stateData")).expect("base64");
    let body = match stored["isOffloaded"]["BOOL"].as_bool() {
        Some(true) => RowBody::Offloaded { key: text(stored, "offloadKey").into(), provider: text(stored, "offloadProvider").into() },
        _ => RowBody::Inline(envelope.into()),
    };
    ProjectionRow {
        projector: text(stored, "projectorName").into(),
        version: text(stored, "projectorVersion").into(),
        last: text(stored, "lastSortableUniqueId").into(),
        events: number("eventsProcessed"),
        body,
        sizes: (number("originalSizeBytes"), number("compressedSizeBytes")),
        safe_window_threshold: text(stored, "safeWindowThreshold").into(),
        created_at: text(stored, "createdAt").into(),
        build_source: text(stored, "buildSource").into(),
        build_host: Some(text(stored, "buildHost").to_owned()).filter(|host| !host.is_empty()),
        control: Control { generation: number("generation"), revision: number("revision"), tombstoned: number("lifecycle") == 1 },
    }
}

#[tokio::test]
async fn projection_states_of_every_form_are_read() {
    for name in ["10", "11a", "11b", "11c", "15", "16", "17", "18", "19"] {
        let golden = golden(name);
        let bench = Bench::new();
        let sekiban = bench.sekiban(if name == "19" { "&keys=plain" } else { "" }).await;
        bench.load(&golden).await;
        for stored in items(&golden, "SekibanProjectionStates") {
            let expected = row_of(&stored);
            let (projector, version) = (expected.projector.clone(), expected.version.clone());
            assert_eq!(sekiban.any_row(&projector, &version).await.expect("reads").as_ref(), Some(&expected), "{name}");
            let active = Some(&expected).filter(|row| !row.control.tombstoned);
            assert_eq!(sekiban.projection_row(&projector, &version).await.expect("reads").as_ref(), active, "{name}");
            assert_eq!(sekiban.newest_row(&projector).await.expect("reads").as_ref(), active, "{name}");
            let RowBody::Inline(envelope) = &expected.body else {
                assert!(name == "16" && matches!(&expected.body, RowBody::Offloaded { provider, .. } if provider == "AwsS3"));
                continue;
            };
            match (name, payload(envelope).expect("an envelope")) {
                ("17", Payload::Offloaded { key, provider }) => {
                    let blob = golden["blobKeys"][0].as_str().expect("a blob's key");
                    assert!(blob.ends_with(&format!("/{key}")) && provider == "AwsS3", "{blob} {key}");
                }
                ("19", Payload::None) => {}
                (_, Payload::Here(state)) => drop(serde_json::from_slice::<Json>(&state).expect("JSON inside")),
                (name, other) => panic!("{name}: {other:?}"),
            }
        }
    }
}

#[tokio::test]
async fn projection_states_are_written_as_sekiban_does_and_its_checkpoints_go_on() {
    let compare = async |bench: &Bench, golden: &Json, name: &str| {
        let clean = |mut item: Item| {
            item.remove("updatedAt");
            item.into_iter().collect::<BTreeMap<_, _>>()
        };
        let ours: Vec<_> = bench.dump("SekibanProjectionStates").await.into_iter().map(clean).collect();
        let theirs: Vec<_> = items(golden, "SekibanProjectionStates").iter().map(|json| clean(item(json))).collect();
        assert_eq!(ours, theirs, "{name}");
    };
    let (inline, created, tombstoned, offloaded) = (golden("10"), golden("11a"), golden("11b"), golden("16"));
    let row = row_of(&items(&created, "SekibanProjectionStates")[0]);
    let bench = Bench::new();
    let sekiban = bench.sekiban("").await;
    sekiban.put_row(&row).await.expect("writes");
    compare(&bench, &inline, "10").await;
    sekiban.put_row(&row_of(&items(&offloaded, "SekibanProjectionStates")[0])).await.expect("writes over it");
    compare(&bench, &offloaded, "16").await;

    let bench = Bench::new();
    let sekiban = bench.sekiban("").await;
    let at = |generation, revision, tombstoned| Control { generation, revision, tombstoned };
    assert_eq!(sekiban.create_row(&row).await.expect("creates"), RowWrite::Committed(at(0, 1, false)));
    compare(&bench, &created, "11a").await;
    assert_eq!(sekiban.create_row(&row).await.expect("asks"), RowWrite::Rejected(Some(at(0, 1, false))));
    assert_eq!(sekiban.put_row(&row).await.expect("asks"), RowWrite::Rejected(Some(at(0, 1, false))), "held by compare-and-set");
    let given_up = sekiban.invalidate_row(&row.projector, &row.version, at(0, 1, false)).await.expect("gives up");
    assert_eq!(given_up, RowWrite::Committed(at(1, 2, true)));
    compare(&bench, &tombstoned, "11b").await;
    assert_eq!(sekiban.put_row(&row).await.expect("asks"), RowWrite::Rejected(Some(at(1, 2, true))), "a tombstone is not erased");
    assert_eq!(sekiban.replace_row(&row, at(0, 1, false)).await.expect("asks"), RowWrite::Rejected(Some(at(1, 2, true))));
    // Where Sekiban's own compare-and-set is refused by the service, ours goes on.
    assert_eq!(sekiban.replace_row(&row, at(1, 2, true)).await.expect("rebuilds"), RowWrite::Committed(at(1, 3, false)));
    assert_eq!(sekiban.replace_row(&row, at(1, 3, false)).await.expect("advances"), RowWrite::Committed(at(1, 4, false)));
    assert!(sekiban.delete_row(&row.projector, &row.version).await.expect("deletes"));
    assert!(!sekiban.delete_row(&row.projector, &row.version).await.expect("asks"));
    // A row of the first releases: missing is 0.
    let bench = Bench::new();
    let sekiban = bench.sekiban("&keys=plain").await;
    bench.load(&golden("19")).await;
    let old = sekiban.any_row("ClassRoomList", "1.0.0").await.expect("reads").expect("there");
    assert_eq!(sekiban.replace_row(&old, Control::default()).await.expect("advances"), RowWrite::Committed(at(0, 1, false)));
    let large = ProjectionRow { body: RowBody::Inline(vec![b'x'; 308_000].into()), ..row };
    let refused = sekiban.put_row(&large).await;
    assert!(matches!(refused, Err(Error::Refused(Refused::TooLong { .. }))), "the item is measured, not the envelope: {refused:?}");
}

#[tokio::test]
async fn heartbeats_are_written_as_sekiban_does() {
    let golden = golden("12");
    let bench = Bench::new();
    let sekiban = bench.sekiban("").await;
    let maybe = |stored: &Json, name: &str| Some(text(stored, name).to_owned()).filter(|text| !text.is_empty());
    for stored in items(&golden, "SekibanProjectionStates") {
        let beat = ProjectionHeartbeat {
            projector: text(&stored, "projectorName").into(),
            version: text(&stored, "projectorVersion").into(),
            cluster: text(&stored, "clusterId").into(),
            activation: text(&stored, "activationId").into(),
            sequence: stored["sequence"]["N"].as_str().expect("n").parse().expect("n"),
            applied: stored["appliedEventCount"]["N"].as_str().expect("n").parse().expect("n"),
            last_applied: maybe(&stored, "lastAppliedSortableUniqueId"),
            last_traversed: maybe(&stored, "lastTraversedSortableUniqueId"),
            recorded_at: text(&stored, "recordedAtUtc").into(),
            phase: text(&stored, "phase").into(),
            lease_expires_at: maybe(&stored, "leaseExpiresAtUtc"),
            fault: maybe(&stored, "faultMessage"),
        };
        if beat.sequence == 2 {
            let first = ProjectionHeartbeat { sequence: 1, activation: "act-1".into(), ..beat.clone() };
            assert!(sekiban.put_heartbeat(&first, 0).await.expect("writes"));
            assert!(sekiban.put_heartbeat(&beat, 1).await.expect("writes"));
            assert!(!sekiban.put_heartbeat(&beat, 1).await.expect("asks"), "a stale one");
        } else {
            assert!(sekiban.put_heartbeat(&beat, 0).await.expect("writes"));
        }
    }
    assert_eq!(
        set(bench.dump("SekibanProjectionStates").await.into_iter()),
        set(items(&golden, "SekibanProjectionStates").iter().map(item))
    );
    assert!(sekiban.newest_row("ClassRoomList").await.expect("reads").is_none(), "a heartbeat is no state");
}

/// A row whose write is not answered at all: it is read, and told as it is there; where it is not there (yet), as in doubt.
#[tokio::test]
async fn a_row_that_is_not_answered_is_read_again_or_in_doubt() {
    let bench = Bench::new();
    let between = Faults::new(bench.http(), 1);
    let builder = bench.builder("").timeouts(Timeouts { attempts: 1, ..PATIENT }).http_client(between.http_client());
    let sekiban = open(builder).await.sekiban().expect("sekiban");
    let row = row_of(&items(&golden("11a"), "SekibanProjectionStates")[0]);
    let at = |generation, revision, tombstoned| Control { generation, revision, tombstoned };
    let beat = ProjectionHeartbeat { projector: "P".into(), version: "1".into(), sequence: 1, ..Default::default() };
    let doubted = |error: &Error| matches!(error, Error::InDoubt(_));
    // Never delivered.
    for call in ["PutItem", "UpdateItem", "DeleteItem"] {
        between.script(Rule::on(call).nth(1).lose_request());
    }
    assert!(sekiban.create_row(&row).await.is_err_and(|error| doubted(&error)));
    sekiban.create_row(&row).await.expect("creates");
    assert!(sekiban.invalidate_row(&row.projector, &row.version, at(0, 1, false)).await.is_err_and(|error| doubted(&error)));
    assert!(sekiban.delete_row(&row.projector, &row.version).await.is_err_and(|error| doubted(&error)));
    between.calm();
    between.script(Rule::on("PutItem").nth(1).lose_request());
    assert!(sekiban.put_heartbeat(&beat, 0).await.is_err_and(|error| doubted(&error)));
    between.calm();
    // Delivered.
    for call in ["PutItem", "UpdateItem", "DeleteItem"] {
        between.script(Rule::on(call).lose_response());
    }
    assert_eq!(sekiban.replace_row(&row, at(0, 1, false)).await.expect("it is there"), RowWrite::Committed(at(0, 2, false)));
    let given_up = sekiban.invalidate_row(&row.projector, &row.version, at(0, 2, false)).await.expect("it is so");
    assert_eq!(given_up, RowWrite::Committed(at(1, 3, true)));
    assert!(sekiban.put_heartbeat(&beat, 0).await.expect("it is there"));
    assert!(sekiban.delete_row(&row.projector, &row.version).await.expect("it is gone"));
}
