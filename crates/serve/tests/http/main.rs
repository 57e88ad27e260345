//! The server over HTTP: a real engine with a scripted model, and a client on a bare socket.

mod anthropic;
mod chat;
mod endpoints;
mod lifetime;
mod refusal;
mod scores;
mod structure;
mod support;
mod tool;
