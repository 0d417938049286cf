//! Sekiban's own settings under their published names: the sections `AWS`, `DynamoDb` and `S3BlobStorage`, from JSON as it stands, from TOML, or
//! from the environment. What is unknown in them is refused, and so are keys of an account. Nothing is called here.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

use serde_json::Value as Json;

use crate::error::{Error, Refused, Result};
use crate::url::check_table;

/// What a setting holds.
#[derive(Debug, Clone, Copy)]
enum Kind {
    Text,
    Table,
    Address,
    Bucket,
    Switch,
    Time,
    /// From 1 to this.
    Count(u64),
    /// Never taken from settings.
    Secret,
}

use Kind::{Address, Bucket as BucketName, Count, Secret, Switch, Table, Text, Time};

const AWS: &str = "AWS";
const DYNAMO: &str = "DynamoDb";
const S3: &str = "S3BlobStorage";

/// Every setting that was published, by section and name. Those of the design document that the code calls otherwise are among them.
const KNOWN: &[(&str, &str, Kind)] = &[
    (AWS, "Region", Text),
    (AWS, "Profile", Text),
    (AWS, "AccessKey", Secret),
    (AWS, "SecretKey", Secret),
    (AWS, "SessionToken", Secret),
    (DYNAMO, "EventsTableName", Table),
    (DYNAMO, "TagsTableName", Table),
    (DYNAMO, "ProjectionStatesTableName", Table),
    (DYNAMO, "ServiceUrl", Address),
    (DYNAMO, "ForcePathStyle", Switch),
    (DYNAMO, "MaxConcurrentReads", Count(1024)),
    (DYNAMO, "MaxBatchGetItems", Count(100)),
    (DYNAMO, "MaxBatchSize", Count(100)),
    (DYNAMO, "MaxTransactionItems", Count(100)),
    (DYNAMO, "MaxBatchWriteItems", Count(25)),
    (DYNAMO, "UseConsistentReads", Switch),
    (DYNAMO, "MaxRetryAttempts", Count(1000)),
    (DYNAMO, "MaxRetryDelay", Time),
    (DYNAMO, "WriteShardCount", Count(super::MAX_SHARDS as u64)),
    (DYNAMO, "AutoCreateTables", Switch),
    (DYNAMO, "OffloadThresholdBytes", Count(u64::MAX)),
    (DYNAMO, "S3BucketName", BucketName),
    (DYNAMO, "TryRollbackOnFailure", Switch),
    (DYNAMO, "QueryPageSize", Count(100_000)),
    (S3, "BucketName", BucketName),
    (S3, "Prefix", Text),
    (S3, "Region", Text),
    (S3, "EnableEncryption", Switch),
    (S3, "ServiceUrl", Address),
    (S3, "ForcePathStyle", Switch),
];

/// What Sekiban's configuration says, as far as it says anything; the rest is as published. See `fencepost::_docs::sekiban`.
///
/// ```
/// use fencepost::sekiban::Settings;
/// let settings = Settings::from_json(r#"{ "AWS": { "Region": "ap-northeast-1" }, "DynamoDb": { "WriteShardCount": 4 } }"#)?;
/// assert_eq!(settings.url()?, "dynamodb://ap-northeast-1/Sekiban?layout=sekiban");
/// let builder = fencepost::Store::builder(&settings.url()?)?.settings(&settings)?; // .open().await?
/// # let _ = builder; Ok::<(), fencepost::Error>(())
/// ```
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Settings {
    /// By index in [`KNOWN`]; each value can be read.
    given: BTreeMap<usize, String>,
}

/// Where snapshots go that are too large for a row.
#[derive(Debug, Clone, PartialEq, Eq)]
#[cfg_attr(not(feature = "offload"), allow(dead_code, reason = "there is no object storage to open"))]
pub(crate) struct Bucket {
    pub(crate) name: String,
    pub(crate) prefix: String,
    pub(crate) region: Option<String>,
    pub(crate) profile: Option<String>,
    pub(crate) encrypt: bool,
    pub(crate) endpoint: Option<String>,
    pub(crate) path_style: bool,
}

fn malformed(why: impl Into<String>) -> Error {
    Refused::Malformed { what: "settings", why: why.into() }.into()
}

impl Settings {
    /// From `appsettings.json` as it stands: other sections are passed over, comments and trailing commas are read as .NET does.
    pub fn from_json(text: &str) -> Result<Settings> {
        let json = serde_json::from_str(&plain_json(text))
            .map_err(|error| malformed(format!("not JSON, in line {} at column {}", error.line(), error.column())))?;
        Settings::of(json)
    }

    /// From TOML with the same sections and names.
    pub fn from_toml(text: &str) -> Result<Settings> {
        let toml: toml::Table = text.parse().map_err(|error: toml::de::Error| malformed(format!("not TOML: {}", error.message())))?;
        Settings::of(serde_json::to_value(toml).map_err(|_| malformed("not TOML that JSON could hold"))?)
    }

    /// From variables such as `DynamoDb__EventsTableName=orders`, in any case; others are passed over.
    pub fn from_env(variables: impl IntoIterator<Item = (String, String)>) -> Result<Settings> {
        let mut settings = Settings::default();
        for (variable, value) in variables {
            if let Some((section, name)) = variable.split_once("__").and_then(|(section, name)| Some((known_section(section)?, name))) {
                settings.set(section, name, value)?;
            }
        }
        Ok(settings)
    }

    /// From a file, TOML where it is called `.toml` and else JSON; and over it, as .NET does, from the environment of this process.
    pub fn from_file(path: impl AsRef<Path>) -> Result<Settings> {
        let path = path.as_ref();
        let text = std::fs::read_to_string(path).map_err(|error| malformed(format!("{}: {error}", path.display())))?;
        let is_toml = path.extension().is_some_and(|extension| extension.eq_ignore_ascii_case("toml"));
        let file = if is_toml { Settings::from_toml(&text)? } else { Settings::from_json(&text)? };
        Ok(Settings::from_this_process()?.over(file))
    }

    /// From the environment of this process alone: `settings=env` in a URL.
    pub fn from_this_process() -> Result<Settings> {
        let variables = std::env::vars_os().filter_map(|(name, value)| Some((name.into_string().ok()?, value.into_string().ok()?)));
        Settings::from_env(variables)
    }

    /// These, and where they say nothing, those below.
    pub fn over(mut self, below: Settings) -> Settings {
        for (setting, value) in below.given {
            self.given.entry(setting).or_insert(value);
        }
        self
    }

    /// The URL of the tables: where `DynamoDb.ServiceUrl` or `AWS.Region` says. Tables that are not named are Sekiban's own.
    pub fn url(&self) -> Result<String> {
        match (self.service_url(), self.region()) {
            (Some(endpoint), _) => Ok(format!("{}/Sekiban?layout=sekiban", endpoint.trim_end_matches('/'))),
            (None, Some(region)) => Ok(format!("dynamodb://{region}/Sekiban?layout=sekiban")),
            (None, None) => Err(malformed("neither AWS.Region nor DynamoDb.ServiceUrl is given: nothing says where the tables are")),
        }
    }

    fn of(json: Json) -> Result<Settings> {
        let Json::Object(root) = json else { return Err(malformed("expected sections AWS, DynamoDb, S3BlobStorage")) };
        let mut settings = Settings::default();
        for (section, members) in root {
            // A file of an application has sections of its own.
            let Some(section) = known_section(&section) else { continue };
            let Json::Object(members) = members else { return Err(malformed(format!("{section} is not a section"))) };
            for (name, value) in members {
                match value {
                    Json::Null => {}
                    Json::String(text) => settings.set(section, &name, text)?,
                    Json::Bool(_) | Json::Number(_) => settings.set(section, &name, value.to_string())?,
                    Json::Array(_) | Json::Object(_) => return Err(malformed(format!("{section}.{name} holds one value, not several"))),
                }
            }
        }
        Ok(settings)
    }

    /// Checks the value, so that one that is there can be read.
    fn set(&mut self, section: &'static str, name: &str, value: String) -> Result<()> {
        let found = KNOWN.iter().position(|(of, known, _)| *of == section && known.eq_ignore_ascii_case(name));
        let Some(setting) = found else {
            let known: Vec<_> =
                KNOWN.iter().filter(|(of, _, kind)| *of == section && !matches!(kind, Secret)).map(|known| known.1).collect();
            return Err(malformed(format!("{section}.{name} is unknown; known are {}", known.join(", "))));
        };
        let (_, name, kind) = KNOWN[setting];
        let bad = |expected: &str| malformed(format!("{section}.{name} is {value:?}; expected {expected}"));
        match kind {
            Secret => {
                let why = "keys of an account do not belong into settings: they come from the AWS default chain (AWS_ACCESS_KEY_ID, a profile, a role)";
                return Err(malformed(format!("{section}.{name}: {why}")));
            }
            // An empty text is nothing, as .NET has it.
            Text | Table | Address | BucketName if value.is_empty() => return Ok(()),
            Text => {}
            Table => check_table(&value)?,
            BucketName
                if (3..=63).contains(&value.len())
                    && value.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b".-".contains(&b)) => {}
            BucketName => return Err(bad("3 to 63 of a-z 0-9 . -")),
            Address if value.starts_with("http://") || value.starts_with("https://") => {}
            Address => return Err(bad("an address, as http://localhost:4566")),
            Switch => drop(switch(&value).ok_or_else(|| bad("true or false"))?),
            Time => drop(time(&value).ok_or_else(|| bad("a time as .NET has it, 00:00:30"))?),
            Count(most) => {
                let number: Option<u64> = value.trim().parse().ok().filter(|number| (1..=most).contains(number));
                number.ok_or_else(|| bad(&format!("a whole number from 1 to {most}")))?;
            }
        }
        self.given.insert(setting, value);
        Ok(())
    }

    fn get(&self, section: &str, name: &str) -> Option<&str> {
        let setting = KNOWN.iter().position(|(of, known, _)| (*of, *known) == (section, name))?;
        self.given.get(&setting).map(String::as_str)
    }
    fn is_on(&self, section: &str, name: &str) -> Option<bool> {
        self.get(section, name).and_then(switch)
    }
    fn count(&self, name: &str) -> Option<u64> {
        self.get(DYNAMO, name)?.trim().parse().ok()
    }
    fn size(&self, name: &str, published: usize) -> usize {
        self.count(name).and_then(|count| usize::try_from(count).ok()).unwrap_or(published)
    }

    pub(crate) fn region(&self) -> Option<&str> {
        self.get(AWS, "Region")
    }
    pub(crate) fn profile(&self) -> Option<&str> {
        self.get(AWS, "Profile")
    }
    pub(crate) fn service_url(&self) -> Option<&str> {
        self.get(DYNAMO, "ServiceUrl")
    }
    pub(crate) fn events_table(&self) -> Option<&str> {
        self.get(DYNAMO, "EventsTableName")
    }
    pub(crate) fn tags_table(&self) -> Option<&str> {
        self.get(DYNAMO, "TagsTableName")
    }
    pub(crate) fn states_table(&self) -> Option<&str> {
        self.get(DYNAMO, "ProjectionStatesTableName")
    }
    /// Read requests under way at once; as published, two for each processor.
    pub(super) fn concurrent_reads(&self) -> usize {
        let published = 2 * std::thread::available_parallelism().map_or(1, usize::from);
        self.size("MaxConcurrentReads", published)
    }
    /// `MaxBatchSize` is what the design document calls it.
    pub(super) fn batch_get(&self) -> usize {
        self.size("MaxBatchGetItems", self.size("MaxBatchSize", 100))
    }
    pub(super) fn batch_write(&self) -> usize {
        self.size("MaxBatchWriteItems", 25)
    }
    pub(super) fn transaction_items(&self) -> usize {
        self.size("MaxTransactionItems", crate::dynamo::TRANSACTION_ITEMS)
    }
    pub(super) fn page(&self) -> i32 {
        i32::try_from(self.count("QueryPageSize").unwrap_or(1000)).unwrap_or(1000)
    }
    pub(super) fn consistent_reads(&self) -> bool {
        self.is_on(DYNAMO, "UseConsistentReads").unwrap_or(false)
    }
    pub(crate) fn retry_attempts(&self) -> u32 {
        u32::try_from(self.count("MaxRetryAttempts").unwrap_or(10)).unwrap_or(10)
    }
    pub(crate) fn retry_delay(&self) -> Duration {
        self.get(DYNAMO, "MaxRetryDelay").and_then(time).unwrap_or(Duration::from_secs(30))
    }
    pub(super) fn shards(&self) -> Option<u32> {
        self.count("WriteShardCount").and_then(|count| u32::try_from(count).ok())
    }
    pub(crate) fn creates_tables(&self) -> bool {
        self.is_on(DYNAMO, "AutoCreateTables").unwrap_or(true)
    }
    pub(super) fn offload_threshold(&self) -> usize {
        self.size("OffloadThresholdBytes", 350_000)
    }
    pub(super) fn rolls_back(&self) -> bool {
        self.is_on(DYNAMO, "TryRollbackOnFailure").unwrap_or(true)
    }
    /// None where no bucket is asked for: nothing says that snapshots shall go anywhere. A section that names none means the published one.
    pub(crate) fn bucket(&self) -> Option<Bucket> {
        let asked = self.given.keys().any(|setting| KNOWN[*setting].0 == S3) || self.get(DYNAMO, "S3BucketName").is_some();
        let text = |name: &str| self.get(S3, name).map(str::to_owned);
        asked.then(|| Bucket {
            name: text("BucketName").unwrap_or_else(|| self.get(DYNAMO, "S3BucketName").unwrap_or("sekiban-snapshots").to_owned()),
            prefix: text("Prefix").unwrap_or_default(),
            region: text("Region").or_else(|| self.region().map(str::to_owned)),
            profile: self.profile().map(str::to_owned),
            encrypt: self.is_on(S3, "EnableEncryption").unwrap_or(true),
            endpoint: text("ServiceUrl"),
            // The published file for LocalStack has it beside the tables too, where it means nothing.
            path_style: self.is_on(S3, "ForcePathStyle").or(self.is_on(DYNAMO, "ForcePathStyle")).unwrap_or(false),
        })
    }
}

fn known_section(name: &str) -> Option<&'static str> {
    [AWS, DYNAMO, S3].into_iter().find(|known| known.eq_ignore_ascii_case(name))
}

fn switch(text: &str) -> Option<bool> {
    match text.trim().to_ascii_lowercase().as_str() {
        "true" => Some(true),
        "false" => Some(false),
        _ => None,
    }
}

/// `[days.]hours:minutes:seconds[.fraction]`. A bare number, which .NET takes for days, is not read.
fn time(text: &str) -> Option<Duration> {
    let mut parts = text.trim().split(':');
    let (hours, minutes, seconds) = (parts.next()?, parts.next()?, parts.next()?);
    if parts.next().is_some() {
        return None;
    }
    let (days, hours) = hours.split_once('.').unwrap_or(("0", hours));
    let below = |text: &str, limit: u64| text.parse::<u64>().ok().filter(|number| *number < limit);
    let (seconds, fraction) = seconds.split_once('.').unwrap_or((seconds, "0"));
    let (days, hours) = (below(days, 10_000)?, below(hours, 24)?);
    let (minutes, seconds) = (below(minutes, 60)?, below(seconds, 60)?);
    if fraction.is_empty() || fraction.len() > 7 || !fraction.bytes().all(|digit| digit.is_ascii_digit()) {
        return None;
    }
    let ticks: u64 = format!("{fraction:0<7}").parse().ok()?;
    Some(Duration::from_secs(((days * 24 + hours) * 60 + minutes) * 60 + seconds) + Duration::from_nanos(ticks * 100))
}

/// JSON without what .NET's configuration allows besides: a mark of order, comments, a comma behind the last.
fn plain_json(text: &str) -> String {
    let text = text.trim_start_matches('\u{feff}');
    let mut plain = String::with_capacity(text.len());
    let mut chars = text.chars().peekable();
    let mut in_string = false;
    while let Some(c) = chars.next() {
        match c {
            '\\' if in_string => {
                plain.push(c);
                plain.extend(chars.next());
            }
            '"' => {
                in_string = !in_string;
                plain.push(c);
            }
            '/' if !in_string && chars.peek() == Some(&'/') => while chars.next_if(|c| *c != '\n').is_some() {},
            '/' if !in_string && chars.peek() == Some(&'*') => {
                let mut before = chars.next();
                // `/*/` is not a whole comment.
                if before == Some('*') {
                    before = None;
                }
                for c in chars.by_ref() {
                    if before == Some('*') && c == '/' {
                        break;
                    }
                    before = Some(c);
                }
                plain.push(' ');
            }
            '}' | ']' if !in_string => {
                let end = plain.trim_end().len();
                if plain[..end].ends_with(',') {
                    plain.truncate(end - 1);
                }
                plain.push(c);
            }
            c => plain.push(c),
        }
    }
    plain
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_published_defaults_hold_where_nothing_is_said() {
        let none = Settings::default();
        assert_eq!((none.batch_get(), none.batch_write(), none.transaction_items(), none.page()), (100, 25, 100, 1000));
        assert_eq!((none.retry_attempts(), none.retry_delay()), (10, Duration::from_secs(30)));
        assert_eq!((none.consistent_reads(), none.creates_tables(), none.rolls_back()), (false, true, true));
        assert_eq!((none.shards(), none.offload_threshold(), none.bucket()), (None, 350_000, None));
        assert!(none.concurrent_reads() >= 2 && none.url().is_err());
        let bucket = Settings::from_json(r#"{"S3BlobStorage":{"Prefix":"p"}}"#).expect("reads").bucket().expect("a bucket");
        assert_eq!((bucket.name.as_str(), bucket.encrypt, bucket.path_style, bucket.endpoint), ("sekiban-snapshots", true, false, None));
    }

    #[test]
    fn json_is_read_as_net_does_and_toml_and_variables_say_the_same() {
        let json = Settings::from_json(
            "\u{feff}// appsettings.Production.json (AWS)\n{ /* all */ \"Logging\": { \"LogLevel\": { \"Default\": \"x//y\" } },\n\
             \"aws\": { \"REGION\": \"ap-northeast-1\", \"Profile\": null, },\n\
             \"DynamoDb\": { \"eventsTableName\": \"prod-SekibanEvents\", \"MaxRetryDelay\": \"00:01:30.5\", \"UseConsistentReads\": \"True\", \"WriteShardCount\": 4, },\n}",
        )
        .expect("reads");
        let toml = Settings::from_toml(
            "[AWS]\nRegion = 'ap-northeast-1'\n[DynamoDb]\nEventsTableName = 'prod-SekibanEvents'\nMaxRetryDelay = '00:01:30.5'\nUseConsistentReads = 'True'\nWriteShardCount = 4\n",
        );
        assert_eq!(toml.expect("reads"), json);
        let variables = [
            ("aws__region", "ap-northeast-1"),
            ("DYNAMODB__EVENTSTABLENAME", "prod-SekibanEvents"),
            ("DynamoDb__MaxRetryDelay", "00:01:30.5"),
            ("DynamoDb__UseConsistentReads", "True"),
            ("DynamoDb__WriteShardCount", "4"),
            ("AWS_REGION", "elsewhere"),
            ("Other__Thing", "x"),
        ];
        let given = Settings::from_env(variables.map(|(name, value)| (name.to_owned(), value.to_owned()))).expect("reads");
        assert_eq!(given, json);
        assert_eq!((json.events_table(), json.shards(), json.consistent_reads()), (Some("prod-SekibanEvents"), Some(4), true));
        assert_eq!(json.retry_delay(), Duration::from_millis(90_500));
        let over = Settings::from_env([("DynamoDb__WriteShardCount".into(), "8".into())]).expect("reads").over(json);
        assert_eq!((over.shards(), over.region()), (Some(8), Some("ap-northeast-1")));
    }

    #[test]
    fn keys_and_what_cannot_be_meant_are_refused() {
        for secret in ["AccessKey", "SecretKey", "sessiontoken"] {
            let told = Settings::from_json(&format!(r#"{{"AWS":{{"{secret}":"AKIA-hidden"}}}}"#)).expect_err(secret).to_string();
            assert!(told.contains("default chain") && !told.contains("hidden"), "{told}");
        }
        for bad in [
            r#"{"DynamoDb":{"EventTableName":"x"}}"#,
            r#"{"DynamoDb":{"EventsTableName":"no spaces"}}"#,
            r#"{"DynamoDb":{"MaxBatchWriteItems":26}}"#,
            r#"{"DynamoDb":{"MaxTransactionItems":0}}"#,
            r#"{"DynamoDb":{"UseConsistentReads":"yes"}}"#,
            r#"{"DynamoDb":{"MaxRetryDelay":"30"}}"#,
            r#"{"DynamoDb":{"ServiceUrl":"localhost:4566"}}"#,
            r#"{"DynamoDb":{"QueryPageSize":[1]}}"#,
            r#"{"DynamoDb":4}"#,
            "[]",
            "{",
        ] {
            assert!(Settings::from_json(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn the_published_file_for_localstack_is_read_but_for_its_keys() {
        let published = r#"{ "DynamoDb": { "ServiceURL": "http://localhost:4566", "ForcePathStyle": true, "EventsTableName": "SekibanEvents" },
            "S3BlobStorage": { "ServiceUrl": "http://localhost:4566", "BucketName": "sekiban-snapshots" }, "AWS": { "Region": "us-east-1" } }"#;
        let settings = Settings::from_json(published).expect("reads");
        assert_eq!(settings.url().expect("a place"), "http://localhost:4566/Sekiban?layout=sekiban");
        let bucket = settings.bucket().expect("a bucket");
        assert_eq!((bucket.region.as_deref(), bucket.path_style), (Some("us-east-1"), true));
        let design = Settings::from_json(r#"{"DynamoDb":{"MaxBatchSize":20,"S3BucketName":"bucket"}}"#).expect("reads");
        assert_eq!((design.batch_get(), design.bucket().map(|bucket| bucket.name)), (20, Some("bucket".into())));
    }
}
