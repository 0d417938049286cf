//! Snapshots in a bucket. Without the feature `offload` there is none, and a row that needs one is refused.

#[cfg(not(feature = "offload"))]
mod disabled;
#[cfg(feature = "offload")]
mod enabled;

#[cfg(not(feature = "offload"))]
pub(crate) use disabled::Blobs;
#[cfg(feature = "offload")]
pub use enabled::Blobs;

use sha2::{Digest, Sha256};

/// What rows say of where their blob is.
pub(super) const PROVIDER: &str = "AwsS3";

/// In a blob's name.
pub(super) fn hash(bytes: &[u8]) -> String {
    Sha256::digest(bytes).iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Whether a key is one that Sekiban or we give to a blob: two parts at least, and the last one a hash, perhaps with an id behind it, or an id.
#[cfg_attr(not(feature = "offload"), allow(dead_code, reason = "nothing is collected"))]
pub(super) fn is_blob(key: &str) -> bool {
    let Some((_, name)) = key.rsplit_once('/') else { return false };
    let Some(stem) = name.strip_suffix(".bin") else { return false };
    let hex = |text: &str, digits: usize| text.len() == digits && text.bytes().all(|b| b.is_ascii_digit() || (b'a'..=b'f').contains(&b));
    match stem.split_once('-') {
        Some((hash, id)) => hex(hash, 64) && hex(id, 32),
        None => hex(stem, 64) || hex(stem, 32),
    }
}

/// The hash that a key promises of its blob.
#[cfg_attr(not(feature = "offload"), allow(dead_code, reason = "nothing is read"))]
pub(super) fn promised(key: &str) -> Option<&str> {
    let stem = key.rsplit_once('/')?.1.strip_suffix(".bin")?;
    let hash = stem.split_once('-').map_or(stem, |(hash, _)| hash);
    (hash.len() == 64).then_some(hash)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_keys_of_blobs_are_taken_for_blobs() {
        let (hash, id) = ("a".repeat(64), "0".repeat(32));
        for key in
            [format!("P/1.0.0/{hash}.bin"), format!("P/{hash}.bin"), format!("pre/fix/P/{id}.bin"), format!("p/s/P/1/{hash}-{id}.bin")]
        {
            assert!(is_blob(&key), "{key}");
        }
        for key in ["photo.jpg".into(), format!("{hash}.bin"), format!("P/{hash}.zst"), "P/1/notes.bin".into(), format!("P/{hash}-x.bin")] {
            assert!(!is_blob(&key), "{key}");
        }
        assert_eq!(promised(&format!("P/{hash}-{id}.bin")), Some(hash.as_str()));
        assert_eq!(promised(&format!("P/{id}.bin")), None);
    }
}
