//! Rights: a layout says which role does what to which of its tables, and here it becomes one IAM policy for each role.

use serde::Serialize;

use super::TableOptions;

/// Who does something to the tables.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Role {
    /// Decides and appends.
    Writer,
    /// Reads, and follows the feed.
    Reader,
    /// Builds the feed's index from the stream.
    Indexer,
    /// Creates, verifies, cleans up.
    Admin,
}

/// Reading items. `stats`, `doctor` and `init --no-create` describe the tables.
pub(crate) const READ: [&str; 4] = ["GetItem", "BatchGetItem", "Query", "DescribeTable"];
/// Making a table, and setting right what differs.
pub(crate) const TABLE_ADMIN: [&str; 9] = [
    "CreateTable",
    "UpdateTable",
    "DescribeTimeToLive",
    "UpdateTimeToLive",
    "DescribeContinuousBackups",
    "UpdateContinuousBackups",
    "ListTagsOfResource",
    "TagResource",
    "UntagResource",
];

/// Where the rights hold. What is none is `*`: any region, any account (which is the account of whoever has the policy).
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Scope {
    /// The region.
    pub region: Option<String>,
    /// The account's number.
    pub account: Option<String>,
}

/// What a role may do to one table, or bucket.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Rights {
    pub(crate) role: Role,
    pub(crate) table: String,
    pub(crate) on: On,
    /// Actions of DynamoDB, without `dynamodb:`, or of S3, without `s3:`. A transaction has none of its own: it needs those of its parts.
    pub(crate) actions: Vec<&'static str>,
}

/// Which part of a table.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum On {
    Table,
    /// Its secondary indexes, all of them.
    Indexes,
    Stream,
    /// Not of a table: a bucket of this name.
    Bucket,
    /// Nor this: objects, by bucket and prefix.
    Objects,
}

#[derive(Serialize)]
#[serde(rename_all = "PascalCase")]
struct Document {
    version: &'static str,
    statement: Vec<Statement>,
}

#[derive(Serialize)]
#[serde(rename_all = "PascalCase")]
struct Statement {
    effect: &'static str,
    action: Vec<String>,
    resource: Vec<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    condition: Option<ViaDynamo>,
}

#[derive(Serialize)]
#[serde(rename_all = "PascalCase")]
struct ViaDynamo {
    string_like: Service,
}

#[derive(Serialize)]
struct Service {
    #[serde(rename = "kms:ViaService")]
    via: String,
}

/// A policy document (JSON) for each role that has rights, in the order of [`Role`].
pub(crate) fn iam(rights: &[Rights], options: &TableOptions, scope: &Scope) -> Vec<(Role, String)> {
    let mut roles: Vec<_> = rights.iter().map(|right| right.role).collect();
    roles.sort();
    roles.dedup();
    let policy = |role: Role| {
        let mine = rights.iter().filter(|right| right.role == role);
        let mut statement: Vec<_> = mine.map(|right| allow(right, scope)).collect();
        statement.extend(options.kms_key.as_deref().map(|key| decrypt(key, role, scope)));
        let document = Document { version: "2012-10-17", statement };
        // Texts in texts: nothing in it can fail to be JSON.
        (role, serde_json::to_string_pretty(&document).unwrap_or_default())
    };
    roles.into_iter().map(policy).collect()
}

fn allow(right: &Rights, scope: &Scope) -> Statement {
    let (partition, region, account) = scope.parts();
    let table = |part: &str| ("dynamodb", format!("arn:{partition}:dynamodb:{region}:{account}:table/{}{part}", right.table));
    let (service, resource) = match right.on {
        On::Table => table(""),
        On::Indexes => table("/index/*"),
        // The last part is the time when the stream was switched on.
        On::Stream => table("/stream/*"),
        On::Bucket => ("s3", format!("arn:{partition}:s3:::{}", right.table)),
        On::Objects => ("s3", format!("arn:{partition}:s3:::{}/*", right.table)),
    };
    Statement {
        effect: "Allow",
        action: right.actions.iter().map(|action| format!("{service}:{action}")).collect(),
        resource: vec![resource],
        condition: None,
    }
}

/// DynamoDB opens a table's key in the name of whoever reads or writes; only who creates or changes the table grants it the use.
fn decrypt(key: &str, role: Role, scope: &Scope) -> Statement {
    let (partition, region, account) = scope.parts();
    let mut actions = vec!["kms:Decrypt", "kms:DescribeKey"];
    if role == Role::Admin {
        actions.extend(["kms:CreateGrant", "kms:Encrypt", "kms:GenerateDataKey*", "kms:ReEncrypt*"]);
    }
    let key = if key.starts_with("arn:") { key.to_owned() } else { format!("arn:{partition}:kms:{region}:{account}:key/{key}") };
    let via = format!("dynamodb.{region}.amazonaws.com*");
    Statement {
        effect: "Allow",
        action: actions.into_iter().map(str::to_owned).collect(),
        resource: vec![key],
        condition: Some(ViaDynamo { string_like: Service { via } }),
    }
}

impl Scope {
    fn parts(&self) -> (&'static str, &str, &str) {
        let region = self.region.as_deref().unwrap_or("*");
        let partition = match region {
            china if china.starts_with("cn-") => "aws-cn",
            government if government.starts_with("us-gov-") => "aws-us-gov",
            _ => "aws",
        };
        (partition, region, self.account.as_deref().unwrap_or("*"))
    }
}
