//! The API as its users see it: every case goes through documents that are prepared and executed as the doors do it.

mod access;
mod characters;
mod cluster;
mod conversation;
mod events;
mod flags;
mod group_events;
mod groups;
mod history;
mod inbox;
mod introduction;
mod large_events;
mod pace;
mod presence;
mod privacy;
mod profile;
mod rates;
mod reaction;
mod receipt;
mod revision;
mod sample;
mod send;
mod shared;
mod subscription;
mod typing;
mod unread;
