//! Tokens under keys of somebody else: real keys, made by OpenSSL, in real files.

pub(crate) mod files;
mod kinds;
mod provider;
mod reload;
