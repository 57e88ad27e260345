//! Tests of the whole engine over a scripted session, without and with its thread.

mod beginning;
mod delivery;
mod draft;
mod drafter;
mod fault;
mod fill;
mod flight;
pub(crate) mod rig;
mod scenario;
mod script;
mod session;
pub(crate) mod structure;
mod thread;
mod timeline;
