//! The shard of an aggregate in v3, as each language's client computed it. None of them agree. Pure.

use std::fmt;
use std::sync::Arc;

/// The shard of a type and a value, of so many.
type Shard = dyn Fn(&str, &str, u64) -> i64 + Send + Sync;

/// Which client's hash spreads the aggregates over shards.
#[derive(Clone)]
pub(crate) enum KeyHash {
    /// SipHash-1-3 under the keys 0, 0 of the value and a byte 0xff: `DefaultHasher` of Rust. Written out, since std may change it.
    Rust,
    /// FNV-1a, 64 bits, of the value.
    Go,
    /// `Math.abs(value.hashCode())`: of Java, Kotlin and Scala.
    Java,
    /// 31 times and add over the UTF-16 of type and value, as an unsigned number of 32 bits.
    Js,
    /// The caller's: type, value, number of shards.
    Own(Arc<Shard>),
}

impl fmt::Debug for KeyHash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl KeyHash {
    pub(super) fn parse(name: &str) -> Option<KeyHash> {
        Some(match name {
            "rust" => KeyHash::Rust,
            "go" => KeyHash::Go,
            "java" => KeyHash::Java,
            "js" => KeyHash::Js,
            _ => return None,
        })
    }

    pub(super) fn name(&self) -> &'static str {
        match self {
            KeyHash::Rust => "rust",
            KeyHash::Go => "go",
            KeyHash::Java => "java",
            KeyHash::Js => "js",
            KeyHash::Own(_) => "own",
        }
    }

    /// The number behind the type in the partition key. Negative for one hash of Java's in four billion, as Java's client has it.
    pub(super) fn shard(&self, type_name: &str, value: &str, shards: u64) -> i64 {
        let reduced = |hash: u64| i64::try_from(hash % shards.max(1)).unwrap_or(0);
        match self {
            KeyHash::Rust => reduced(sip13(value)),
            KeyHash::Go => reduced(fnv1a(value)),
            KeyHash::Java => i64::from(java(value).wrapping_abs()) % i64::try_from(shards.max(1)).unwrap_or(i64::MAX),
            KeyHash::Js => {
                let whole = format!("{type_name}-{value}");
                reduced(u64::from(times31(&whole)))
            }
            KeyHash::Own(hash) => hash(type_name, value, shards),
        }
    }
}

fn sip13(text: &str) -> u64 {
    let mut bytes = text.as_bytes().to_vec();
    bytes.push(0xff);
    let mut v = [0x736f_6d65_7073_6575_u64, 0x646f_7261_6e64_6f6d, 0x6c79_6765_6e65_7261, 0x7465_6462_7974_6573];
    let mut take = |word: u64| {
        v[3] ^= word;
        round(&mut v);
        v[0] ^= word;
    };
    let mut words = bytes.chunks_exact(8);
    for word in words.by_ref() {
        take(word.iter().rev().fold(0, |word, byte| word << 8 | u64::from(*byte)));
    }
    let rest = words.remainder().iter().rev().fold(0, |word, byte| word << 8 | u64::from(*byte));
    take((bytes.len() as u64) << 56 | rest);
    v[2] ^= 0xff;
    (0..3).for_each(|_| round(&mut v));
    v[0] ^ v[1] ^ v[2] ^ v[3]
}

fn round(v: &mut [u64; 4]) {
    v[0] = v[0].wrapping_add(v[1]);
    v[1] = v[1].rotate_left(13) ^ v[0];
    v[0] = v[0].rotate_left(32);
    v[2] = v[2].wrapping_add(v[3]);
    v[3] = v[3].rotate_left(16) ^ v[2];
    v[0] = v[0].wrapping_add(v[3]);
    v[3] = v[3].rotate_left(21) ^ v[0];
    v[2] = v[2].wrapping_add(v[1]);
    v[1] = v[1].rotate_left(17) ^ v[2];
    v[2] = v[2].rotate_left(32);
}

fn fnv1a(text: &str) -> u64 {
    text.bytes().fold(0xcbf2_9ce4_8422_2325, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3))
}

fn java(text: &str) -> i32 {
    times31(text) as i32
}

fn times31(text: &str) -> u32 {
    text.encode_utf16().fold(0, |hash: u32, unit| hash.wrapping_mul(31).wrapping_add(u32::from(unit)))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The vectors of the specification, 64 shards: rust, go, java, js.
    #[test]
    fn shards_are_those_that_the_clients_compute() {
        let vectors = [
            ("a", 0x719b_50b9_a4f0_e9f3, 0xaf63_dc4c_8601_ec8c, 97, [51, 12, 33, 63]),
            ("1", 0xe5f3_2291_f16a_d397, 0xaf63_ac4c_8601_9afc, 49, [23, 60, 49, 15]),
            ("01H42K4ABWQ5V2XQEP3A48VE0Z", 0x5930_8e07_e14c_c115, 0xadb1_03af_5fe2_a91a, -964_941_577, [21, 26, 9, 25]),
            ("01H42KBHCW1BZG504J4ZXKA2F2", 0xddce_c349_fba8_3b27, 0x0aa9_9028_5e03_88ca, 725_442_469, [39, 10, 37, 7]),
            ("ユーザー", 0xf03a_18dd_d6e3_0211, 0x309f_2017_1820_053e, 385_373_788, [17, 62, 28, 62]),
        ];
        for (value, rust, go, java_hash, shards) in vectors {
            assert_eq!((sip13(value), fnv1a(value), java(value)), (rust, go, java_hash), "{value}");
            let all = [KeyHash::Rust, KeyHash::Go, KeyHash::Java, KeyHash::Js];
            assert_eq!(all.map(|hash| hash.shard("user-account", value, 64)), shards, "{value}");
        }
    }

    #[test]
    fn the_absolute_value_of_the_lowest_number_is_itself_as_in_java() {
        // "polygenelubricants" is the known string whose hashCode is the lowest number.
        assert_eq!(java("polygenelubricants"), i32::MIN);
        assert_eq!(KeyHash::Java.shard("t", "polygenelubricants", 3), -2);
        assert_eq!(KeyHash::Java.shard("t", "polygenelubricants", 64), 0);
    }

    #[test]
    fn rust_is_what_the_standard_library_hashes_to_today() {
        use std::hash::{DefaultHasher, Hash, Hasher};
        for value in ["", "1234567", "12345678", "123456789", "a somewhat longer value, of more than two words"] {
            let mut hasher = DefaultHasher::new();
            value.hash(&mut hasher);
            assert_eq!(sip13(value), hasher.finish(), "{value}");
        }
    }
}
