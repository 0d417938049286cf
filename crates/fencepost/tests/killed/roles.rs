//! What each process does, until it is killed. All of them meet in a folder: the engine's file and port, what writers know to be recorded,
//! what the consumer was handed.

use std::io::{Read, Write};
use std::path::Path;
use std::time::Duration;

use aws_config::{BehaviorVersion, Region, SdkConfig};
use aws_credential_types::Credentials;
use aws_credential_types::provider::SharedCredentialsProvider;
use fencepost::{Append, Builder, CommitId, Engine, Env, Error, Event, Handed, IndexOptions, Projection, Recorded, Store, Timeouts};

use crate::audit::{self, Folded, Label};

const LEASE: Duration = Duration::from_millis(150);
pub(crate) const WRITERS: [u64; 2] = [0, 1];

pub(crate) fn play(role: &str, folder: &Path, feed: &str) {
    // Whoever started it is gone: so is it.
    std::thread::spawn(|| {
        let _ = std::io::stdin().read_to_end(&mut Vec::new());
        std::process::exit(9)
    });
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().expect("a runtime");
    runtime.block_on(async {
        match role.split_once('-').unwrap_or((role, "0")) {
            ("engine", _) => engine(folder).await,
            ("writer", number) => writer(folder, feed, number.parse().expect("a number")).await,
            ("indexer", _) => indexer(folder, feed).await,
            ("consumer", _) => consumer(folder, feed).await,
            ("projection", _) => projection(folder, feed).await,
            other => panic!("no role {other:?}"),
        }
    });
}

/// On a file, so that it can be killed too, and always on the same port.
async fn engine(folder: &Path) {
    let file = folder.join("port");
    let port = std::fs::read_to_string(&file).map_or(0, |port| port.parse().expect("a port"));
    let engine = Engine::file(folder.join("engine.db")).expect("opens");
    let listener = tokio::net::TcpListener::bind(("127.0.0.1", port)).await.expect("listens");
    let port = listener.local_addr().expect("an address").port();
    std::fs::write(folder.join("port.new"), port.to_string()).expect("a file");
    std::fs::rename(folder.join("port.new"), file).expect("a file");
    engine.serve(listener, std::future::pending()).await.expect("serves");
}

/// A store as each process opens its own.
pub(crate) fn store(folder: &Path, feed: &str) -> Builder {
    let port = std::fs::read_to_string(folder.join("port")).expect("the engine runs");
    let url = format!("http://127.0.0.1:{port}");
    let credentials = SharedCredentialsProvider::new(Credentials::from_keys("any", "any", None));
    let config = SdkConfig::builder()
        .behavior_version(BehaviorVersion::latest())
        .region(Region::new("local"))
        .credentials_provider(credentials)
        .endpoint_url(&url)
        .http_client(aws_smithy_http_client::Builder::new().build_http());
    // A killed engine's connections break at once; what hangs for longer is stuck.
    let timeouts = Timeouts { attempt: Duration::from_secs(5), ..Timeouts::default() };
    Store::builder(&format!("{url}/killed?feed={feed}")).expect("a good URL").sdk_config(config.build()).timeouts(timeouts)
}

/// Opens, while the engine may be down for a moment.
async fn opened(folder: &Path, feed: &str) -> Store {
    loop {
        match store(folder, feed).open().await {
            Ok(store) => return store,
            Err(error) => again(&error).await,
        }
    }
}

/// The engine may have died under a call: that passes. Anything else must not be.
async fn again(error: &Error) {
    assert!(error.is_retryable(), "{error}");
    Env::system().sleep(Duration::from_millis(20)).await;
}

pub(crate) fn tags() -> Vec<String> {
    let shared = (0..6).map(|n| format!("s:{n}"));
    shared.chain((0..4).map(|n| format!("t:{n}"))).collect()
}

/// A writer's nth commit: always the same, so that a repeat is one.
pub(crate) fn commit(writer: u64, n: u64) -> (CommitId, Vec<Event>) {
    let chance = Env::seeded(writer * 1_000_003 + n);
    // At times large enough for chunks.
    let (events, filler) = if n % 40 == 39 { (60, 600) } else { (1 + chance.below(3), 20) };
    let event = |index| {
        let filler: String = (0..filler).map(|_| char::from(b'a' + u8::try_from(chance.below(26)).expect("a letter"))).collect();
        let body = format!("{writer}.{n}.{index} {filler}");
        let event = Event::new("Noted", body).and_then(|event| event.tag(format!("s:{}", chance.below(6)))).expect("an event");
        if chance.below(2) == 0 { event.tag(format!("t:{}", chance.below(4))).expect("a tag") } else { event }
    };
    (CommitId::of_key(format!("{writer}.{n}")), (0..events).map(event).collect())
}

/// Writer, commit and index: the first word of a body.
pub(crate) fn label(event: &Recorded) -> Label {
    let body = std::str::from_utf8(&event.data).expect("text");
    audit::parse(body.split(' ').next().expect("a word"))
}

/// How many commits a writer knows to be recorded.
pub(crate) fn acknowledged(folder: &Path, writer: u64) -> u64 {
    std::fs::read(folder.join(format!("acknowledged-{writer}"))).map_or(0, |dots| dots.len() as u64)
}

/// One commit after the other, each under its own id: what a life left in doubt, the next one repeats.
async fn writer(folder: &Path, feed: &str, writer: u64) {
    let log = opened(folder, feed).await.log().expect("a log");
    let mut acknowledge = open(&folder.join(format!("acknowledged-{writer}")));
    let (mut n, pauses) = (acknowledged(folder, writer), Env::system());
    loop {
        let (id, events) = commit(writer, n);
        match log.append(Append::new(events).commit(id)).await {
            Ok(committed) => {
                assert_eq!(committed.commit, id);
                acknowledge.write_all(b".").expect("a file");
                n += 1;
                if folder.join("finish").exists() {
                    return;
                }
                pauses.sleep(Duration::from_millis(pauses.below(10))).await;
            }
            Err(error) => again(&error).await,
        }
    }
}

/// One write, one call: it is there whole, or not at all.
fn open(path: &Path) -> std::fs::File {
    std::fs::OpenOptions::new().create(true).append(true).open(path).expect("a file")
}

async fn indexer(folder: &Path, feed: &str) {
    let index = opened(folder, feed).await.index().expect("an index");
    let options = IndexOptions::default().idle(Duration::from_millis(5), Duration::from_millis(60));
    loop {
        match index.run(&options, &|so_far| assert!(!so_far.trimmed && so_far.late == 0, "{so_far:?}")).await {
            Ok(ended) => panic!("it ended by itself: {ended:?}"),
            Err(error) => again(&error).await,
        }
    }
}

/// Notes every event in a file; each life begins with a line of its own.
async fn consumer(folder: &Path, feed: &str) {
    let store = opened(folder, feed).await;
    let every_tag = |event: &Recorded| event.tags.iter().map(|tag| tag.to_string()).collect();
    let consumer = store.consumer("noting").expect("a name").keys(every_tag);
    let consumer = consumer.lease(LEASE).save_every(10, Duration::from_millis(20)).concurrency(4).read_ahead(64);
    let handed = open(&folder.join("handed"));
    (&handed).write_all(format!("{}\n", audit::BEGINS).as_bytes()).expect("a file");
    let handler = async |event: Handed| {
        let (label, tags) = (label(&event), event.tags.iter().map(|tag| tag.as_str()).collect::<Vec<_>>().join(" "));
        // Slow enough that something is always read and not done when it dies.
        Env::system().sleep(Duration::from_micros(Env::system().below(8_000))).await;
        (&handed).write_all(format!("{} {tags}\n", audit::text(label)).as_bytes()).map_err(|error| error.to_string())
    };
    loop {
        match consumer.run(handler).await {
            Ok(ended) => panic!("it ended by itself: {ended:?}"),
            Err(error) => again(&error).await,
        }
    }
}

fn fold() -> Projection<Folded> {
    let apply = |state: &mut Folded, event: &Recorded| {
        event.tags.iter().for_each(|tag| audit::fold(state, tag.as_str(), label(event)));
        Ok::<_, String>(())
    };
    Projection::new("folded", 1, Folded::new, apply).expect("a name").lease(LEASE).save_every(10, Duration::from_millis(20))
}

async fn projection(folder: &Path, feed: &str) {
    let projections = opened(folder, feed).await.projections().expect("a feed");
    loop {
        match projections.run(&fold()).await {
            Ok(ended) => panic!("it ended by itself: {ended:?}"),
            Err(error) => again(&error).await,
        }
    }
}

/// The projection's state as it is stored.
pub(crate) async fn state(store: &Store) -> Option<Folded> {
    let stored = store.projections().expect("a feed").get_version::<Folded>("folded", 1).await;
    stored.expect("reads").map(|stored| stored.state)
}
