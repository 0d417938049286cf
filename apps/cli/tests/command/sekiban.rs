//! Sekiban's tables by its own settings: `settings=FILE` in the URL, and the environment over it.

use std::io::{Read, Write};
use std::net::TcpListener;
use std::process::Stdio;
use std::thread::JoinHandle;

use serde_json::json;

use crate::{Ran, fencepost, run};

/// Takes one request of DynamoDB's and answers that nothing is there; what came.
fn listen() -> (String, JoinHandle<String>) {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = format!("http://127.0.0.1:{}", listener.local_addr().expect("an address").port());
    let served = std::thread::spawn(move || {
        let (mut socket, _) = listener.accept().expect("a request");
        let (mut came, mut part) = (Vec::new(), [0; 8192]);
        while !came.ends_with(b"}") {
            let read = socket.read(&mut part).expect("reads");
            came.extend_from_slice(&part[..read]);
        }
        let head = "HTTP/1.1 200 OK\r\nContent-Type: application/x-amz-json-1.0\r\nContent-Length: 2\r\nConnection: close\r\n\r\n{}";
        socket.write_all(head.as_bytes()).expect("answers");
        String::from_utf8_lossy(&came).into_owned()
    });
    (address, served)
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
