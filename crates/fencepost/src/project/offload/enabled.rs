//! States in object storage: written once under a name that holds their hash, read back only if they still have it.

use std::collections::BTreeSet;
use std::fmt::Write;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures::TryStreamExt;
use jiff::Timestamp;
use object_store::aws::{AmazonS3Builder, AmazonS3ConfigKey, AwsCredentialProvider};
use object_store::azure::AzureConfigKey;
use object_store::gcp::GoogleConfigKey;
use object_store::path::Path;
use object_store::{Error as Failed, ObjectStore, ObjectStoreExt, ObjectStoreScheme, PutMode};
use serde::Serialize;
use sha2::{Digest, Sha256};
use uuid::Uuid;

use super::{ObjectRef, Of};
use crate::error::{Error, Reason, Refused, Result};

/// Where states go that outgrow an item: S3, Google Cloud Storage, Azure Blob Storage, or a folder.
///
/// An object's key is `{prefix}/{namespace}/{projection}/{version}/{generation}-{sha256}.zst`. It is written if absent and never changed. Beside
/// the versions lies `owner`, with the name of the store whose projection it is: another is refused, and uses another prefix.
#[derive(Debug, Clone)]
pub struct Objects {
    store: Arc<dyn ObjectStore>,
    /// Prefix and namespace.
    root: Path,
}

/// Options that name keys, or that none are needed.
const OWN_KEYS: [&str; 4] = ["aws_access_key_id", "access_key_id", "aws_skip_signature", "skip_signature"];

/// Whether the service has an option of this name.
fn is_option(scheme: &ObjectStoreScheme, name: &str) -> bool {
    match scheme {
        ObjectStoreScheme::AmazonS3 => name.parse::<AmazonS3ConfigKey>().is_ok(),
        ObjectStoreScheme::GoogleCloudStorage => name.parse::<GoogleConfigKey>().is_ok(),
        ObjectStoreScheme::MicrosoftAzure => name.parse::<AzureConfigKey>().is_ok(),
        _ => false,
    }
}

/// The object that says whose a projection's folder is.
const OWNER: &str = "owner";

/// Key, bytes, and when it was written.
pub(in crate::project) type Object = (String, u64, Timestamp);

/// What [`crate::Projections::gc`] removed.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct ObjectsCollected {
    /// Objects seen.
    pub seen: u64,
    /// Objects that no projection names, deleted.
    pub deleted: u64,
    /// Their bytes.
    pub bytes: u64,
    /// Objects that no projection names, too young to be deleted.
    pub young: u64,
}

impl std::ops::AddAssign for ObjectsCollected {
    fn add_assign(&mut self, other: Self) {
        self.seen += other.seen;
        self.deleted += other.deleted;
        self.bytes += other.bytes;
        self.young += other.young;
    }
}

impl Objects {
    /// In a store that is open already, under a prefix of it.
    pub fn new(store: Arc<dyn ObjectStore>, prefix: &str, namespace: &str) -> Self {
        let parts = prefix.split('/').chain([namespace]).filter(|part| !part.is_empty());
        Self { store, root: parts.collect() }
    }

    /// By URL: `s3://bucket/prefix`, `gs://bucket/prefix`, `az://container/prefix`, `file:///folder`.
    ///
    /// Credentials and region come from the variables of the environment that the service's own tools read, then from the machine's role; for S3
    /// by [`crate::Store::objects`] from the AWS default chain, profiles of the shared files and SSO among it.
    /// Options go over both, given here or in the URL's query, by the names of `object_store`: `aws_endpoint`, `aws_server_side_encryption`
    /// (`AES256`, `aws:kms`), `aws_sse_kms_key_id` and so on; one that the service does not have is refused. Keys do not belong into a URL.
    pub fn open(url: &str, namespace: &str, options: impl IntoIterator<Item = (String, String)>) -> Result<Self> {
        Self::open_with(url, namespace, options, None)
    }

    /// The same; in S3 with these keys, and in this region where neither the options nor the environment name one; whoever makes them is told
    /// whether no TLS is spoken. Options that name keys go over both.
    pub(crate) fn open_with(
        url: &str,
        namespace: &str,
        options: impl IntoIterator<Item = (String, String)>,
        keys: Option<&dyn Fn(bool) -> (AwsCredentialProvider, Option<String>)>,
    ) -> Result<Self> {
        // Without its query, in which a key may be.
        let place = url.split('?').next().unwrap_or_default();
        let refused = |why: String| Error::from(Refused::Url { why: format!("{place}: {why}") });
        let mut parsed: url::Url = url.parse().map_err(|error: url::ParseError| refused(error.to_string()))?;
        let (scheme, prefix) = ObjectStoreScheme::parse(&parsed).map_err(|error| refused(error.to_string()))?;
        let known = |name: &str| ["AWS_", "GOOGLE_", "AZURE_"].iter().any(|service| name.starts_with(service));
        let ambient = std::env::vars().filter(|(name, _)| known(name)).map(|(name, value)| (name.to_ascii_lowercase(), value));
        let asked: Vec<(String, String)> = parsed.query_pairs().into_owned().collect();
        let options: Vec<(String, String)> = asked.into_iter().chain(options).collect();
        parsed.set_query(None);
        if let Some((name, _)) = options.iter().find(|(name, _)| !is_option(&scheme, &name.to_ascii_lowercase())) {
            return Err(refused(format!("{name} is no option of this service, by the names of the crate object_store")));
        }
        let wrong = |error: Failed| refused(error.to_string());
        let own = options.iter().any(|(name, _)| OWN_KEYS.iter().any(|own| name.eq_ignore_ascii_case(own)));
        let (store, prefix): (Arc<dyn ObjectStore>, Path) = match keys.filter(|_| parsed.scheme() == "s3" && !own) {
            Some(keys) => {
                let mut builder = AmazonS3Builder::new().with_url(parsed.as_str());
                let ambient: Vec<_> = ambient.collect();
                let plain = |(name, value): &(String, String)| name.starts_with("aws_endpoint") && value.starts_with("http:");
                let (keys, region) = keys(options.iter().chain(&ambient).any(plain));
                let region = region.map(|region| ("aws_region".to_owned(), region));
                for (name, value) in region.into_iter().chain(ambient).chain(options) {
                    // What is another service's is passed over, as by `parse_url_opts`.
                    if let Ok(key) = name.to_ascii_lowercase().parse() {
                        builder = builder.with_config(key, value);
                    }
                }
                (Arc::new(builder.with_credentials(keys).build().map_err(wrong)?), prefix)
            }
            None => {
                let (store, prefix) = object_store::parse_url_opts(&parsed, ambient.chain(options)).map_err(wrong)?;
                (Arc::from(store), prefix)
            }
        };
        Ok(Self::new(store, prefix.as_ref(), namespace))
    }

    /// None: there is one under this name already.
    pub(in crate::project) async fn put(&self, of: Of<'_>, state: &[u8]) -> Result<Option<ObjectRef>> {
        let packed = zstd::bulk::compress(state, 3).map_err(|error| Error::corrupt("objects", format!("zstd: {error}")))?;
        let (sha256, bytes) = (hash(&packed), packed.len() as u64);
        let Of { projection, version, generation } = of;
        let path = self.folder(projection).join(version.to_string()).join(format!("{generation}-{sha256}.zst"));
        match self.store.put_opts(&path, packed.into(), PutMode::Create.into()).await {
            Ok(_) => Ok(Some(ObjectRef { key: path.as_ref().into(), sha256, bytes })),
            Err(Failed::AlreadyExists { .. }) => Ok(None),
            Err(error) => Err(trouble(&path, &error)),
        }
    }

    fn folder(&self, projection: &str) -> Path {
        self.root.clone().join(projection)
    }
    fn owner(&self, projection: &str) -> Path {
        self.folder(projection).join(OWNER)
    }

    /// Makes the projection's folder the store's of this name, if nobody's. Refused where it is another's. Whoever is killed in between, or hears
    /// no answer, finds its own name there.
    pub(in crate::project) async fn claim(&self, projection: &str, store: Uuid) -> Result<()> {
        let path = self.owner(projection);
        // Put before it is asked for: without the right to list, S3 denies what is not there.
        match self.store.put_opts(&path, store.to_string().into(), PutMode::Create.into()).await {
            Ok(_) => return Ok(()),
            Err(Failed::AlreadyExists { .. }) => {}
            Err(error) => return Err(trouble(&path, &error)),
        }
        let found = self.store.get(&path).await.map_err(|error| trouble(&path, &error))?;
        let found = found.bytes().await.map_err(|error| trouble(&path, &error))?;
        if found == store.to_string().as_bytes() {
            return Ok(());
        }
        let folder = self.folder(projection);
        let what = format!("the folder {folder} of object storage, which is another store's (its object {OWNER} says so)");
        let remedy = "two stores with a projection of one name must not share prefix and namespace: give this one another prefix";
        Err(Refused::Unsupported { what, remedy: remedy.into() }.into())
    }

    pub(in crate::project) async fn get(&self, object: &ObjectRef) -> Result<Bytes> {
        let path = Path::parse(&object.key).map_err(|_| broken(&object.key, "has a key that cannot be"))?;
        let got = match self.store.get(&path).await {
            Ok(got) => got,
            Err(Failed::NotFound { .. }) => return Err(broken(&object.key, "is missing")),
            Err(error) => return Err(trouble(&path, &error)),
        };
        let packed = got.bytes().await.map_err(|error| trouble(&path, &error))?;
        if packed.len() as u64 != object.bytes || hash(&packed) != object.sha256 {
            return Err(broken(&object.key, &format!("has {} bytes and another checksum than its {}", packed.len(), object.bytes)));
        }
        let state = zstd::stream::decode_all(&packed[..]).map_err(|_| broken(&object.key, "is not zstd"))?;
        Ok(state.into())
    }

    /// All objects.
    pub(in crate::project) async fn all(&self) -> Result<Vec<Object>> {
        let found: Vec<_> = self.store.list(Some(&self.root)).try_collect().await.map_err(|error| trouble(&self.root, &error))?;
        let object = |meta: object_store::ObjectMeta| {
            let modified = Timestamp::from_second(meta.last_modified.timestamp()).unwrap_or(Timestamp::MAX);
            (meta.location.as_ref().to_owned(), meta.size, modified)
        };
        Ok(found.into_iter().map(object).collect())
    }

    /// Those of one projection, and since when they have had an owner.
    pub(in crate::project) fn of(&self, all: &[Object], projection: &str) -> (Vec<Object>, Option<Timestamp>) {
        let (folder, owner) = (format!("{}/", self.folder(projection)), self.owner(projection));
        let (owner, states) =
            all.iter().filter(|(key, ..)| key.starts_with(&folder)).cloned().partition::<Vec<_>, _>(|(key, ..)| key == owner.as_ref());
        (states, owner.first().map(|(_, _, since)| *since))
    }

    /// Deletes what nobody names and is older than the grace period.
    pub(in crate::project) async fn sweep(
        &self,
        all: Vec<Object>,
        named: &BTreeSet<String>,
        now: Timestamp,
        grace: Duration,
    ) -> Result<ObjectsCollected> {
        let mut collected = ObjectsCollected { seen: all.len() as u64, ..ObjectsCollected::default() };
        for (key, bytes, modified) in all.into_iter().filter(|(key, ..)| !named.contains(key)) {
            let age = Duration::try_from(now.duration_since(modified)).unwrap_or(Duration::ZERO);
            if age < grace {
                collected.young += 1;
                continue;
            }
            let path = Path::parse(&key).map_err(|_| broken(&key, "has a key that cannot be"))?;
            match self.store.delete(&path).await {
                Ok(()) | Err(Failed::NotFound { .. }) => {}
                Err(error) => return Err(trouble(&path, &error)),
            }
            collected.deleted += 1;
            collected.bytes += bytes;
        }
        Ok(collected)
    }
}

fn hash(bytes: &[u8]) -> String {
    Sha256::digest(bytes).iter().fold(String::new(), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    })
}

fn broken(key: &str, how: &str) -> Error {
    Error::corrupt("objects", format!("object {key} {how}: reset the projection, and it is built anew"))
}

fn trouble(path: &Path, error: &Failed) -> Error {
    let reason = match error {
        Failed::PermissionDenied { .. } | Failed::Unauthenticated { .. } => Reason::Denied,
        Failed::NotFound { .. } => Reason::Missing,
        _ => Reason::Unreachable,
    };
    Error::unavailable(reason, format!("object {path}: {error}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use object_store::memory::InMemory;

    const OF: Of<'static> = Of { projection: "seats", version: 2, generation: 7 };

    #[tokio::test]
    async fn of_racing_writers_of_one_name_one_stores_it_and_the_others_are_told() {
        let objects = Objects::new(Arc::new(InMemory::new()), "/states/", "main");
        let puts = (0..8).map(|_| objects.put(OF, b"the same state"));
        let stored: Vec<_> = futures::future::try_join_all(puts).await.expect("each is answered");
        let stored: Vec<_> = stored.into_iter().flatten().collect();
        assert_eq!(stored.len(), 1);
        let all = objects.all().await.expect("lists");
        assert_eq!(all.iter().map(|(key, ..)| key.as_str()).collect::<Vec<_>>(), [stored[0].key.as_str()]);
        assert_eq!(stored[0].key, format!("states/main/seats/2/7-{}.zst", stored[0].sha256));
        assert_eq!(objects.get(&stored[0]).await.expect("reads"), "the same state");
    }
}
