//! The program as a user has it: its commands, its server, and what they do with bad input.
#![allow(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

mod command;
mod draft;
mod help;
mod operation;
mod serve;
mod support;
