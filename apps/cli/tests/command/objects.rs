//! Object storage for states of projections: opened by URL, with the keys that DynamoDB would have.

use std::io::{BufRead, BufReader, Write};
use std::net::TcpListener;

use super::*;

/// A bucket that is empty; the heads of the requests that it answers.
fn bucket(requests: usize) -> (String, std::thread::JoinHandle<Vec<String>>) {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let endpoint = format!("http://{}", listener.local_addr().expect("an address"));
    let served = std::thread::spawn(move || {
        let mut heads = Vec::new();
        for _ in 0..requests {
            let (mut stream, _) = listener.accept().expect("a request");
            let mut lines = BufReader::new(stream.try_clone().expect("a stream")).lines();
            let head: Vec<String> = lines.by_ref().map(|line| line.expect("a line")).take_while(|line| !line.is_empty()).collect();
            heads.push(head.join("\n"));
            let body = r#"<?xml version="1.0"?><ListBucketResult><Name>b</Name><IsTruncated>false</IsTruncated></ListBucketResult>"#;
            write!(stream, "HTTP/1.1 200 OK\r\nContent-Length: {}\r\nConnection: close\r\n\r\n{body}", body.len()).expect("answers");
        }
        heads
    });
    (endpoint, served)
}

#[test]
fn keys_of_a_profile_open_a_bucket_of_objects() {
    let store = FileStore::with_events(1);
    let (endpoint, served) = bucket(1);
    let folder = tempfile::tempdir().expect("a folder");
    let credentials = folder.path().join("credentials");
    std::fs::write(&credentials, "[states]\naws_access_key_id = AKIAFROMTHEPROFILE\naws_secret_access_key = secret\n").expect("writes");
    let mut command = fencepost();
    command.env_remove("AWS_ACCESS_KEY_ID").env_remove("AWS_SECRET_ACCESS_KEY");
    command.env("AWS_SHARED_CREDENTIALS_FILE", &credentials).env("AWS_PROFILE", "states");
    command.env("AWS_ENDPOINT", &endpoint).env("AWS_ALLOW_HTTP", "true");
    let ran = command.args(["--store", &store.url, "projections", "gc", "--objects", "s3://states/here"]).output().expect("ends");
    Ran(ran).ok();
    let heads = served.join().expect("served");
    assert!(heads[0].contains("AKIAFROMTHEPROFILE"), "{}", heads[0]);
}
