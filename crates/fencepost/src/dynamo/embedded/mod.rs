//! The embedded engine: DynamoDB's operations in this process, behind the SDK's own HTTP seam. Without the feature `embedded`
//! the same names are there and refuse, so that nobody else needs a `cfg`.

#[cfg(not(feature = "embedded"))]
mod disabled;
#[cfg(feature = "embedded")]
mod enabled;

#[cfg(not(feature = "embedded"))]
pub(crate) use disabled::Engine;
#[cfg(feature = "embedded")]
pub use enabled::Engine;
