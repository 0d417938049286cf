//! Blobs in object storage: each written once, under a name that nobody else gives, and read back only if it has the hash that its name says.

use std::sync::{Arc, Mutex, PoisonError};

use bytes::Bytes;
use futures::TryStreamExt;
use jiff::Timestamp;
use object_store::aws::{AmazonS3Builder, AmazonS3ConfigKey};
use object_store::path::Path;
use object_store::{Error as Failed, ObjectStore, ObjectStoreExt};
use tokio::sync::OnceCell;

use super::super::LAYOUT;
use super::super::settings::Bucket;
use super::{hash, promised};
use crate::dynamo::Chain;
use crate::error::{Error, Reason, Refused, Result};

/// Blobs that are kept in memory: who waits for a projection looks at the same one again and again.
const KEPT: usize = 4;

/// Where projection states go that outgrow a row, as Sekiban has it: a bucket, or whatever `object_store` opens.
#[derive(Debug, Clone)]
pub struct Blobs {
    store: Arc<OnceCell<Arc<dyn ObjectStore>>>,
    /// What it is opened by, once it is needed: looking for a profile's region takes a while.
    bucket: Option<Arc<(Bucket, Chain)>>,
    prefix: String,
    /// A blob never changes.
    kept: Arc<Mutex<Vec<(String, Bytes)>>>,
}

impl Blobs {
    /// In a store that is open already, under a prefix of it.
    pub fn new(store: Arc<dyn ObjectStore>, prefix: &str) -> Self {
        let store = Arc::new(OnceCell::new_with(Some(store)));
        Self { store, bucket: None, prefix: prefix.trim_matches('/').into(), kept: Arc::default() }
    }

    /// As the settings say; what they leave open comes from the AWS default chain, as it does for the tables: from the environment, the
    /// profile, the role.
    pub(in super::super) fn open(bucket: &Bucket) -> Result<Self> {
        let plain = bucket.endpoint.as_ref().is_some_and(|endpoint| endpoint.starts_with("http://"));
        let chain = Chain::new(bucket.profile.clone(), plain);
        // Whether the settings can be meant is told now.
        Self::on(AmazonS3Builder::from_env(), bucket)?;
        let prefix = bucket.prefix.trim_matches('/').into();
        Ok(Self { store: Arc::default(), bucket: Some(Arc::new((bucket.clone(), chain))), prefix, kept: Arc::default() })
    }

    async fn store(&self) -> Result<&Arc<dyn ObjectStore>> {
        let open = || async {
            let Some((bucket, chain)) = self.bucket.as_deref() else { return Err(Error::corrupt(LAYOUT, "blobs without a bucket")) };
            let mut builder = AmazonS3Builder::from_env().with_credentials(Arc::new(chain.clone()));
            if bucket.region.is_none()
                && builder.get_config_value(&AmazonS3ConfigKey::Region).is_none()
                && let Some(region) = chain.region().await
            {
                builder = builder.with_region(region);
            }
            Self::on(builder, bucket)
        };
        self.store.get_or_try_init(open).await
    }

    fn on(builder: AmazonS3Builder, bucket: &Bucket) -> Result<Arc<dyn ObjectStore>> {
        let mut builder = builder.with_bucket_name(&bucket.name).with_virtual_hosted_style_request(!bucket.path_style);
        if let Some(region) = &bucket.region {
            builder = builder.with_region(region);
        }
        if let Some(endpoint) = &bucket.endpoint {
            // In the virtual-hosted style the bucket is part of the host.
            let endpoint = match endpoint.split_once("://") {
                Some((scheme, host)) if !bucket.path_style => format!("{scheme}://{}.{host}", bucket.name),
                _ => endpoint.clone(),
            };
            builder = builder.with_allow_http(endpoint.starts_with("http://")).with_endpoint(endpoint.trim_end_matches('/'));
        }
        let malformed = |error: Failed| Refused::Malformed { what: "settings", why: format!("S3BlobStorage: {error}") };
        if bucket.encrypt {
            builder = builder.with_config("aws_server_side_encryption".parse().map_err(malformed)?, "AES256");
        }
        Ok(Arc::new(builder.build().map_err(malformed)?))
    }

    pub(in super::super) fn key(&self, folder: &str, name: &str) -> String {
        if self.prefix.is_empty() { format!("{folder}/{name}") } else { format!("{}/{folder}/{name}", self.prefix) }
    }

    pub(in super::super) async fn put(&self, key: &str, blob: Bytes) -> Result<()> {
        let path = path(key)?;
        self.store().await?.put(&path, blob.clone().into()).await.map_err(|error| trouble(key, &error))?;
        self.keep(key, blob);
        Ok(())
    }

    /// None where there is none.
    pub(in super::super) async fn get(&self, key: &str) -> Result<Option<Bytes>> {
        if let Some((_, blob)) = self.kept().iter().find(|(kept, _)| kept == key) {
            return Ok(Some(blob.clone()));
        }
        let got = match self.store().await?.get(&path(key)?).await {
            Ok(got) => got,
            Err(Failed::NotFound { .. }) => return Ok(None),
            Err(error) => return Err(trouble(key, &error)),
        };
        let blob = got.bytes().await.map_err(|error| trouble(key, &error))?;
        if promised(key).is_some_and(|promised| hash(&blob) != promised) {
            return Err(Error::corrupt(
                LAYOUT,
                format!("blob {key} has another hash than its name says: give the state up, and it is built anew"),
            ));
        }
        self.keep(key, blob.clone());
        Ok(Some(blob))
    }

    /// All under the prefix: key, bytes, age.
    pub(in super::super) async fn all(&self) -> Result<Vec<(String, u64, Timestamp)>> {
        let root = (!self.prefix.is_empty()).then(|| path(&self.prefix)).transpose()?;
        let found: Vec<_> = self.store().await?.list(root.as_ref()).try_collect().await.map_err(|error| trouble(&self.prefix, &error))?;
        let blob = |meta: object_store::ObjectMeta| {
            let modified = Timestamp::from_second(meta.last_modified.timestamp()).unwrap_or(Timestamp::MAX);
            (meta.location.as_ref().to_owned(), meta.size, modified)
        };
        Ok(found.into_iter().map(blob).collect())
    }

    pub(in super::super) async fn delete(&self, key: &str) -> Result<()> {
        match self.store().await?.delete(&path(key)?).await {
            Ok(()) | Err(Failed::NotFound { .. }) => Ok(()),
            Err(error) => Err(trouble(key, &error)),
        }
    }

    fn kept(&self) -> std::sync::MutexGuard<'_, Vec<(String, Bytes)>> {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }
    fn keep(&self, key: &str, blob: Bytes) {
        let mut kept = self.kept();
        if kept.len() >= KEPT {
            kept.remove(0);
        }
        kept.push((key.to_owned(), blob));
    }
}

fn path(key: &str) -> Result<Path> {
    Path::parse(key).map_err(|_| Error::corrupt(LAYOUT, format!("blob {key} has a key that cannot be")))
}

fn trouble(key: &str, error: &Failed) -> Error {
    let reason = match error {
        Failed::PermissionDenied { .. } | Failed::Unauthenticated { .. } => Reason::Denied,
        Failed::NotFound { .. } => Reason::Missing,
        _ => Reason::Unreachable,
    };
    Error::unavailable(reason, format!("blob {key}: {error}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};

    /// The head of the one request that comes, answered as S3 answers a put. By a proxy, so that no name has to be known to this machine.
    async fn put_by(bucket: &Bucket) -> String {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let proxy = format!("http://127.0.0.1:{}", listener.local_addr().expect("an address").port());
        let builder = AmazonS3Builder::new().with_access_key_id("a").with_secret_access_key("b").with_proxy_url(proxy);
        let blobs = Blobs::new(Blobs::on(builder, bucket).expect("opens"), &bucket.prefix);
        let serve = async {
            let (mut socket, _) = listener.accept().await.expect("a request");
            let (mut head, mut part) = (Vec::new(), [0; 4096]);
            while !head.windows(4).any(|end| end == b"\r\n\r\n") {
                let read = socket.read(&mut part).await.expect("reads");
                head.extend_from_slice(&part[..read]);
            }
            let answer = b"HTTP/1.1 200 OK\r\nETag: \"e\"\r\nContent-Length: 0\r\nConnection: close\r\n\r\n";
            socket.write_all(answer).await.expect("answers");
            String::from_utf8_lossy(&head).to_lowercase()
        };
        let key = blobs.key("folder", "name.bin");
        let both = futures::future::join(serve, blobs.put(&key, Bytes::from_static(b"state")));
        let (head, put) = tokio::time::timeout(std::time::Duration::from_secs(20), both).await.expect("an answer");
        put.expect("stores");
        head
    }

    /// Each setting of the section, by what it does to the request.
    #[tokio::test]
    async fn the_settings_of_a_bucket_are_seen_on_the_wire() {
        let bucket = Bucket {
            name: "snapshots".into(),
            prefix: "/pre/fix/".into(),
            region: Some("ap-northeast-1".into()),
            profile: None,
            encrypt: true,
            endpoint: Some("http://s3.test:4566/".into()),
            path_style: true,
        };
        let head = put_by(&bucket).await;
        assert!(head.starts_with("put http://s3.test:4566/snapshots/pre/fix/folder/name.bin "), "{head}");
        assert!(head.contains("x-amz-server-side-encryption: aes256") && head.contains("/ap-northeast-1/s3/"), "{head}");
        let head = put_by(&Bucket { encrypt: false, prefix: String::new(), ..bucket.clone() }).await;
        assert!(
            head.starts_with("put http://s3.test:4566/snapshots/folder/name.bin ") && !head.contains("server-side-encryption"),
            "{head}"
        );
        let head = put_by(&Bucket { path_style: false, ..bucket }).await;
        assert!(head.starts_with("put http://snapshots.s3.test:4566/pre/fix/folder/name.bin "), "{head}");
    }
}
