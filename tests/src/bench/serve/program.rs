//! The `tandem` program from outside: the time from its start until it is ready, and the memory that idle connections cost.

use super::{Plan, client::Client};
use crate::{
    Result,
    bench::engine::figure::{Bar, Figure},
};
use std::{
    io::{BufRead, BufReader},
    net::SocketAddr,
    path::Path,
    process::{Child, Command, Stdio},
    time::Instant,
};

/// Milliseconds until requests are taken, with weights that are mapped, and in the system's cache.
const READY: f64 = 150.0;
/// Connections that ask nothing.
const IDLE: usize = 1000;
/// KiB that each may cost.
const EACH: f64 = 64.0;

/// A running server; ended with the value.
struct Running {
    child: Child,
    address: SocketAddr,
}

impl Drop for Running {
    fn drop(&mut self) {
        // One that has ended needs no ending.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Running {
    /// Starts the program, and waits until it says that it serves.
    fn start(program: &Path, plan: &Plan) -> Result<Self> {
        let mut command = Command::new(program);
        command.args(["serve", "--backend", "cpu", "--port", "0", "--model"]).arg(&plan.model);
        command.args(["--threads", &plan.threads.to_string()]);
        let mut child = command.stdin(Stdio::null()).stdout(Stdio::piped()).spawn()?;
        let mut lines = BufReader::new(child.stdout.take().ok_or("no output")?).lines();
        let address = loop {
            let line = lines.next().ok_or("the program ended before it served")??;
            if let Some((_, address)) = line.split_once("http://") {
                break address.trim().parse()?;
            }
        };
        Ok(Self { child, address })
    }

    /// KiB of memory that it holds.
    fn resident(&self) -> Result<f64> {
        let told = Command::new("ps").args(["-o", "rss=", "-p", &self.child.id().to_string()]).output()?;
        Ok(String::from_utf8(told.stdout)?.trim().parse()?)
    }
}

pub(super) fn measure(program: &Path, plan: &Plan) -> Result<Vec<Figure>> {
    let (mut ready, mut each) = (Vec::new(), Vec::new());
    for turn in 0..=plan.repeat {
        let begun = Instant::now();
        let running = Running::start(program, plan)?;
        if !Client::connect(running.address)?.is_well()? {
            return Err("the program says that it serves, and is not well".into());
        }
        let time = begun.elapsed().as_secs_f64() * 1e3;
        // The first turn brings the file into the system's cache.
        if turn > 0 {
            ready.push(time);
            each.push(idle(&running)?);
        }
    }
    Ok(vec![
        Figure::new("from start to ready", "ms", ready, Bar::AtMost(READY)),
        Figure::new(format!("memory of {IDLE} idle connections, for each"), "KiB", each, Bar::AtMost(EACH)),
    ])
}

/// KiB for each connection that has asked once and asks no more.
fn idle(running: &Running) -> Result<f64> {
    let before = running.resident()?;
    let mut clients = Vec::with_capacity(IDLE);
    for _ in 0..IDLE {
        let mut client = Client::connect(running.address)?;
        client.is_well()?;
        clients.push(client);
    }
    let after = running.resident()?;
    Ok((after - before).max(0.0) / IDLE as f64)
}
