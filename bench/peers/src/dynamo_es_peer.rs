//! dynamo-es, by the repository that its framework calls.

use aws_sdk_dynamodb::types::{AttributeDefinition, BillingMode, KeySchemaElement, KeyType, ScalarAttributeType};
use cqrs_es::event_sink::EventSink;
use cqrs_es::persist::{PersistedEventRepository, PersistenceError, SerializedEvent};
use cqrs_es::{Aggregate, DomainEvent};
use dynamo_es::DynamoEventRepository;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::peer::{Peer, body};
use fencepost_contest::Fault;

use crate::Ground;

/// The repository asks for an aggregate, and for no more of it than its type; a replay, for its events too.
#[derive(Debug, Default, Serialize, Deserialize)]
struct Order;
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
struct Placed {
    n: u64,
    text: String,
}

impl DomainEvent for Placed {
    fn event_type(&self) -> String {
        "OrderPlaced".into()
    }
    fn event_version(&self) -> String {
        "1".into()
    }
}

impl Aggregate for Order {
    const TYPE: &'static str = "order";
    type Command = ();
    type Event = Placed;
    type Error = std::fmt::Error;
    type Services = ();
    async fn handle(&mut self, (): (), (): &(), _: &EventSink<Self>) -> Result<(), std::fmt::Error> {
        Ok(())
    }
    fn apply(&mut self, _: Placed) {}
}

#[derive(Default)]
pub struct DynamoEs {
    repository: Option<DynamoEventRepository>,
    id: String,
    snapshots: usize,
}

impl Peer for DynamoEs {
    fn table() -> &'static str {
        "dynamo-es"
    }

    async fn prepare(ground: &Ground, table: &str) -> Result<(), Fault> {
        let client = ground.client();
        let (events, snapshots) = (format!("{table}-Events"), format!("{table}-Snapshots"));
        let key = |name: &str, kind| KeySchemaElement::builder().attribute_name(name).key_type(kind).build();
        let attribute = |name: &str, kind| AttributeDefinition::builder().attribute_name(name).attribute_type(kind).build();
        let hash = || key("AggregateTypeAndId", KeyType::Hash);
        let text = || attribute("AggregateTypeAndId", ScalarAttributeType::S);
        let create = |name: &str| client.create_table().table_name(name).billing_mode(BillingMode::PayPerRequest);
        let range = key("AggregateIdSequence", KeyType::Range)?;
        let number = attribute("AggregateIdSequence", ScalarAttributeType::N)?;
        let made = create(&events).key_schema(hash()?).key_schema(range).attribute_definitions(text()?).attribute_definitions(number);
        made.send().await?;
        create(&snapshots).key_schema(hash()?).attribute_definitions(text()?).send().await?;
        Ok(())
    }

    async fn open(&mut self, ground: &Ground, table: &str, stream: &str) -> Result<(), Fault> {
        let (events, snapshots) = (format!("{table}-Events"), format!("{table}-Snapshots"));
        self.repository = Some(DynamoEventRepository::new(ground.client()).with_tables(&events, &snapshots));
        (self.id, self.snapshots) = (stream.to_owned(), 0);
        Ok(())
    }

    async fn append(&mut self, version: u64, snapshot: Option<Value>) -> Result<bool, Fault> {
        let sequence = usize::try_from(version)? + 1;
        let metadata = json!({});
        let event =
            SerializedEvent::new(self.id.clone(), sequence, "order".into(), "OrderPlaced".into(), "1".into(), body(version), metadata);
        let update = snapshot.map(|state| {
            self.snapshots += 1;
            (self.id.clone(), state, self.snapshots)
        });
        match self.repository.as_ref().ok_or("not opened")?.persist::<Order>(&[event], update).await {
            Ok(()) => Ok(true),
            Err(PersistenceError::OptimisticLockError) => Ok(false),
            Err(error) => Err(error.to_string().into()),
        }
    }

    async fn load(&mut self, version: u64) -> Result<u64, Fault> {
        let repository = self.repository.as_ref().ok_or("not opened")?;
        let events = match version {
            0 => repository.get_events::<Order>(&self.id).await,
            _ => repository.get_last_events::<Order>(&self.id, usize::try_from(version)?).await,
        };
        Ok(events.map_err(|error| error.to_string())?.len() as u64)
    }

    // What its framework rebuilds an aggregate by asks for one page, and passes over that there are more (0.5.0, `query_events`). It has a call that
    // reads all of them, for replays into views; the pages are of 200 events, unless one says otherwise.
    async fn load_paged(&mut self) -> Result<Option<(u64, &'static str)>, Fault> {
        let repository = self.repository.as_ref().ok_or("not opened")?;
        let mut stream = repository.stream_events::<Order>(&self.id).await.map_err(|error| error.to_string())?;
        let mut events = 0;
        while let Some(event) = stream.next::<Order>(&[]).await {
            event.map_err(|error| error.to_string())?;
            events += 1;
        }
        Ok(Some((events, "by stream_events, for replays; get_events, which loads an aggregate, returns without a word only")))
    }

    async fn load_from_snapshot(&mut self) -> Result<u64, Fault> {
        let repository = self.repository.as_ref().ok_or("not opened")?;
        let found = repository.get_snapshot::<Order>(&self.id).await.map_err(|error| error.to_string())?.ok_or("no snapshot")?;
        self.load(found.current_sequence as u64).await
    }

    async fn thousand(&mut self, version: u64) -> Result<(), String> {
        let repository = self.repository.as_ref().ok_or("not opened")?;
        let event = |at: u64| {
            let sequence = usize::try_from(at).unwrap_or_default() + 1;
            SerializedEvent::new(self.id.clone(), sequence, "order".into(), "OrderPlaced".into(), "1".into(), body(at), json!({}))
        };
        let events: Vec<SerializedEvent> = (version..version + 1_000).map(event).collect();
        repository.persist::<Order>(&events, None).await.map_err(|error| match error.to_string() {
            // "… DynamoDb supports only up to 25 operations per transactions"
            said if said.contains("up to 25 operations") => "at most 25 events".into(),
            other => format!("refused: {other}").chars().take(80).collect(),
        })
    }
    // `get_events` and `get_snapshot` ask for consistent reads, `get_last_events` does not.
    fn is_eventual(&self, behind: bool) -> bool {
        behind
    }
}
