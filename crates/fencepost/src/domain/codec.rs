//! Codecs: how the body of an event is written.

use serde::Serialize;
use serde::de::DeserializeSeed;

/// How bodies are written. JSON stays readable in every console; another codec may be smaller.
pub trait Codec: 'static {
    /// For messages.
    const NAME: &'static str;
    /// The value as bytes, or why not. The reason must not quote the value.
    fn encode<T: Serialize>(value: &T) -> Result<Vec<u8>, String>;
    /// The value of these bytes, all of them, or where they do not decode. The reason must not quote them.
    fn decode<'de, S: DeserializeSeed<'de>>(seed: S, bytes: &'de [u8]) -> Result<S::Value, String>;
}

/// JSON text, the default.
#[derive(Debug, Clone, Copy)]
pub struct Json;

impl Codec for Json {
    const NAME: &'static str = "JSON";

    fn encode<T: Serialize>(value: &T) -> Result<Vec<u8>, String> {
        serde_json::to_vec(value).map_err(|error| json_error(&error))
    }

    fn decode<'de, S: DeserializeSeed<'de>>(seed: S, bytes: &'de [u8]) -> Result<S::Value, String> {
        let mut deserializer = serde_json::Deserializer::from_slice(bytes);
        let value = seed.deserialize(&mut deserializer).map_err(|error| json_error(&error))?;
        deserializer.end().map_err(|error| json_error(&error))?;
        Ok(value)
    }
}

/// The category and place only: a message of serde_json's may quote the body.
fn json_error(error: &serde_json::Error) -> String {
    format!("{:?} error at line {} column {}", error.classify(), error.line(), error.column())
}

/// MessagePack with the names of fields, so that bodies evolve as JSON does. Some 20 to 30 % smaller, and not readable in a console.
#[cfg(feature = "msgpack")]
#[derive(Debug, Clone, Copy)]
pub struct MessagePack;

#[cfg(feature = "msgpack")]
impl Codec for MessagePack {
    const NAME: &'static str = "MessagePack";

    fn encode<T: Serialize>(value: &T) -> Result<Vec<u8>, String> {
        rmp_serde::to_vec_named(value).map_err(|_| "the value has no MessagePack form".into())
    }

    fn decode<'de, S: DeserializeSeed<'de>>(seed: S, bytes: &'de [u8]) -> Result<S::Value, String> {
        // As a reader, which moves on in the slice: a deserializer of the slice itself does not say where it stopped.
        let mut rest = bytes;
        let value = seed.deserialize(&mut rmp_serde::Deserializer::new(&mut rest)).map_err(|error| kind_of(&error).to_owned())?;
        if rest.is_empty() { Ok(value) } else { Err(format!("{} bytes follow the value", rest.len())) }
    }
}

/// Without the texts that serde's messages quote.
#[cfg(feature = "msgpack")]
fn kind_of(error: &rmp_serde::decode::Error) -> &'static str {
    use rmp_serde::decode::Error;
    match error {
        Error::InvalidMarkerRead(_) | Error::InvalidDataRead(_) => "it ends too early",
        Error::TypeMismatch(_) => "a value of another type than expected",
        Error::OutOfRange => "a number out of range",
        Error::LengthMismatch(_) => "another number of fields than expected",
        _ => "its fields are not those of the event",
    }
}
