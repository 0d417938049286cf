//! x
#![forbid(unsafe_code)]

mod attrs;
mod expand;
mod model;
mod template;

use proc_macro::TokenStream;

/// Events.
#[proc_macro_derive(Event, attributes(event, tag))]
pub fn derive_event(input: TokenStream) -> TokenStream {
    let expanded = syn::parse(input).and_then(model::Input::check).map(|input| expand::expand(&input));
    expanded.unwrap_or_else(syn::Error::into_compile_error).into()
}
