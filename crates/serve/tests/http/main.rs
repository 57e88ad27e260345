//! The server over HTTP: a real engine with a scripted model, and a client on a bare socket.

mod anthropic;
mod chart;
mod chat;
mod document;
mod draft;
mod endpoints;
mod fill;
mod guard;
mod hostile;
mod lifetime;
mod long;
mod mlx_lm;
mod refusal;
mod responses;
mod scores;
mod slow;
mod structure;
mod support;
mod tool;
