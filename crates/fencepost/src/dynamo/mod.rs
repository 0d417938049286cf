//! The only room that knows the AWS SDK; it does not know what an event is.

pub(crate) mod embedded;
