//! The states behind projection rows: envelopes as Sekiban makes them, opened at both levels of offload, and the blobs that no row names.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use flate2::Compression;
use flate2::read::{GzDecoder, GzEncoder};
use serde_json::{Value as Json, json};
use uuid::Uuid;

use super::blobs::{PROVIDER, hash};
use super::states::{Control, ProjectionRow, RowBody};
use super::suid::SortableId;
use super::{LAYOUT, Sekiban};
use crate::error::{Error, Refused, Result};

/// Who built a row that we built.
const BUILT_BY: &str = "FENCEPOST";

/// An envelope that points to its state has some 600 bytes, and the names in it; larger ones hold it.
#[cfg(feature = "offload")]
const POINTER: u64 = 16 * 1024;

/// What an envelope holds.
#[derive(Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Payload {
    /// The state itself, as its projector serialised it.
    Here(Bytes),
    /// A blob that holds it, compressed.
    Offloaded {
        /// Its key.
        key: String,
        /// Where.
        provider: String,
    },
    /// Nothing.
    None,
}

impl std::fmt::Debug for Payload {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Payload::Here(state) => write!(f, "Here({} bytes)", state.len()),
            Payload::Offloaded { key, provider } => write!(f, "Offloaded({provider}, {key})"),
            Payload::None => f.write_str("None"),
        }
    }
}

/// What was folded: all that a row says of a state besides the state.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Folded {
    /// The projector.
    pub projector: String,
    /// Its version.
    pub version: String,
    /// The name of the state's type.
    pub payload_type: String,
    /// The last event that counts in it.
    pub last: Option<SortableId>,
    /// How many events do.
    pub events: u64,
    /// Whether it has once seen all that there was.
    pub caught_up: bool,
}

fn malformed(why: &str) -> Refused {
    Refused::Malformed { what: "projection state", why: why.into() }
}

fn unpacked(packed: &[u8]) -> Result<Bytes> {
    if !packed.starts_with(&[0x1f, 0x8b]) {
        return Ok(Bytes::copy_from_slice(packed));
    }
    let mut state = Vec::new();
    std::io::Read::read_to_end(&mut GzDecoder::new(packed), &mut state).map_err(|_| malformed("its payload is not gzip"))?;
    Ok(state.into())
}

/// The state inside an envelope: base64 of gzip, or a pointer.
pub fn payload(envelope: &[u8]) -> Result<Payload> {
    let json: Json = serde_json::from_slice(envelope).map_err(|_| malformed("its envelope is not JSON"))?;
    if let Some(away) = json["offloadedState"].as_object() {
        let of = |name: &str| away.get(name).and_then(Json::as_str).unwrap_or_default().to_owned();
        return Ok(Payload::Offloaded { key: of("offloadKey"), provider: of("storageProvider") });
    }
    let here = &json["inlineState"];
    if let Some(text) = here["payloadJson"].as_str() {
        return Ok(Payload::Here(Bytes::copy_from_slice(text.as_bytes())));
    }
    let Some(packed) = here["payloadBase64"].as_str() else { return Ok(Payload::None) };
    let packed = STANDARD.decode(packed).map_err(|_| malformed("its payload is not base64"))?;
    Ok(Payload::Here(unpacked(&packed)?))
}

/// The blob that an envelope points to, if it does; none where it is no envelope.
#[cfg(feature = "offload")]
fn points_to(envelope: &[u8]) -> Option<Option<String>> {
    let json: Json = serde_json::from_slice(envelope).ok().filter(Json::is_object)?;
    match &json["offloadedState"] {
        Json::Null => Some(None),
        away => away["offloadKey"].as_str().map(|key| Some(key.to_owned())),
    }
}

impl Sekiban {
    /// A row for a state, with its envelope inline; whoever writes it puts it into the bucket if it is too large.
    pub fn row_of(&self, folded: &Folded, state: &[u8]) -> Result<ProjectionRow> {
        let mut packed = Vec::new();
        std::io::Read::read_to_end(&mut GzEncoder::new(state, Compression::fast()), &mut packed)
            .map_err(|_| malformed("it cannot be packed"))?;
        let now = self.dynamo().env().now();
        let threshold = SortableId::threshold(now.checked_sub(self.safe_window()).unwrap_or(now));
        let last = folded.last.map(|last| last.to_string()).unwrap_or_default();
        let envelope = json!({
            "isOffloaded": false,
            "inlineState": {
                "payloadJson": null,
                "payloadBase64": STANDARD.encode(&packed),
                "multiProjectionPayloadType": folded.payload_type,
                "projectorName": folded.projector,
                "projectorVersion": folded.version,
                "lastSortableUniqueId": last,
                "lastEventId": Uuid::nil(),
                "version": folded.events,
                "isCatchedUp": folded.caught_up,
                "isSafeState": folded.last.is_none_or(|last| last <= threshold),
                "originalSizeBytes": state.len(),
                "compressedSizeBytes": packed.len(),
            },
            "offloadedState": null,
        });
        let envelope = envelope.to_string();
        let size = envelope.len() as u64;
        Ok(ProjectionRow {
            projector: folded.projector.clone(),
            version: folded.version.clone(),
            last,
            events: folded.events,
            body: RowBody::Inline(envelope.into()),
            sizes: (size, size),
            safe_window_threshold: threshold.to_string(),
            created_at: self.now_text(),
            build_source: BUILT_BY.into(),
            build_host: None,
            control: Control::default(),
        })
    }

    /// The envelope of a row, wherever it is.
    pub async fn envelope_of(&self, row: &ProjectionRow) -> Result<Bytes> {
        match &row.body {
            RowBody::Inline(envelope) => Ok(envelope.clone()),
            RowBody::Offloaded { key, .. } => self.blob(key).await,
        }
    }

    /// The state of a row, through both levels of offload; none where its envelope holds none.
    pub async fn state_of(&self, row: &ProjectionRow) -> Result<Option<Bytes>> {
        match payload(&self.envelope_of(row).await?)? {
            Payload::Here(state) => Ok(Some(state)),
            Payload::Offloaded { key, .. } => Ok(Some(unpacked(&self.blob(&key).await?)?)),
            Payload::None => Ok(None),
        }
    }

    async fn blob(&self, key: &str) -> Result<Bytes> {
        let Some(blobs) = &self.options().blobs else {
            let remedy = "open with settings that have a section S3BlobStorage, in a build with the feature `offload`".into();
            return Err(Refused::Unsupported { what: format!("the state in blob {key}, without a bucket"), remedy }.into());
        };
        let missing = || Error::corrupt(LAYOUT, format!("blob {key} is missing: give the state up, and it is built anew"));
        blobs.get(key).await?.ok_or_else(missing)
    }

    /// Puts an envelope into the bucket; none where there is no bucket. The name is new every time: one that the collector of blobs takes for
    /// forgotten is never named again.
    pub(super) async fn offload(&self, row: &ProjectionRow, envelope: &Bytes) -> Result<Option<RowBody>> {
        let Some(blobs) = &self.options().blobs else { return Ok(None) };
        let folder = format!("{}/{}/{}", self.keys().service(), row.projector, row.version);
        let key = blobs.key(&folder, &format!("{}-{}.bin", hash(envelope), self.dynamo().env().new_id().simple()));
        blobs.put(&key, envelope.clone()).await?;
        Ok(Some(RowBody::Offloaded { key, provider: PROVIDER.into() }))
    }
}

/// What [`Sekiban::collect_blobs`] removed.
#[cfg(feature = "offload")]
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, serde::Serialize)]
#[non_exhaustive]
pub struct BlobsCollected {
    /// Blobs seen.
    pub seen: u64,
    /// Blobs that no row names, deleted.
    pub deleted: u64,
    /// Their bytes.
    pub bytes: u64,
    /// Blobs that no row names, too young to be deleted.
    pub young: u64,
}

#[cfg(feature = "offload")]
impl Sekiban {
    /// Deletes blobs under the prefix that no row of any service names and that are older than this: longer than anybody takes between putting
    /// a blob and naming it. What is not called as blobs are is left. Reads the whole table of states, which services share.
    /// Another table of states that has the same bucket and prefix is not looked at, and loses its blobs: give each a prefix of its own.
    pub async fn collect_blobs(&self, older_than: std::time::Duration) -> Result<BlobsCollected> {
        let Some(blobs) = &self.options().blobs else {
            let remedy = "open with settings that have a section S3BlobStorage".into();
            return Err(Refused::Unsupported { what: "collecting blobs, without a bucket".into(), remedy }.into());
        };
        // First what is there, then what is named: one that is put in between is not among the first.
        let all: Vec<_> = blobs.all().await?.into_iter().filter(|(key, ..)| super::blobs::is_blob(key)).collect();
        let sizes: std::collections::HashMap<String, u64> = all.iter().map(|(key, bytes, _)| (key.clone(), *bytes)).collect();
        let mut named = std::collections::HashSet::new();
        for row in self.scan_all_rows(|_| true).await? {
            let envelope = match &row.body {
                RowBody::Inline(envelope) => Some(envelope.clone()),
                RowBody::Offloaded { key, .. } => {
                    named.insert(key.clone());
                    // One that holds its state is large; one that is gone leads nowhere.
                    match sizes.get(key) {
                        Some(bytes) if *bytes > POINTER => None,
                        _ => blobs.get(key).await?,
                    }
                }
            };
            let unreadable = || {
                let what = format!(
                    "the envelope of {} {}: what it names is not known, and nothing was collected; give the state up first",
                    row.projector, row.version
                );
                Error::corrupt(LAYOUT, what)
            };
            let points_to = envelope.map(|envelope| points_to(&envelope).ok_or_else(unreadable)).transpose()?;
            named.extend(points_to.flatten());
        }
        let now = self.dynamo().env().now();
        let mut collected = BlobsCollected { seen: all.len() as u64, ..BlobsCollected::default() };
        for (key, bytes, modified) in all.into_iter().filter(|(key, ..)| !named.contains(key)) {
            let age = std::time::Duration::try_from(now.duration_since(modified)).unwrap_or_default();
            if age < older_than {
                collected.young += 1;
                continue;
            }
            blobs.delete(&key).await?;
            collected.deleted += 1;
            collected.bytes += bytes;
        }
        Ok(collected)
    }
}
