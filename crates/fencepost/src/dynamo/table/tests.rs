//! Tables against an engine, against a service that is slow or odd (scripted), and their printed forms.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use aws_config::{BehaviorVersion, SdkConfig};
use aws_sdk_dynamodb::config::{Credentials, Region, SharedCredentialsProvider};
use aws_smithy_runtime_api::client::http::{HttpConnector, HttpConnectorFuture, SharedHttpClient, SharedHttpConnector, http_client_fn};
use aws_smithy_runtime_api::client::orchestrator::{HttpRequest, HttpResponse};
use aws_smithy_types::body::SdkBody;

use super::*;
use crate::dynamo::connect::{Connect, Place};
use crate::dynamo::{Dynamo, Timeouts};
use crate::env::Env;

fn key(name: &str, kind: KeyKind) -> KeySpec {
    KeySpec { name: name.into(), kind }
}

fn plain(name: &str) -> TableSpec {
    TableSpec {
        name: name.into(),
        hash: key("p", KeyKind::S),
        range: Some(key("v", KeyKind::N)),
        indexes: Vec::new(),
        stream: StreamSpec::OnRequest,
        ttl: None,
    }
}

/// One of everything.
fn rich(name: &str) -> TableSpec {
    let index = IndexSpec {
        name: "by-aggregate".into(),
        hash: key("aid", KeyKind::S),
        range: Some(key("seq", KeyKind::N)),
        projection: Projection::Include(vec!["type".into(), "stamp".into()]),
    };
    TableSpec { indexes: vec![index], stream: StreamSpec::Needed(StreamView::NewImage), ttl: Some("expires".into()), ..plain(name) }
}

fn rich_options() -> TableOptions {
    TableOptions {
        billing: Billing::Provisioned { read: 5, write: 7 },
        kms_key: Some("arn:aws:kms:eu-west-1:123456789012:key/1234abcd-12ab-34cd-56ef-1234567890ab".into()),
        tags: vec![("team".into(), "order's \"${desk}\"".into()), ("stage".into(), "prod".into())],
        stream: Some(StreamChoice::NewAndOld),
    }
}

async fn connect(config: SdkConfig, within: Duration) -> Dynamo {
    let keys = SharedCredentialsProvider::new(Credentials::from_keys("local", "local", None));
    let config = config.into_builder().behavior_version(BehaviorVersion::latest()).region(Region::new("local")).credentials_provider(keys);
    let mut connect = Connect::to(Place::Memory);
    connect.sdk_config = Some(config.build());
    connect.env = Env::seeded(1);
    connect.timeouts = Timeouts { operation: within, ..Timeouts::default() };
    connect.connect().await.expect("connected")
}

async fn engine() -> Dynamo {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let endpoint = format!("http://{}", listener.local_addr().expect("an address"));
    tokio::spawn(dynoxide::server::serve_on(listener, dynoxide::Database::memory().expect("an engine")));
    let http = aws_smithy_http_client::Builder::new().build_http();
    connect(SdkConfig::builder().endpoint_url(endpoint).http_client(http).build(), Duration::from_secs(30)).await
}

/// A service that gives these answers in this order, each to the operation that it names.
#[derive(Debug, Clone)]
struct Script(Arc<Mutex<VecDeque<Line>>>);

/// Operation, status, body.
type Line = (&'static str, u16, String);

impl HttpConnector for Script {
    fn call(&self, request: HttpRequest) -> HttpConnectorFuture {
        let target = request.headers().get("x-amz-target").unwrap_or_default();
        let operation = target.rsplit('.').next().unwrap_or_default();
        let mut lines = self.0.lock().expect("script");
        // The last line is said for ever.
        let line = if lines.len() > 1 { lines.pop_front() } else { lines.front().cloned() };
        let (expected, status, body) = line.expect("a line");
        assert_eq!(operation, expected, "{} lines are left", lines.len());
        let mut response = HttpResponse::new(status.try_into().expect("status"), SdkBody::from(body));
        response.headers_mut().insert("content-type", "application/x-amz-json-1.0");
        HttpConnectorFuture::ready(Ok(response))
    }
}

async fn scripted(lines: Vec<Line>, within: Duration) -> (Dynamo, Script) {
    let script = Script(Arc::new(Mutex::new(lines.into())));
    let connector = SharedHttpConnector::new(script.clone());
    let http: SharedHttpClient = http_client_fn(move |_, _| connector.clone());
    (connect(SdkConfig::builder().http_client(http).build(), within).await, script)
}

fn table(status: &str) -> String {
    format!(
        r#"{{"Table":{{"TableName":"orders","TableStatus":"{status}","KeySchema":[{{"AttributeName":"p","KeyType":"HASH"}},{{"AttributeName":"v","KeyType":"RANGE"}}],
        "AttributeDefinitions":[{{"AttributeName":"p","AttributeType":"S"}},{{"AttributeName":"v","AttributeType":"N"}}],
        "Replicas":[{{"RegionName":"eu-west-2"}}],"DeletionProtectionEnabled":true,"ItemCount":3,"TableSizeBytes":400,"TableId":"id-1"}}}}"#
    )
}

fn error(code: &str) -> String {
    format!(r#"{{"__type":"com.amazonaws.dynamodb.v20120810#{code}","message":"as scripted"}}"#)
}

fn unavailable<T: std::fmt::Debug>(result: Result<T>) -> (Reason, String) {
    match result.expect_err("an error") {
        Error::Unavailable(unavailable) => (unavailable.reason, unavailable.message),
        other => panic!("{other}"),
    }
}

#[tokio::test]
async fn of_eight_creators_one_creates_and_all_find_the_table_as_needed() {
    let dynamo = engine().await;
    let create = |_| {
        let dynamo = dynamo.clone();
        tokio::spawn(async move { dynamo.create_table(&dynamo.op(), &rich("orders"), &TableOptions::default()).await })
    };
    let outcomes = futures::future::join_all((0..8).map(create)).await;
    let outcomes: Vec<_> = outcomes.into_iter().map(|outcome| outcome.expect("joined").expect("created or found")).collect();
    assert_eq!(outcomes.iter().filter(|outcome| **outcome == Created::Created).count(), 1, "{outcomes:?}");
    assert_eq!(dynamo.verify_table(&dynamo.op(), &rich("orders")).await.expect("verified"), []);
}

#[tokio::test]
async fn what_is_created_is_what_is_described() {
    let dynamo = engine().await;
    let options = TableOptions { kms_key: None, ..rich_options() };
    assert_eq!(dynamo.create_table(&dynamo.op(), &rich("orders"), &options).await.expect("created"), Created::Created);
    assert_eq!(dynamo.create_table(&dynamo.op(), &rich("orders"), &options).await.expect("found"), Created::Existed);
    let found = dynamo.describe(&dynamo.op(), "orders").await.expect("described");
    let spec = rich("orders");
    assert_eq!((found.hash, found.range), (Some(spec.hash), spec.range));
    assert_eq!(found.indexes, spec.indexes);
    assert_eq!(found.stream, Some(StreamView::NewAndOldImages));
    assert!(found.stream_arn.is_some_and(|arn| arn.contains("/stream/")));
    assert_eq!(found.ttl.as_deref(), Some("expires"));
    assert_eq!(found.billing, Billing::Provisioned { read: 5, write: 7 });
    assert_eq!(found.status, "ACTIVE");
    assert_eq!(found.pitr, None, "the engine does not know recovery, and that is no failure");
}

#[tokio::test]
async fn every_difference_is_listed_with_both_sides() {
    let dynamo = engine().await;
    let found = TableSpec {
        hash: key("id", KeyKind::S),
        range: Some(key("v", KeyKind::S)),
        indexes: vec![IndexSpec {
            name: "by-aggregate".into(),
            hash: key("aid", KeyKind::N),
            range: None,
            projection: Projection::KeysOnly,
        }],
        stream: StreamSpec::OnRequest,
        ttl: Some("dies".into()),
        ..plain("orders")
    };
    let old = TableOptions { stream: Some(StreamChoice::Off), ..TableOptions::default() };
    dynamo.create_table(&dynamo.op(), &found, &old).await.expect("created");
    let mut needed = rich("orders");
    needed.indexes.push(IndexSpec { name: "by-time".into(), ..needed.indexes[0].clone() });
    let listed = dynamo.verify_table(&dynamo.op(), &needed).await.expect("verified");
    let listed: Vec<_> = listed.iter().map(ToString::to_string).collect();
    assert_eq!(
        listed,
        [
            "table orders: hash key is id (S), needed is p (S)",
            "table orders: range key is v (S), needed is v (N)",
            "table orders: hash key of index by-aggregate is aid (N), needed is aid (S)",
            "table orders: range key of index by-aggregate is none, needed is seq (N)",
            "table orders: projection of index by-aggregate is KEYS_ONLY, needed is INCLUDE type, stamp",
            "table orders: index by-time is none, needed is on aid (S), seq (N)",
            "table orders: stream is none, needed is NEW_IMAGE",
            "table orders: expiry (TTL) is by dies, needed is by expires",
        ]
    );
    let (reason, message) = unavailable(dynamo.create_table(&dynamo.op(), &needed, &TableOptions::default()).await);
    assert_eq!((reason, message), (Reason::Differs, listed.join("; ")));
    let described = dynamo.describe(&dynamo.op(), "orders").await.expect("described");
    assert_eq!(described.ttl.as_deref(), Some("dies"), "nothing of the table was changed");
}

#[tokio::test]
async fn more_than_needed_is_no_difference() {
    let dynamo = engine().await;
    let mut more = rich("orders");
    more.indexes[0].projection = Projection::All;
    more.indexes.push(IndexSpec { name: "of-the-operator".into(), ..more.indexes[0].clone() });
    let options = TableOptions { stream: Some(StreamChoice::NewAndOld), ..TableOptions::default() };
    dynamo.create_table(&dynamo.op(), &more, &options).await.expect("created");
    assert_eq!(dynamo.verify_table(&dynamo.op(), &rich("orders")).await.expect("verified"), []);
    assert_eq!(dynamo.verify_table(&dynamo.op(), &plain("orders")).await.expect("verified"), []);
}

#[tokio::test]
async fn a_missing_table_is_said_to_be_missing() {
    let dynamo = engine().await;
    let (reason, message) = unavailable(dynamo.verify_table(&dynamo.op(), &plain("orders")).await);
    assert_eq!(reason, Reason::Missing);
    assert!(message.contains("orders"), "{message}");
    assert_eq!(unavailable(dynamo.describe(&dynamo.op(), "orders").await).0, Reason::Missing);
}

#[tokio::test]
async fn an_expiry_that_a_dead_creator_left_out_is_set_by_the_next() {
    let dynamo = engine().await;
    let half = TableSpec { ttl: None, ..rich("orders") };
    dynamo.create_table(&dynamo.op(), &half, &TableOptions::default()).await.expect("created");
    let outcome = dynamo.create_table(&dynamo.op(), &rich("orders"), &TableOptions::default()).await.expect("finished");
    assert_eq!(outcome, Created::Existed);
    assert_eq!(dynamo.verify_table(&dynamo.op(), &rich("orders")).await.expect("verified"), []);
}

#[tokio::test]
async fn creation_waits_for_an_old_table_to_go_and_for_the_new_one_to_come() {
    let gone = || ("DescribeTable", 400, error("ResourceNotFoundException"));
    let lines = vec![
        ("DescribeTable", 200, table("DELETING")),
        gone(),
        ("CreateTable", 400, error("ResourceInUseException")), // still going
        gone(),
        ("CreateTable", 200, "{}".into()),
        gone(), // what was created may not show at once
        ("CreateTable", 400, error("ResourceInUseException")),
        ("DescribeTable", 200, table("CREATING")),
        ("DescribeTable", 200, table("ACTIVE")),
    ];
    let (dynamo, script) = scripted(lines, Duration::from_secs(30)).await;
    let outcome = dynamo.create_table(&dynamo.op(), &plain("orders"), &TableOptions::default()).await;
    assert_eq!(outcome.expect("created"), Created::Created);
    assert_eq!(script.0.lock().expect("script").len(), 1, "all was said");
}

#[tokio::test]
async fn a_table_that_stays_unready_or_cannot_be_used_is_not_called_created() {
    let (dynamo, _) = scripted(vec![("DescribeTable", 200, table("CREATING"))], Duration::from_millis(200)).await;
    let (reason, message) = unavailable(dynamo.create_table(&dynamo.op(), &plain("orders"), &TableOptions::default()).await);
    assert_eq!(reason, Reason::Unreachable);
    assert!(message.contains("CREATING"), "{message}");
    let locked = table("INACCESSIBLE_ENCRYPTION_CREDENTIALS");
    let (dynamo, _) = scripted(vec![("DescribeTable", 200, locked)], Duration::from_secs(30)).await;
    let (reason, message) = unavailable(dynamo.create_table(&dynamo.op(), &plain("orders"), &TableOptions::default()).await);
    assert_eq!(reason, Reason::Rejected);
    assert!(message.contains("INACCESSIBLE"), "{message}");
}

/// Where nobody tells of expiry, a table is not called wrong for it, and none is asked to set it.
#[tokio::test]
async fn an_engine_that_knows_no_expiry_is_not_failed_for_it() {
    let spec = TableSpec { ttl: Some("ttl".into()), ..plain("orders") };
    let lines = vec![("DescribeTable", 200, table("ACTIVE")), ("DescribeTimeToLive", 400, error("UnknownOperationException"))];
    let (dynamo, _) = scripted([lines.clone(), lines].concat(), Duration::from_secs(30)).await;
    let expiry = |differences: &[Difference]| differences.iter().any(|difference| difference.to_string().contains("TTL"));
    assert!(!expiry(&dynamo.verify_table(&dynamo.op(), &spec).await.expect("looks")));
    // It says what else is wrong with this one, and sends nothing that was not scripted.
    let made = dynamo.create_table(&dynamo.op(), &spec, &TableOptions::default()).await;
    assert!(!format!("{made:?}").contains("TTL"), "{made:?}");
}

#[tokio::test]
async fn what_an_engine_or_the_rights_keep_back_is_none_and_the_rest_is_told() {
    let lines = vec![
        ("DescribeTable", 200, table("ACTIVE")),
        ("DescribeTimeToLive", 400, error("AccessDeniedException")),
        ("DescribeContinuousBackups", 500, error("UnknownOperationException")),
    ];
    let (dynamo, _) = scripted(lines, Duration::from_secs(30)).await;
    let found = dynamo.describe(&dynamo.op(), "orders").await.expect("described");
    assert_eq!((found.ttl, found.pitr), (None, None));
    assert_eq!((found.items, found.bytes, found.deletion_protection), (3, 400, Some(true)));
    assert_eq!((found.replicas, found.table_id.as_deref()), (vec!["eu-west-2".to_owned()], Some("id-1")));

    let backups = r#"{"ContinuousBackupsDescription":{"ContinuousBackupsStatus":"ENABLED","PointInTimeRecoveryDescription":{"PointInTimeRecoveryStatus":"ENABLED"}}}"#;
    let lines = vec![
        ("DescribeTable", 200, table("ACTIVE")),
        ("DescribeTimeToLive", 200, r#"{"TimeToLiveDescription":{"TimeToLiveStatus":"DISABLED"}}"#.into()),
        ("DescribeContinuousBackups", 200, backups.into()),
    ];
    let (dynamo, _) = scripted(lines, Duration::from_secs(30)).await;
    assert_eq!(dynamo.describe(&dynamo.op(), "orders").await.expect("described").pitr, Some(true));
}

#[test]
fn a_stream_that_the_layout_reads_cannot_be_chosen_away() {
    let table = |stream| TableSpec { stream, ..plain("orders") };
    let view = |stream, choice| table(stream).view(&TableOptions { stream: choice, ..TableOptions::default() });
    let needed = StreamSpec::Needed(StreamView::NewImage);
    for (stream, choice, expected) in [
        (needed, None, Some(StreamView::NewImage)),
        (needed, Some(StreamChoice::NewAndOld), Some(StreamView::NewAndOldImages)),
        (StreamSpec::OnRequest, None, None),
        (StreamSpec::OnRequest, Some(StreamChoice::New), Some(StreamView::NewImage)),
        (StreamSpec::Never, Some(StreamChoice::New), None),
    ] {
        assert_eq!(view(stream, choice).expect("a view"), expected, "{stream:?} {choice:?}");
    }
    let off = TableOptions { stream: Some(StreamChoice::Off), ..TableOptions::default() };
    let refused = print(&[table(needed)], &off, Format::Terraform).expect_err("refused").to_string();
    assert!(refused.contains("orders with stream off") && refused.contains("NEW_IMAGE"), "{refused}");
    let both = StreamSpec::Needed(StreamView::NewAndOldImages);
    assert!(view(both, Some(StreamChoice::New)).is_err(), "less than is needed");
}

#[test]
fn every_format_protects_each_table_and_says_all_of_the_definition() {
    let specs = [rich("orders"), plain("orders-side")];
    let common = ["orders-side", "by-aggregate", "PROVISIONED", "NEW_AND_OLD_IMAGES", "expires", "1234567890ab", "INCLUDE"];
    let own: [(Format, &[(&str, usize)]); 3] = [
        (
            Format::Terraform,
            &[
                ("resource \"aws_dynamodb_table\"", 2),
                ("deletion_protection_enabled = true", 2),
                ("point_in_time_recovery {", 2),
                ("  attribute {", 6),
                ("read_capacity  = 5", 3),
                (r#""team" = "order's \"$${desk}\"""#, 2),
            ],
        ),
        (
            Format::CloudFormation,
            &[
                ("Type: AWS::DynamoDB::Table", 2),
                ("DeletionProtectionEnabled: true", 2),
                ("PointInTimeRecoveryEnabled: true", 2),
                ("AttributeType:", 6),
                ("ReadCapacityUnits: 5", 3),
                (r#"Value: "order's \"${desk}\"""#, 2),
            ],
        ),
        (
            Format::AwsCli,
            &[
                ("aws dynamodb create-table ", 2),
                ("--deletion-protection-enabled", 2),
                ("PointInTimeRecoveryEnabled=true", 2),
                ("AttributeType=", 6),
                ("ReadCapacityUnits", 3),
                (r#""Value":"order'\''s \"${desk}\""}"#, 2),
                ("update-time-to-live --table-name orders ", 1),
            ],
        ),
    ];
    for (format, parts) in own {
        let text = print(&specs, &rich_options(), format).expect("printed");
        assert_eq!(text, print(&specs, &rich_options(), format).expect("printed"), "the same bytes for the same definition");
        for part in common {
            assert!(text.contains(part), "{part} is missing in\n{text}");
        }
        for (part, times) in parts {
            assert_eq!(text.matches(part).count(), *times, "{part} in\n{text}");
        }
        assert_eq!(text.matches('{').count() - text.matches("{desk}").count(), text.matches('}').count() - text.matches("{desk}").count());
    }
}

#[test]
fn a_plain_definition_has_nothing_beyond_what_it_needs() {
    let text = print(&[plain("1.orders"), plain("1-orders")], &TableOptions::default(), Format::Terraform).expect("printed");
    assert!(text.contains("\"table_1_orders\"") && text.contains("\"table_1_orders2\""), "labels differ:\n{text}");
    for absent in ["stream", "ttl", "tags", "kms", "capacity", "index"] {
        assert!(!text.contains(absent), "{absent} in\n{text}");
    }
    let text = print(&[plain("a.b"), plain("a-b")], &TableOptions::default(), Format::CloudFormation).expect("printed");
    assert!(text.contains("  ABTable:\n") && text.contains("  ABTable2:\n"), "{text}");
}

fn rights() -> Vec<Rights> {
    let on = |role, table: &str, on, actions: &[&'static str]| Rights { role, table: table.into(), on, actions: actions.to_vec() };
    vec![
        on(Role::Admin, "orders", On::Table, &["Scan"]),
        on(Role::Writer, "orders", On::Table, &["PutItem", "Query"]),
        on(Role::Writer, "orders", On::Indexes, &["Query"]),
        on(Role::Indexer, "orders", On::Stream, &["GetRecords"]),
    ]
}

fn policies(options: &TableOptions, scope: &Scope) -> Vec<(Role, serde_json::Value)> {
    let all = iam(&rights(), options, scope);
    all.into_iter().map(|(role, text)| (role, serde_json::from_str(&text).expect("JSON"))).collect()
}

#[test]
fn a_policy_allows_what_the_role_was_given_where_it_was_given_and_nothing_else() {
    let scope = Scope { region: Some("eu-west-1".into()), account: Some("123456789012".into()) };
    let table = "arn:aws:dynamodb:eu-west-1:123456789012:table/orders";
    let allow = |actions: &[&str], resource: String| serde_json::json!({"Effect": "Allow", "Action": actions, "Resource": [resource]});
    let policy = |statements: &[serde_json::Value]| serde_json::json!({"Version": "2012-10-17", "Statement": statements});
    let expected = [
        (
            Role::Writer,
            policy(&[allow(&["dynamodb:PutItem", "dynamodb:Query"], table.into()), allow(&["dynamodb:Query"], format!("{table}/index/*"))]),
        ),
        (Role::Indexer, policy(&[allow(&["dynamodb:GetRecords"], format!("{table}/stream/*"))])),
        (Role::Admin, policy(&[allow(&["dynamodb:Scan"], table.into())])),
    ];
    assert_eq!(policies(&TableOptions::default(), &scope), expected);
    let first = |scope| iam(&rights(), &TableOptions::default(), &scope)[0].1.clone();
    assert!(first(Scope::default()).contains("\"arn:aws:dynamodb:*:*:table/orders\""));
    assert!(
        first(Scope { region: Some("cn-north-1".into()), account: None }).contains("\"arn:aws-cn:dynamodb:cn-north-1:*:table/orders\"")
    );
}

#[test]
fn a_key_of_the_customer_can_be_used_through_dynamodb_alone() {
    let scope = Scope { region: Some("eu-west-1".into()), account: None };
    for (role, policy) in policies(&rich_options(), &scope) {
        let statement = policy["Statement"].as_array().and_then(|all| all.last()).expect("a statement");
        assert!(statement["Resource"][0].as_str().is_some_and(|key| key.ends_with("1234567890ab")), "{statement}");
        assert_eq!(statement["Condition"]["StringLike"]["kms:ViaService"], "dynamodb.eu-west-1.amazonaws.com*");
        assert_eq!(statement["Action"].to_string().contains("kms:CreateGrant"), role == Role::Admin);
    }
}

/// For a look by hand, and for `python-hcl2` and `cfn-lint`: writes the printed forms into the folder that this variable names.
#[test]
#[ignore = "writes files for linters that are not part of the suite"]
fn write_the_printed_forms() {
    let folder = std::path::PathBuf::from(std::env::var_os("FENCEPOST_PRINTED").expect("FENCEPOST_PRINTED"));
    let rich = (vec![rich("orders"), plain("orders-side")], rich_options());
    let simple = (vec![plain("orders"), plain("orders-side")], TableOptions::default());
    for (name, (specs, options)) in [("rich", rich), ("simple", simple)] {
        for (end, format) in [("tf", Format::Terraform), ("yaml", Format::CloudFormation), ("sh", Format::AwsCli)] {
            std::fs::write(folder.join(format!("{name}.{end}")), print(&specs, &options, format).expect("printed")).expect("written");
        }
        for (role, text) in iam(&rights(), &options, &Scope::default()) {
            std::fs::write(folder.join(format!("{name}-{role:?}.json")), text).expect("written");
        }
    }
}
