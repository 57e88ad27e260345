//! The program as a user has it: its commands, its server, and what they do with bad input.

mod command;
mod serve;
mod support;
