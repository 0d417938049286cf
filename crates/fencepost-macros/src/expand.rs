//! The implementation of `DomainEvent` as tokens. Names the library and the standard one by absolute paths only.

use proc_macro2::{Ident, Span, TokenStream};
use quote::{format_ident, quote, quote_spanned};
use syn::Path;
use syn::spanned::Spanned;

use crate::model::{Composed, Field, Input, Kind, Piece, Shape};

pub(crate) fn expand(input: &Input) -> TokenStream {
    let Input { ident, krate, .. } = input;
    let mut generics = input.generics.clone();
    for parameter in generics.type_params_mut() {
        parameter.bounds.push(syn::parse_quote!(#krate::__private::serde::Serialize));
        parameter.bounds.push(syn::parse_quote!(#krate::__private::serde::de::DeserializeOwned));
        parameter.bounds.push(syn::parse_quote!(::core::marker::Send));
        parameter.bounds.push(syn::parse_quote!(::core::marker::Sync));
        parameter.bounds.push(syn::parse_quote!('static));
    }
    let (impl_generics, type_generics, where_clause) = generics.split_for_impl();
    let codec = input.codec.as_ref().map_or_else(|| quote!(#krate::Json), |codec| quote!(#codec));
    let kinds = input.kinds.iter().map(|kind| kind_constant(kind, krate));
    let kind_arms = input.kinds.iter().enumerate().map(|(index, kind)| {
        let path = pattern(input.shape, kind);
        quote!(#path { .. } => #index)
    });
    let tag_arms = input.kinds.iter().map(|kind| tag_arm(input.shape, kind, krate));
    let (serialize, deserialize) = bodies(input);
    quote! {
        #[automatically_derived]
        #[allow(deprecated)]
        impl #impl_generics #krate::DomainEvent for #ident #type_generics #where_clause {
            type Codec = #codec;
            const KINDS: &'static [#krate::Kind] = &[#(#kinds),*];

            fn kind(&self) -> usize {
                match self {
                    #(#kind_arms,)*
                }
            }
            fn tags(&self) -> #krate::Result<::std::vec::Vec<#krate::Tag>> {
                let mut tags = ::std::vec::Vec::new();
                match self {
                    #(#tag_arms)*
                }
                ::core::result::Result::Ok(tags)
            }
            fn serialize_body<__S: #krate::__private::serde::Serializer>(
                &self,
                serializer: __S,
            ) -> ::core::result::Result<__S::Ok, __S::Error> {
                #serialize
            }
            fn deserialize_body<'de, __D: #krate::__private::serde::Deserializer<'de>>(
                kind: usize,
                deserializer: __D,
            ) -> ::core::result::Result<Self, __D::Error> {
                #deserialize
            }
        }
    }
}

fn kind_constant(kind: &Kind, krate: &Path) -> TokenStream {
    let Kind { name, aliases, keys, upcasters, .. } = kind;
    let mut constant = quote!(#krate::Kind::new(#name, &[#(#keys),*]));
    if !aliases.is_empty() {
        constant.extend(quote!(.aliases(&[#(#aliases),*])));
    }
    if !upcasters.is_empty() {
        let steps = upcasters.iter().map(|function| {
            quote_spanned! {function.span()=>
                #krate::Upcaster::new(|body| #krate::__private::upcast::<<Self as #krate::DomainEvent>::Codec, _, _>(#function, body))
            }
        });
        constant.extend(quote!(.upcasters(const { &[#(#steps),*] })));
    }
    constant
}

fn bodies(input: &Input) -> (TokenStream, TokenStream) {
    let Input { ident, krate, .. } = input;
    let serde = quote!(#krate::__private::serde);
    match input.shape {
        Shape::Enum => (
            quote!(#krate::__private::serialize_variant(self, serializer)),
            quote!(#krate::__private::deserialize_variant(kind, deserializer)),
        ),
        Shape::Struct => (
            quote!(#serde::Serialize::serialize(self, serializer)),
            quote! {
                let _ = kind;
                #serde::Deserialize::deserialize(deserializer)
            },
        ),
        Shape::UnitStruct => {
            let name = ident.to_string();
            (
                quote!(#serde::ser::SerializeStruct::end(#serde::Serializer::serialize_struct(serializer, #name, 0)?)),
                quote! {
                    let _ = kind;
                    <#serde::de::IgnoredAny as #serde::Deserialize>::deserialize(deserializer)?;
                    ::core::result::Result::Ok(Self)
                },
            )
        }
    }
}

fn pattern(shape: Shape, kind: &Kind) -> TokenStream {
    let ident = &kind.ident;
    if shape == Shape::Enum { quote!(Self::#ident) } else { quote!(Self) }
}

/// The name that a field is bound to: it cannot meet one of the application's, and stands where the field's type does.
fn binding(index: usize, span: Span) -> Ident {
    format_ident!("__field_{index}", span = Span::mixed_site().located_at(span))
}

fn tag_arm(shape: Shape, kind: &Kind, krate: &Path) -> TokenStream {
    let path = pattern(shape, kind);
    let is_used = |index: usize| {
        let in_composed = |composed: &Composed| composed.pieces.iter().any(|piece| matches!(piece, Piece::Field(field) if *field == index));
        !kind.fields[index].tags.is_empty() || kind.composed.iter().any(in_composed)
    };
    let bound = kind.fields.iter().enumerate().filter(|(index, _)| is_used(*index)).map(|(index, field)| {
        let (member, name) = (&field.member, binding(index, field.span));
        quote!(#member: #name)
    });
    let of_fields = kind.fields.iter().enumerate().flat_map(|(index, field)| field_tags(&kind.name, index, field, krate));
    let composed = kind.composed.iter().map(|composed| composed_tag(kind, composed, krate));
    quote! {
        #path { #(#bound,)* .. } => {
            #(#of_fields)*
            #(#composed)*
        }
    }
}

fn field_tags(event_type: &str, index: usize, field: &Field, krate: &Path) -> Vec<TokenStream> {
    let (name, span) = (&field.name, field.span);
    let tags = field.tags.iter().map(|tag| {
        let key = &tag.key;
        let bound = binding(index, span);
        let value = if tag.depth == 0 { bound.clone() } else { Ident::new("__value", Span::mixed_site().located_at(span)) };
        let mut push = quote_spanned!(span=> tags.push(#krate::__private::field_tag(#event_type, #name, #key, #value)?););
        for level in (0..tag.depth).rev() {
            let list = if level == 0 { &bound } else { &value };
            push = quote_spanned!(span=> for #value in ::core::iter::IntoIterator::into_iter(#list) { #push });
        }
        push
    });
    tags.collect()
}

fn composed_tag(kind: &Kind, composed: &Composed, krate: &Path) -> TokenStream {
    let (event_type, template) = (&kind.name, &composed.template);
    let pieces = composed.pieces.iter().map(|piece| match piece {
        Piece::Text(text) => quote!(#krate::__private::Piece::Text(#text)),
        Piece::Field(index) => {
            let field = &kind.fields[*index];
            let (name, value) = (&field.name, binding(*index, field.span));
            quote_spanned!(field.span=> #krate::__private::Piece::Field(#name, #value))
        }
    });
    quote_spanned!(composed.span=> tags.push(#krate::__private::composed_tag(#event_type, #template, &[#(#pieces),*])?);)
}
