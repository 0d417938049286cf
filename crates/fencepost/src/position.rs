//! Where things stand: the position of an event, the token of a decision, the checkpoint of a consumer, the base of a try. Pure.

use std::fmt;
use std::str::FromStr;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use bytes::Bytes;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::error::{Refused, Result};
use crate::event::CommitId;

/// Where an event stands in the store's order. Ordered; opaque, but where the store counts its events, as with one lane:
/// there it is 1, 2, 3 … Positions of different stores do not compare.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Position(Place);

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
enum Place {
    Number(u64),
    Stamped { stamp: u64, commit: CommitId, index: u32 },
}

impl Position {
    /// The nth event of a store that counts them, from 1.
    pub fn number(number: u64) -> Self {
        Self(Place::Number(number))
    }
    /// By stamp, then commit, then index in the commit.
    pub fn stamped(stamp: u64, commit: CommitId, index: u32) -> Self {
        Self(Place::Stamped { stamp, commit, index })
    }
    /// Its number, where the store counts.
    pub fn as_number(&self) -> Option<u64> {
        match self.0 {
            Place::Number(number) => Some(number),
            Place::Stamped { .. } => None,
        }
    }
    /// The stamp, where the store orders by it.
    pub fn as_stamped(&self) -> Option<(u64, CommitId, u32)> {
        match self.0 {
            Place::Number(_) => None,
            Place::Stamped { stamp, commit, index } => Some((stamp, commit, index)),
        }
    }
}

impl fmt::Display for Position {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0 {
            Place::Number(number) => number.fmt(f),
            Place::Stamped { stamp, commit, index } => write!(f, "{stamp}.{}.{index}", commit.0.simple()),
        }
    }
}
impl fmt::Debug for Position {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}
impl FromStr for Position {
    type Err = crate::error::Error;
    fn from_str(text: &str) -> Result<Self> {
        let malformed = || Refused::Malformed { what: "position", why: "expected a number, or STAMP.COMMIT.INDEX".into() };
        let mut parts = text.split('.');
        let first: u64 = parts.next().and_then(|n| n.parse().ok()).ok_or_else(malformed)?;
        let place = match (parts.next(), parts.next(), parts.next()) {
            (None, ..) => Place::Number(first),
            (Some(commit), Some(index), None) => Place::Stamped {
                stamp: first,
                commit: CommitId(commit.parse().map_err(|_| malformed())?),
                index: index.parse().map_err(|_| malformed())?,
            },
            _ => return Err(malformed().into()),
        };
        Ok(Self(place))
    }
}
impl TryFrom<String> for Position {
    type Error = crate::error::Error;
    fn try_from(text: String) -> Result<Self> {
        text.parse()
    }
}
impl From<Position> for String {
    fn from(position: Position) -> String {
        position.to_string()
    }
}

/// Bytes that only their layout can read, tagged with its name and guarded by a checksum, and as text in URL-safe base64.
macro_rules! opaque {
    ($(#[$doc:meta])* $name:ident, $what:literal) => {
        $(#[$doc])*
        #[derive(Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
        #[serde(try_from = "String", into = "String")]
        pub struct $name(Sealed);

        impl $name {
            /// For layouts: seals what only they can read.
            pub fn seal(layout: &str, content: &impl Serialize) -> Self {
                Self(Sealed::new(layout, content))
            }
            /// For layouts: opens what they sealed, and refuses what another one did.
            pub fn open<T: DeserializeOwned>(&self, layout: &str) -> Result<T> {
                self.0.open($what, layout)
            }
            /// The layout that made it.
            pub fn layout(&self) -> &str {
                self.0.layout()
            }
        }
        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(&URL_SAFE_NO_PAD.encode(&self.0.0))
            }
        }
        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, concat!(stringify!($name), "({}, {} bytes)"), self.layout(), self.0.0.len())
            }
        }
        impl FromStr for $name {
            type Err = crate::error::Error;
            fn from_str(text: &str) -> Result<Self> {
                Sealed::parse($what, text).map(Self)
            }
        }
        impl TryFrom<String> for $name {
            type Error = crate::error::Error;
            fn try_from(text: String) -> Result<Self> {
                text.parse()
            }
        }
        impl From<$name> for String {
            fn from(value: $name) -> String {
                value.to_string()
            }
        }
    };
}

opaque!(
    /// What a decision read hands back and an append holds against the store. It may travel, or sit beside a cached state.
    Token, "token"
);
opaque!(
    /// How far a consumer has come in a feed.
    Checkpoint, "checkpoint"
);
opaque!(
    /// Where an append that stayed in doubt began: a repeat looks for its commit from here.
    Base, "base"
);

/// length of the layout's name (1) · checksum (4) · name · content. The length comes first so that the text begins with a letter: a
/// checksum could begin it with a dash, and a command line would take that for a flag.
#[derive(Clone, PartialEq, Eq, Hash)]
struct Sealed(Bytes);

const HEADER: usize = 5;

impl Sealed {
    fn new(layout: &str, content: &impl Serialize) -> Self {
        // Names of layouts are constants of a few letters.
        let mut bytes = vec![u8::try_from(layout.len()).unwrap_or(u8::MAX), 0, 0, 0, 0];
        bytes.extend_from_slice(layout.as_bytes());
        #[expect(clippy::expect_used, reason = "plain structs of numbers and texts into memory: postcard has no way to fail")]
        let mut bytes = postcard::to_extend(content, bytes).expect("plain content");
        let checksum = checksum(&bytes);
        bytes[1..HEADER].copy_from_slice(&checksum);
        Self(bytes.into())
    }

    fn layout(&self) -> &str {
        let end = HEADER + usize::from(self.0[0]);
        std::str::from_utf8(&self.0[HEADER..end]).unwrap_or("?")
    }

    fn open<T: DeserializeOwned>(&self, what: &'static str, layout: &str) -> Result<T> {
        if self.layout() != layout {
            return Err(Refused::Foreign { what, of: format!("layout {}", self.layout()), here: format!("layout {layout}") }.into());
        }
        let content = &self.0[HEADER + layout.len()..];
        postcard::from_bytes(content).map_err(|_| Refused::Malformed { what, why: "its content does not decode".into() }.into())
    }

    fn parse(what: &'static str, text: &str) -> Result<Self> {
        let malformed = |why: &str| Refused::Malformed { what, why: why.into() };
        let bytes = URL_SAFE_NO_PAD.decode(text.trim()).map_err(|_| malformed("it is not URL-safe base64"))?;
        let whole = bytes.len() >= HEADER && bytes.len() >= HEADER + usize::from(bytes[0]);
        if !whole || bytes[1..HEADER] != checksum(&bytes) {
            return Err(malformed("its checksum is wrong: it was cut or changed on the way").into());
        }
        Ok(Self(bytes.into()))
    }
}

/// Of all but the checksum itself.
fn checksum(bytes: &[u8]) -> [u8; 4] {
    let mut hasher = crc32fast::Hasher::new();
    hasher.update(&bytes[..1]);
    hasher.update(&bytes[HEADER..]);
    hasher.finalize().to_be_bytes()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::Error;

    #[test]
    fn a_token_survives_text_and_refuses_what_is_not_its_own() {
        let token = Token::seal("ledger", &(7u64, "course:c1"));
        let back: Token = token.to_string().parse().expect("parses");
        assert_eq!(back.open::<(u64, String)>("ledger").expect("opens"), (7, "course:c1".into()));
        assert!(matches!(back.open::<(u64, String)>("equinox"), Err(Error::Refused(Refused::Foreign { .. }))));
        let text = token.to_string();
        for at in 0..text.len() {
            let mut bad = text.clone().into_bytes();
            bad[at] = if bad[at] == b'A' { b'B' } else { b'A' };
            let bad = String::from_utf8(bad).expect("ascii");
            // The last letter carries spare bits: a change there may decode to the same bytes.
            if let Ok(parsed) = bad.parse::<Token>() {
                assert_eq!(parsed, token, "{at}");
            }
        }
        assert!(text[..text.len() - 3].parse::<Token>().is_err());
    }

    #[test]
    fn a_text_never_looks_like_a_flag() {
        for number in 0..1_000u64 {
            let text = Checkpoint::seal("ledger", &number).to_string();
            assert!(text.starts_with(|c: char| c.is_ascii_alphabetic()), "{text}");
        }
    }

    #[test]
    fn positions_order_and_round_trip() {
        let commit = CommitId(uuid::Uuid::from_u128(9));
        let mut places = [Position::stamped(5, commit, 1), Position::stamped(4, commit, 9), Position::stamped(5, commit, 0)];
        places.sort();
        assert_eq!(places.map(|p| p.as_stamped().expect("stamped").2), [9, 0, 1]);
        for place in places.into_iter().chain([Position::number(12)]) {
            assert_eq!(place.to_string().parse::<Position>().expect("parses"), place);
        }
        assert!("1.2".parse::<Position>().is_err());
    }
}
