//! As much of S3 as a bucket of snapshots needs, over HTTP in this process: put, get, list, delete. It checks no signature, and tells who signed.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::{TcpListener, TcpStream};

#[derive(Default)]
struct Held {
    objects: BTreeMap<String, Vec<u8>>,
    signed: Vec<String>,
}

/// Ends with the test.
#[derive(Clone)]
pub(crate) struct Bucket {
    pub(crate) endpoint: String,
    held: Arc<Mutex<Held>>,
}

impl Bucket {
    pub(crate) async fn serve() -> Bucket {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let endpoint = format!("http://{}", listener.local_addr().expect("an address"));
        let bucket = Bucket { endpoint, held: Arc::default() };
        let here = bucket.clone();
        tokio::spawn(async move {
            while let Ok((socket, _)) = listener.accept().await {
                let here = here.clone();
                tokio::spawn(async move { here.talk(socket).await });
            }
        });
        bucket
    }

    /// What was put, by the path with the bucket's name.
    pub(crate) fn keys(&self) -> Vec<String> {
        self.held.lock().expect("a lock").objects.keys().cloned().collect()
    }
    /// `Credential=KEY/DAY/REGION/SERVICE/…` of every request.
    pub(crate) fn signed(&self) -> Vec<String> {
        self.held.lock().expect("a lock").signed.clone()
    }

    async fn talk(&self, socket: TcpStream) -> Option<()> {
        let mut socket = BufReader::new(socket);
        loop {
            let (mut line, mut length, mut signed) = (String::new(), 0, String::new());
            socket.read_line(&mut line).await.ok().filter(|read| *read > 0)?;
            let (method, target) = line.split_once(' ').map(|(method, rest)| (method.to_owned(), rest.split(' ').next()))?;
            let target = target?.to_owned();
            loop {
                let mut header = String::new();
                socket.read_line(&mut header).await.ok().filter(|read| *read > 0)?;
                let Some((name, value)) = header.trim_end().split_once(':') else { break };
                match name.to_ascii_lowercase().as_str() {
                    "content-length" => length = value.trim().parse().ok()?,
                    "authorization" => signed = value.trim().to_owned(),
                    _ => {}
                }
            }
            let mut body = vec![0; length];
            socket.read_exact(&mut body).await.ok()?;
            let (status, answer) = self.answer(&method, &target, signed, body);
            let head = format!(
                "HTTP/1.1 {status}\r\nETag: \"e\"\r\nLast-Modified: Mon, 16 Nov 2026 00:00:00 GMT\r\nContent-Length: {}\r\n\r\n",
                answer.len()
            );
            socket.write_all(head.as_bytes()).await.ok()?;
            socket.write_all(&answer).await.ok()?;
        }
    }

    fn answer(&self, method: &str, target: &str, signed: String, body: Vec<u8>) -> (&'static str, Vec<u8>) {
        let mut held = self.held.lock().expect("a lock");
        held.signed.push(signed);
        let (path, query) = target.split_once('?').unwrap_or((target, ""));
        let path = path.trim_start_matches('/').to_owned();
        match (method, query) {
            ("PUT", _) => {
                held.objects.insert(path, body);
                ("200 OK", Vec::new())
            }
            ("GET", "") => held.objects.get(&path).map_or(("404 Not Found", Vec::new()), |object| ("200 OK", object.clone())),
            ("GET", _) => {
                let object = |(key, object): (&String, &Vec<u8>)| {
                    let key = key.strip_prefix(&path)?.trim_start_matches('/');
                    let about = "<LastModified>2026-01-01T00:00:00.000Z</LastModified><ETag>e</ETag>";
                    Some(format!("<Contents><Key>{key}</Key><Size>{}</Size>{about}</Contents>", object.len()))
                };
                let objects: String = held.objects.iter().filter_map(object).collect();
                ("200 OK", format!("<ListBucketResult><IsTruncated>false</IsTruncated>{objects}</ListBucketResult>").into_bytes())
            }
            // Several at once.
            ("POST", _) => {
                let text = String::from_utf8_lossy(&body).into_owned();
                let keys: Vec<&str> = text.split("<Key>").skip(1).filter_map(|rest| rest.split("</Key>").next()).collect();
                for key in &keys {
                    held.objects.remove(&format!("{path}/{key}"));
                }
                let deleted: String = keys.iter().map(|key| format!("<Deleted><Key>{key}</Key></Deleted>")).collect();
                ("200 OK", format!("<DeleteResult>{deleted}</DeleteResult>").into_bytes())
            }
            _ => ("501 Not Implemented", Vec::new()),
        }
    }
}
