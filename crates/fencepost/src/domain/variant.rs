//! Bodies of enum variants: the fields alone, without the name that serde would wrap them in. Only for the derive.

use std::fmt::Display;
use std::marker::PhantomData;

use serde::de::value::U32Deserializer;
use serde::de::{self, Deserialize, DeserializeSeed, Deserializer, EnumAccess, IgnoredAny, VariantAccess, Visitor};
use serde::ser::{self, Impossible, Serialize, SerializeStruct, SerializeStructVariant, SerializeTuple, SerializeTupleVariant, Serializer};

/// The fields of the variant that `value` is.
pub fn serialize_variant<T: Serialize, S: Serializer>(value: &T, serializer: S) -> Result<S::Ok, S::Error> {
    value.serialize(Fields(serializer))
}

/// The variant at this index, from its fields. By index, since `#[serde(rename_all)]` may call it anything.
pub fn deserialize_variant<'de, T: Deserialize<'de>, D: Deserializer<'de>>(index: usize, deserializer: D) -> Result<T, D::Error> {
    let index = u32::try_from(index).map_err(de::Error::custom)?;
    T::deserialize(Variant { index, fields: deserializer })
}

struct Variant<D> {
    index: u32,
    fields: D,
}

impl<'de, D: Deserializer<'de>> Deserializer<'de> for Variant<D> {
    type Error = D::Error;

    fn deserialize_enum<V: Visitor<'de>>(self, _: &'static str, _: &'static [&'static str], visitor: V) -> Result<V::Value, D::Error> {
        visitor.visit_enum(self)
    }
    fn deserialize_any<V: Visitor<'de>>(self, _: V) -> Result<V::Value, D::Error> {
        Err(de::Error::custom("an enum of events must deserialise as an enum: remove #[serde(tag)] and #[serde(untagged)]"))
    }
    fn is_human_readable(&self) -> bool {
        self.fields.is_human_readable()
    }
    serde::forward_to_deserialize_any! {
        bool i8 i16 i32 i64 i128 u8 u16 u32 u64 u128 f32 f64 char str string bytes byte_buf option unit unit_struct newtype_struct seq
        tuple tuple_struct map struct identifier ignored_any
    }
}

impl<'de, D: Deserializer<'de>> EnumAccess<'de> for Variant<D> {
    type Error = D::Error;
    type Variant = Self;

    fn variant_seed<S: DeserializeSeed<'de>>(self, seed: S) -> Result<(S::Value, Self), D::Error> {
        let name: U32Deserializer<D::Error> = de::IntoDeserializer::into_deserializer(self.index);
        Ok((seed.deserialize(name)?, self))
    }
}

impl<'de, D: Deserializer<'de>> VariantAccess<'de> for Variant<D> {
    type Error = D::Error;

    // A unit variant's body is an empty object, and may have grown fields in a later program.
    fn unit_variant(self) -> Result<(), D::Error> {
        IgnoredAny::deserialize(self.fields).map(|_| ())
    }
    fn newtype_variant_seed<S: DeserializeSeed<'de>>(self, seed: S) -> Result<S::Value, D::Error> {
        seed.deserialize(self.fields)
    }
    fn tuple_variant<V: Visitor<'de>>(self, len: usize, visitor: V) -> Result<V::Value, D::Error> {
        self.fields.deserialize_tuple(len, visitor)
    }
    fn struct_variant<V: Visitor<'de>>(self, fields: &'static [&'static str], visitor: V) -> Result<V::Value, D::Error> {
        self.fields.deserialize_struct("", fields, visitor)
    }
}

struct Fields<S>(S);

/// What a variant of several fields is written by: the inner serializer's struct or tuple.
struct Open<S, Shape>(S, PhantomData<Shape>);
struct AsStruct;
struct AsTuple;

impl<S: SerializeStruct> SerializeStructVariant for Open<S, AsStruct> {
    type Ok = S::Ok;
    type Error = S::Error;
    fn serialize_field<T: Serialize + ?Sized>(&mut self, key: &'static str, value: &T) -> Result<(), S::Error> {
        self.0.serialize_field(key, value)
    }
    fn skip_field(&mut self, key: &'static str) -> Result<(), S::Error> {
        self.0.skip_field(key)
    }
    fn end(self) -> Result<S::Ok, S::Error> {
        self.0.end()
    }
}

impl<S: SerializeTuple> SerializeTupleVariant for Open<S, AsTuple> {
    type Ok = S::Ok;
    type Error = S::Error;
    fn serialize_field<T: Serialize + ?Sized>(&mut self, value: &T) -> Result<(), S::Error> {
        self.0.serialize_element(value)
    }
    fn end(self) -> Result<S::Ok, S::Error> {
        self.0.end()
    }
}

fn not_a_variant<T, E: ser::Error>() -> Result<T, E> {
    Err(E::custom("an enum of events must serialise as an enum: remove #[serde(tag)] and #[serde(untagged)]"))
}

macro_rules! no_variants {
    ($($name:ident: $type:ty),+ $(,)?) => {
        $(fn $name(self, _: $type) -> Result<S::Ok, S::Error> { not_a_variant() })+
    };
}

impl<S: Serializer> Serializer for Fields<S> {
    type Ok = S::Ok;
    type Error = S::Error;
    type SerializeSeq = Impossible<S::Ok, S::Error>;
    type SerializeTuple = Impossible<S::Ok, S::Error>;
    type SerializeTupleStruct = Impossible<S::Ok, S::Error>;
    type SerializeTupleVariant = Open<S::SerializeTuple, AsTuple>;
    type SerializeMap = Impossible<S::Ok, S::Error>;
    type SerializeStruct = Impossible<S::Ok, S::Error>;
    type SerializeStructVariant = Open<S::SerializeStruct, AsStruct>;

    fn is_human_readable(&self) -> bool {
        self.0.is_human_readable()
    }
    fn serialize_unit_variant(self, name: &'static str, _: u32, _: &'static str) -> Result<S::Ok, S::Error> {
        self.0.serialize_struct(name, 0)?.end()
    }
    fn serialize_newtype_variant<T: Serialize + ?Sized>(
        self,
        _: &'static str,
        _: u32,
        _: &'static str,
        value: &T,
    ) -> Result<S::Ok, S::Error> {
        value.serialize(self.0)
    }
    fn serialize_tuple_variant(
        self,
        _: &'static str,
        _: u32,
        _: &'static str,
        len: usize,
    ) -> Result<Self::SerializeTupleVariant, S::Error> {
        Ok(Open(self.0.serialize_tuple(len)?, PhantomData))
    }
    fn serialize_struct_variant(
        self,
        name: &'static str,
        _: u32,
        _: &'static str,
        len: usize,
    ) -> Result<Self::SerializeStructVariant, S::Error> {
        Ok(Open(self.0.serialize_struct(name, len)?, PhantomData))
    }

    no_variants! {
        serialize_bool: bool, serialize_i8: i8, serialize_i16: i16, serialize_i32: i32, serialize_i64: i64, serialize_u8: u8,
        serialize_u16: u16, serialize_u32: u32, serialize_u64: u64, serialize_f32: f32, serialize_f64: f64, serialize_char: char,
        serialize_str: &str, serialize_bytes: &[u8], serialize_unit_struct: &'static str,
    }
    fn serialize_none(self) -> Result<S::Ok, S::Error> {
        not_a_variant()
    }
    fn serialize_some<T: Serialize + ?Sized>(self, _: &T) -> Result<S::Ok, S::Error> {
        not_a_variant()
    }
    fn serialize_unit(self) -> Result<S::Ok, S::Error> {
        not_a_variant()
    }
    fn serialize_newtype_struct<T: Serialize + ?Sized>(self, _: &'static str, _: &T) -> Result<S::Ok, S::Error> {
        not_a_variant()
    }
    fn serialize_seq(self, _: Option<usize>) -> Result<Self::SerializeSeq, S::Error> {
        not_a_variant()
    }
    fn serialize_tuple(self, _: usize) -> Result<Self::SerializeTuple, S::Error> {
        not_a_variant()
    }
    fn serialize_tuple_struct(self, _: &'static str, _: usize) -> Result<Self::SerializeTupleStruct, S::Error> {
        not_a_variant()
    }
    fn serialize_map(self, _: Option<usize>) -> Result<Self::SerializeMap, S::Error> {
        not_a_variant()
    }
    fn serialize_struct(self, _: &'static str, _: usize) -> Result<Self::SerializeStruct, S::Error> {
        not_a_variant()
    }
    fn collect_str<T: Display + ?Sized>(self, _: &T) -> Result<S::Ok, S::Error> {
        not_a_variant()
    }
}
