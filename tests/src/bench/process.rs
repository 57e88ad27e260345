//! What a whole program costs: time from its start to its end, and the most memory that it held.
//!
//! Linux counts the memory of the process that starts a program towards that program's peak, so measure while the
//! process that calls this is small.

use crate::Result;
use std::{
    process::{Command, Stdio},
    time::{Duration, Instant},
};

/// What a program took.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cost {
    /// From start to end.
    pub time: Duration,
    /// Most bytes resident at once.
    pub peak: u64,
}

/// Runs a program to its end, without input and with its output dropped.
///
/// # Errors
/// It does not start, or does not end well.
pub fn run(command: &mut Command) -> Result<Cost> {
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    let start = Instant::now();
    let child = command.spawn().map_err(|error| format!("{command:?}: {error}"))?;
    let (status, usage) = wait(child.id())?;
    let time = start.elapsed();
    if status != 0 {
        return Err(format!("{command:?} ended with wait status: {status}").into());
    }
    // Kilobytes, but on macOS bytes.
    let unit = if cfg!(target_os = "macos") { 1 } else { 1024 };
    Ok(Cost { time, peak: u64::try_from(usage.ru_maxrss)? * unit })
}

/// Waits for a child process and gives its wait status and what it used.
fn wait(process: u32) -> Result<(libc::c_int, libc::rusage)> {
    let process = libc::pid_t::try_from(process)?;
    let mut status = 0;
    // SAFETY: all fields are plain numbers, for which zero is a value.
    let mut usage: libc::rusage = unsafe { std::mem::zeroed() };
    loop {
        // SAFETY: both places are ours and of the types that wait4(2) writes.
        match unsafe { libc::wait4(process, &mut status, 0, &mut usage) } {
            -1 if std::io::Error::last_os_error().kind() == std::io::ErrorKind::Interrupted => {}
            -1 => return Err(std::io::Error::last_os_error().into()),
            _ => return Ok((status, usage)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn time_and_memory_are_those_of_the_program() {
        let cost = run(Command::new("sleep").arg("0.05")).unwrap();
        assert!(cost.time >= Duration::from_millis(50));
        assert!(cost.peak > 0);
    }

    #[test]
    fn a_program_that_fails_is_an_error() {
        assert!(run(&mut Command::new("false")).is_err());
        assert!(run(&mut Command::new("no-such-program-here")).is_err());
    }
}
