//! Sekiban's three tables, and what each role may do to them. Its own policy names actions that do not exist, and misses one that transactions need.

use super::item::{ALL_KEY, GROUP, HASH, INDEX, RANGE, SORTABLE, TAG, TTL};
use super::{Expiry, FeedMode, Options};
use crate::dynamo::table::{
    Format, IndexSpec, KeyKind, KeySpec, On, Projection, READ, Rights, Role, StreamSpec, StreamView, TABLE_ADMIN, TableSpec,
};

fn text(name: &str) -> KeySpec {
    KeySpec { name: name.into(), kind: KeyKind::S }
}

fn table(name: &str, index: Option<(&str, &str, Projection)>) -> TableSpec {
    let index =
        index.map(|(hash, range, projection)| IndexSpec { name: INDEX.into(), hash: text(hash), range: Some(text(range)), projection });
    TableSpec {
        name: name.into(),
        hash: text(HASH),
        range: Some(text(RANGE)),
        indexes: index.into_iter().collect(),
        stream: StreamSpec::OnRequest,
        ttl: None,
    }
}

/// As Sekiban makes them. The index of tags may hold the keys alone: its published script makes it so, its code does not.
pub(super) fn specs(options: &Options) -> Vec<TableSpec> {
    let events = table(&options.events, Some((ALL_KEY, SORTABLE, Projection::All)));
    let stream = match options.feed {
        FeedMode::Window => StreamSpec::OnRequest,
        FeedMode::Streams => StreamSpec::Needed(StreamView::NewImage),
    };
    // On both alike: a row whose event is gone fails Sekiban's reads of the tag.
    let ttl = (options.expiry == Expiry::On).then(|| TTL.to_owned());
    let tags = table(&options.tags, Some((GROUP, TAG, Projection::AllOrKeys)));
    let mut specs = vec![TableSpec { stream, ttl: ttl.clone(), ..events }, TableSpec { ttl, ..tags }, table(&options.states, None)];
    // Where the number of shards, or the index, is recorded. For states of ours alone it is made when the first is written.
    if options.shards > 1 || options.feed == FeedMode::Streams {
        specs.push(crate::side::spec(&options.side));
    }
    specs
}

/// The bucket of projection states for other tools: closed to the public, encrypted as Sekiban's setting says, and kept when a stack goes.
pub(super) fn print_bucket(options: &Options, format: Format) -> Option<String> {
    let bucket = options.bucket.as_ref()?;
    let (name, closed) = (&bucket.name, ["block_public_acls", "block_public_policy", "ignore_public_acls", "restrict_public_buckets"]);
    Some(match format {
        Format::Terraform => {
            let closed: String = closed.map(|setting| format!("  {setting:<23} = true\n")).concat();
            let encrypted = "\nresource \"aws_s3_bucket_server_side_encryption_configuration\" \"sekiban_snapshots\" {\n  bucket = aws_s3_bucket.sekiban_snapshots.id\n\n  rule {\n    apply_server_side_encryption_by_default {\n      sse_algorithm = \"AES256\"\n    }\n  }\n}\n";
            format!(
                "\nresource \"aws_s3_bucket\" \"sekiban_snapshots\" {{\n  bucket = \"{name}\"\n\n  lifecycle {{\n    prevent_destroy = true\n  }}\n}}\n\n\
                 resource \"aws_s3_bucket_public_access_block\" \"sekiban_snapshots\" {{\n  bucket = aws_s3_bucket.sekiban_snapshots.id\n\n{closed}}}\n{}",
                if bucket.encrypt { encrypted } else { "" }
            )
        }
        Format::CloudFormation => {
            let encrypted = "      BucketEncryption:\n        ServerSideEncryptionConfiguration:\n          - ServerSideEncryptionByDefault:\n              SSEAlgorithm: AES256\n";
            format!(
                "  SekibanSnapshotsBucket:\n    Type: AWS::S3::Bucket\n    DeletionPolicy: Retain\n    UpdateReplacePolicy: Retain\n    Properties:\n      \
                 BucketName: \"{name}\"\n{}      PublicAccessBlockConfiguration:\n        BlockPublicAcls: true\n        BlockPublicPolicy: true\n        \
                 IgnorePublicAcls: true\n        RestrictPublicBuckets: true\n",
                if bucket.encrypt { encrypted } else { "" }
            )
        }
        Format::AwsCli => format!(
            "aws s3 mb s3://{name}\naws s3api put-public-access-block --bucket {name} \\\n  --public-access-block-configuration \
             BlockPublicAcls=true,IgnorePublicAcls=true,BlockPublicPolicy=true,RestrictPublicBuckets=true\n"
        ),
    })
}

/// A reader writes too: it finishes the rows of a large commit whose writer died.
pub(super) fn rights(options: &Options) -> Vec<Rights> {
    let mut all = Vec::new();
    let mut may =
        |role, name: &str, on, actions: &[&[&'static str]]| all.push(Rights { role, table: name.into(), on, actions: actions.concat() });
    let rows = ["PutItem", "BatchWriteItem", "UpdateItem", "DeleteItem"];
    for role in [Role::Writer, Role::Reader, Role::Admin] {
        for name in [&options.events, &options.tags] {
            let admin: &[&str] = if role == Role::Admin { &TABLE_ADMIN } else { &[] };
            let check: &[&str] = if role == Role::Reader { &[] } else { &["ConditionCheckItem"] };
            let scan: &[&str] = if role == Role::Admin { &["Scan"] } else { &[] };
            may(role, name, On::Table, &[admin, &READ, check, &rows, scan]);
            may(role, name, On::Indexes, &[&["Query"]]);
        }
    }
    for name in [&options.states, &options.side] {
        // The table beside the log is made by whoever needs it first, unless it was printed.
        let makes: &[&str] = if *name == options.side { &["CreateTable"] } else { &[] };
        may(Role::Writer, name, On::Table, &[&READ, makes, &["PutItem", "UpdateItem", "DeleteItem"]]);
        may(Role::Reader, name, On::Table, &[&READ]);
        may(Role::Admin, name, On::Table, &[&TABLE_ADMIN, &READ, &["Scan", "PutItem", "UpdateItem", "DeleteItem"]]);
    }
    if options.feed == FeedMode::Streams {
        may(Role::Indexer, &options.events, On::Table, &[&READ]);
        may(Role::Indexer, &options.events, On::Stream, &[&["DescribeStream", "GetRecords", "GetShardIterator"]]);
        may(Role::Indexer, &options.tags, On::Table, &[&READ]);
        may(Role::Indexer, &options.side, On::Table, &[&READ, &["PutItem", "CreateTable"]]);
    }
    if let Some(bucket) = &options.bucket {
        let objects = match bucket.prefix.trim_matches('/') {
            "" => bucket.name.clone(),
            prefix => format!("{}/{prefix}", bucket.name),
        };
        // Without ListBucket a missing object is told as a denied one. Sekiban's releases to 10.22 put theirs beside the prefix: they are read there.
        for (role, actions) in [(Role::Writer, &["PutObject"][..]), (Role::Reader, &[]), (Role::Admin, &["PutObject", "DeleteObject"])] {
            may(role, &bucket.name, On::Bucket, &[&["ListBucket"]]);
            may(role, &bucket.name, On::Objects, &[&["GetObject"]]);
            if !actions.is_empty() {
                may(role, &objects, On::Objects, &[actions]);
            }
        }
    }
    all
}
