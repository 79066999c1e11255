//! Client of the public API: GraphQL over HTTP and over `graphql-transport-ws`.

mod document;
mod file_limit;
mod http;
mod socket;
mod stamp;
mod target;

pub use self::document::Document;
pub(crate) use self::file_limit::ensure_open_files;
pub use self::http::HttpClient;
pub use self::socket::LoadSocket;
pub(crate) use self::stamp::{BODY_BYTES_MAX, BODY_BYTES_MIN, BodyStamp};
pub use self::target::LoadTarget;
