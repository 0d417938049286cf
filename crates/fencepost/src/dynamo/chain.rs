//! The AWS default chain for whoever speaks to another service than DynamoDB: region and keys, looked up when they are first needed.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use aws_config::{BehaviorVersion, SdkConfig};
use aws_credential_types::Credentials;
use aws_credential_types::provider::ProvideCredentials;
use object_store::CredentialProvider;
use object_store::aws::AwsCredential;
use tokio::sync::{Mutex, OnceCell};
use tokio::time::Instant;

use crate::env::Env;
use crate::error::{Error, Reason, Result};

/// Keys that never expire are asked for again after this, as the SDK does.
const KEPT: Duration = Duration::from_secs(15 * 60);
/// Others so long before they expire.
const BEFORE: Duration = Duration::from_secs(60);

/// Cheap to clone; clones share what was found.
#[derive(Debug, Clone)]
pub(crate) struct Chain(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    profile: Option<String>,
    plain: bool,
    loaded: OnceCell<SdkConfig>,
    kept: Mutex<Option<(Instant, Signer)>>,
}

/// What requests are signed with. Never shown.
#[derive(Clone)]
pub(crate) struct Signer {
    pub(crate) key: String,
    pub(crate) secret: String,
    pub(crate) token: Option<String>,
}

impl fmt::Debug for Signer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Signer")
    }
}

impl Chain {
    /// Of a profile of the shared files, where another than the default; `plain`, where no TLS is spoken.
    pub(crate) fn new(profile: Option<String>, plain: bool) -> Chain {
        Chain(Arc::new(Inner { profile, plain, loaded: OnceCell::new(), kept: Mutex::default() }))
    }

    async fn loaded(&self) -> &SdkConfig {
        let load = || async {
            let mut loader = aws_config::defaults(BehaviorVersion::latest());
            if let Some(profile) = &self.0.profile {
                loader = loader.profile_name(profile);
            }
            // Without roots on the machine the HTTPS client panics, even where no TLS is spoken.
            if self.0.plain {
                loader = loader.http_client(aws_smithy_http_client::Builder::new().build_http());
            }
            loader.load().await
        };
        self.0.loaded.get_or_init(load).await
    }

    /// As the environment or the profile names it.
    pub(crate) async fn region(&self) -> Option<String> {
        self.loaded().await.region().map(|region| region.as_ref().to_owned())
    }

    pub(crate) async fn signer(&self) -> Result<Signer> {
        let mut kept = self.0.kept.lock().await;
        if let Some((until, signer)) = &*kept
            && Instant::now() < *until
        {
            return Ok(signer.clone());
        }
        let denied = |why: String| Error::unavailable(Reason::Denied, format!("the AWS default chain has no keys: {why}"));
        let provider = self.loaded().await.credentials_provider().ok_or_else(|| denied("it is empty".into()))?;
        let found = provider.provide_credentials().await.map_err(|error| denied(error.to_string()))?;
        let signer = Signer {
            key: found.access_key_id().into(),
            secret: found.secret_access_key().into(),
            token: found.session_token().map(str::to_owned),
        };
        *kept = Some((Instant::now() + lasts(&found), signer.clone()));
        Ok(signer)
    }
}

/// Keys of the chain for an object store, asked for anew by every request: the chain keeps them.
#[async_trait]
impl CredentialProvider for Chain {
    type Credential = AwsCredential;

    async fn get_credential(&self) -> object_store::Result<Arc<AwsCredential>> {
        let unauthenticated = |error: Error| object_store::Error::Unauthenticated { path: "the bucket".into(), source: Box::new(error) };
        let signer = self.signer().await.map_err(unauthenticated)?;
        Ok(Arc::new(AwsCredential { key_id: signer.key, secret_key: signer.secret, token: signer.token }))
    }
}

fn lasts(found: &Credentials) -> Duration {
    let Some(expiry) = found.expiry() else { return KEPT };
    let left = expiry.duration_since(Env::system().now().into()).unwrap_or_default();
    left.saturating_sub(BEFORE).min(KEPT)
}
