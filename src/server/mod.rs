//! The doors: what the server answers to whom over HTTP and WebSockets.
pub mod pages;
