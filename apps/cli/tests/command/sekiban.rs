//! Sekiban's tables by its own settings: `settings=FILE` in the URL, and the environment over it.

use std::io::{Read, Write};
use std::net::TcpListener;
use std::process::Stdio;
use std::thread::JoinHandle;

use serde_json::json;

use crate::{Ran, fencepost, run};

#[path = "../../../../crates/fencepost/tests/sekiban/bucket.rs"]
#[allow(dead_code, reason = "who signed is asked elsewhere")]
mod bucket;

/// Takes two requests of DynamoDB's and answers that nothing is there; what came first.
fn listen() -> (String, JoinHandle<String>) {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = format!("http://127.0.0.1:{}", listener.local_addr().expect("an address").port());
    let take = move || {
        let (mut socket, _) = listener.accept().expect("a request");
        let (mut came, mut part) = (Vec::new(), [0; 8192]);
        while !came.ends_with(b"}") {
            let read = socket.read(&mut part).expect("reads");
            came.extend_from_slice(&part[..read]);
        }
        let head = "HTTP/1.1 200 OK\r\nContent-Type: application/x-amz-json-1.0\r\nContent-Length: 2\r\nConnection: close\r\n\r\n{}";
        socket.write_all(head.as_bytes()).expect("answers");
        String::from_utf8_lossy(&came).into_owned()
    };
    // The event, and behind it the list of large commits, of which it could be one.
    (
        address,
        std::thread::spawn(move || {
            let first = take();
            take();
            first
        }),
    )
}

/// Region, profile, table and endpoint of the file, and a variable over it, as they come to the service.
#[test]
fn a_file_of_settings_says_where_and_as_whom_and_the_environment_goes_over_it() {
    let folder = tempfile::tempdir().expect("folder");
    let file = |name: &str, text: &str| {
        let path = folder.path().join(name);
        std::fs::write(&path, text).expect("writes");
        path.display().to_string()
    };
    let (address, served) = listen();
    let settings = json!({
        "Logging": { "LogLevel": "Debug" },
        "AWS": { "Region": "us-east-2", "Profile": "sekiban-dev" },
        "DynamoDb": { "ServiceURL": address, "EventsTableName": "file-Events", "AutoCreateTables": false },
    });
    let settings = file("appsettings.json", &settings.to_string());
    let keys = file(
        "credentials",
        "[default]\naws_access_key_id = WRONG\naws_secret_access_key = x\n[sekiban-dev]\naws_access_key_id = RIGHT\naws_secret_access_key = x\n",
    );
    let mut command = fencepost();
    for name in ["AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_REGION"] {
        command.env_remove(name);
    }
    let url = format!("{address}/Sekiban?layout=sekiban&settings={settings}");
    let output = command
        .env("AWS_SHARED_CREDENTIALS_FILE", keys)
        .env("AWS_CONFIG_FILE", file("config", ""))
        .env("DYNAMODB__EVENTSTABLENAME", "env-Events")
        .args(["--store", &url, "event", "0198894f-9a63-7c21-8f0e-3b5d2a91c7e4"])
        .stdin(Stdio::null())
        .output()
        .expect("runs");
    Ran(output).fails(4);
    let came = served.join().expect("served");
    assert!(came.contains("Credential=RIGHT/") && came.contains("/us-east-2/dynamodb/"), "{came}");
    assert!(came.contains("\"TableName\":\"env-Events\"") && !came.contains("file-Events"), "{came}");
}

#[test]
fn settings_that_cannot_be_meant_are_refused_and_a_bucket_is_in_rights_and_definitions() {
    let folder = tempfile::tempdir().expect("folder");
    let store = |settings: &str| {
        let path = folder.path().join("appsettings.json");
        std::fs::write(&path, settings).expect("writes");
        format!("file:{}?layout=sekiban&settings={}", folder.path().join("s.db").display(), path.display())
    };
    let secret = run(&["--store", &store(r#"{"AWS":{"AccessKey":"AKIA"}}"#), "count"]).fails(2).error();
    assert!(secret["message"].as_str().is_some_and(|why| why.contains("default chain")), "{secret}");
    run(&["--store", &store(r#"{"DynamoDb":{"NoSuch":1}}"#), "count"]).fails(2);
    let url = store(r#"{"DynamoDb":{"WriteShardCount":4},"S3BlobStorage":{"BucketName":"my-snapshots","Prefix":"pre/fix"}}"#);
    assert_eq!(run(&["--store", &url, "stats"]).ok().lines()[0]["settings"]["shards"], "4");
    let policy = run(&["--store", &url, "init", "--print", "iam"]).ok().stdout();
    for needed in ["arn:aws:s3:::my-snapshots/pre/fix/*", "\"arn:aws:s3:::my-snapshots\"", "s3:ListBucket", "dynamodb:ConditionCheckItem"] {
        assert!(policy.contains(needed), "{needed}: {policy}");
    }
    let terraform = run(&["--store", &url, "init", "--print", "terraform"]).ok().stdout();
    assert!(terraform.contains("resource \"aws_s3_bucket\"") && terraform.contains("bucket = \"my-snapshots\""), "{terraform}");
    assert!(run(&["--store", &url, "init", "--print", "cloudformation"]).ok().stdout().contains("AWS::S3::Bucket"));
    // No bucket is named: nothing to collect in.
    run(&["--store", &store("{}"), "projections", "gc"]).fails(2);
    run(&["--store", "memory:", "projections", "gc"]).fails(2);
}

/// A container has no file, and the same settings in its environment.
#[test]
fn settings_may_come_from_the_environment_alone() {
    let folder = tempfile::tempdir().expect("folder");
    let url = format!("file:{}?layout=sekiban&settings=env", folder.path().join("s.db").display());
    let output = fencepost().env("DynamoDb__WriteShardCount", "4").args(["--store", &url, "stats"]).output().expect("runs");
    assert_eq!(Ran(output).ok().lines()[0]["settings"]["shards"], "4");
}

/// A commit whose writer died before its rows: found by `verify`, mended by `--repair`, and told as mended.
#[test]
fn what_a_repair_has_mended_is_told_as_mended() {
    use fencepost::testing::{Faults, Rule};
    use fencepost::{Append, Engine, Event, Store, Timeouts};
    let folder = tempfile::tempdir().expect("folder");
    let path = folder.path().join("s.db").display().to_string();
    let url = format!("file:{path}?layout=sekiban&table=Sekiban&safe_window=0");
    tokio::runtime::Runtime::new().expect("a runtime").block_on(async {
        let between = Faults::new(Engine::file(&path).expect("an engine").http_client(), 1);
        let timeouts = Timeouts { attempts: 1, ..Timeouts::default() };
        let builder = Store::builder(&url).expect("url").create(true).timeouts(timeouts).http_client(between.http_client());
        let log = builder.open().await.expect("opens").log().expect("log");
        // The first puts what is staged.
        between.script(Rule::on("BatchWriteItem").nth(2).times(100).throttle());
        let event = |n: u32| Event::new("T", n.to_string()).and_then(|event| event.tag("a:1")).expect("event");
        log.append(Append::new((0..70).map(event))).await.expect("it is recorded");
    });
    let run = |args: &[&str]| run(&[&["--store", url.as_str()], args].concat());
    let found = run(&["verify"]).fails(5);
    assert!(found.stderr().contains("nothing was changed"), "{}", found.stderr());
    let mended = run(&["verify", "--repair"]).ok();
    assert!(mended.stdout().contains("it was finished"), "{}", mended.stdout());
    assert_eq!(run(&["verify"]).ok().lines()[0]["findings"], json!([]));
    assert_eq!(run(&["count"]).ok().lines()[0]["events"], 70);
}

/// Blobs whose row was replaced, in the bucket of the settings: the command removes them once they are old enough, and none that a row names. And objects of
/// projections, in a folder, on the same store.
#[test]
fn what_no_row_names_is_collected_once_it_is_old_enough() {
    let folder = tempfile::tempdir().expect("folder");
    let path = folder.path().join("s.db").display().to_string();
    let runtime = tokio::runtime::Runtime::new().expect("a runtime");
    let bucket = runtime.block_on(bucket::Bucket::serve());
    let storage = json!({ "BucketName": "snaps", "Region": "us-east-1", "ServiceUrl": bucket.endpoint, "ForcePathStyle": true });
    let settings = json!({ "DynamoDb": { "OffloadThresholdBytes": 1000 }, "S3BlobStorage": storage }).to_string();
    let file = folder.path().join("appsettings.json");
    std::fs::write(&file, &settings).expect("writes");
    // In a process of its own, which has keys.
    let child = std::process::Command::new(std::env::current_exe().expect("this test"))
        .args(["--exact", "sekiban::child_that_replaces_a_state", "--ignored"])
        .envs([("CHILD_STORE", path.as_str()), ("CHILD_SETTINGS", &settings), ("AWS_ACCESS_KEY_ID", "x"), ("AWS_SECRET_ACCESS_KEY", "x")])
        .output()
        .expect("runs");
    assert!(child.status.success(), "{}", String::from_utf8_lossy(&child.stdout));
    let keys = bucket.keys();
    assert_eq!(keys.len(), 2);
    let url = format!("file:{path}?layout=sekiban&table=Sekiban&settings={}", file.display());
    let gc = |more: &[&str]| run(&[&["--store", url.as_str(), "projections", "gc"], more].concat()).ok().lines()[0].clone();
    let young = gc(&["--older-than", "100000h"]);
    assert_eq!((&young["seen"], &young["young"], &young["deleted"]), (&json!(2), &json!(1), &json!(0)), "{young}");
    assert_eq!(bucket.keys().len(), 2);
    let swept = gc(&[]);
    assert_eq!((&swept["deleted"], &swept["young"]), (&json!(1), &json!(0)), "{swept}");
    assert_eq!(bucket.keys().len(), 1, "the row's own blob stays");
    assert_eq!(gc(&["--older-than", "0s"])["deleted"], 0);
    assert!(keys.contains(&bucket.keys()[0]));

    // What a projection of ours left there, before its state went to Sekiban's rows.
    let orphan = folder.path().join("objects/default/count/1");
    std::fs::create_dir_all(&orphan).expect("made");
    std::fs::write(orphan.join("7-abc.zst"), "left behind").expect("written");
    let objects = format!("file://{}", folder.path().join("objects").display());
    assert_eq!(gc(&["--objects", &objects])["young"], 1);
    assert_eq!(gc(&["--objects", &objects, "--older-than", "0s"])["deleted"], 1);
    assert!(!orphan.join("7-abc.zst").exists());
}

#[test]
#[ignore = "another test starts it with keys and a bucket"]
fn child_that_replaces_a_state() {
    use fencepost::sekiban::{Folded, Settings};
    use fencepost::{Env, Store};
    let given = |name: &str| std::env::var(name).expect(name);
    let settings = Settings::from_json(&given("CHILD_SETTINGS")).expect("settings");
    let url = format!("file:{}?layout=sekiban&table=Sekiban", given("CHILD_STORE"));
    tokio::runtime::Runtime::new().expect("a runtime").block_on(async {
        let builder = Store::builder(&url).expect("url").settings(&settings).expect("settings");
        let store = builder.open().await.expect("opens");
        let sekiban = store.sekiban().expect("sekiban");
        let event = fencepost::Event::new("T", "1").expect("event");
        store.log().expect("log").append(fencepost::Append::new([event])).await.expect("appends");
        let count = |count: &mut u64, _: &fencepost::Recorded| {
            *count += 1;
            Ok::<_, String>(())
        };
        let projections = store.projections().expect("projections");
        let counted = async {
            while projections.get::<u64>("count").await.expect("reads").is_none() {
                tokio::task::yield_now().await;
            }
        };
        let count = fencepost::Projection::new("count", 1, || 0u64, count).expect("a name");
        let _ = projections.run_until(&count, counted).await.expect("runs");
        for seed in [1, 2] {
            let env = Env::seeded(seed);
            let state: Vec<u8> = (0..500).flat_map(|_| env.below(u64::MAX).to_be_bytes()).collect();
            let folded = Folded { projector: "P".into(), version: "1".into(), ..Default::default() };
            sekiban.put_row(&sekiban.row_of(&folded, &state).expect("row")).await.expect("writes");
        }
    });
}

/// `ttl=on` is in every printed definition, is set where tables are made, and is missed where it is not.
#[test]
fn expiry_is_printed_made_and_looked_at() {
    let folder = tempfile::tempdir().expect("folder");
    let url = format!("file:{}?layout=sekiban", folder.path().join("s.db").display());
    let on = format!("{url}&ttl=on");
    for (form, says) in
        [("terraform", "attribute_name = \"ttl\""), ("cloudformation", "AttributeName: \"ttl\""), ("aws-cli", "AttributeName=ttl")]
    {
        let printed = |url: &str| run(&["--store", url, "init", "--print", form]).ok().stdout();
        assert_eq!((printed(&on).matches(says).count(), printed(&url).matches(says).count()), (2, 0), "{form}: {}", printed(&on));
    }
    let policy = run(&["--store", &on, "init", "--print", "iam"]).ok().stdout();
    assert!(policy.contains("dynamodb:UpdateTimeToLive") && policy.contains("dynamodb:DescribeTimeToLive"), "{policy}");
    run(&["--store", &url, "init"]).ok();
    let missing = run(&["--store", &on, "doctor"]);
    assert!(missing.exit() != 0 && missing.stdout().contains("TTL"), "{} {}", missing.stdout(), missing.stderr());
    run(&["--store", &on, "init"]).ok();
    let well = run(&["--store", &on, "doctor"]).ok();
    assert!(!well.stdout().contains("TTL"), "{}", well.stdout());
    run(&["--store", &format!("{url}&ttl=yes"), "count"]).fails(2);
}
