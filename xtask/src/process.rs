//! Running other programs. Whatever changes something is shown before it starts.

use std::path::Path;
use std::process::{Command, Stdio};

use crate::error::{Error, Result};

/// Shows the command, runs it with this process's input and output, and fails unless it succeeds.
pub(crate) fn run(command: &mut Command) -> Result<()> {
    announce(command);
    quietly(command)
}

/// Like [`run`], without showing the command.
pub(crate) fn quietly(command: &mut Command) -> Result<()> {
    let status = command.status().map_err(|error| failed(command, error.to_string()))?;
    if status.success() { Ok(()) } else { Err(failed(command, status.to_string())) }
}

/// What the command prints on its standard output.
pub(crate) fn capture(command: &mut Command) -> Result<String> {
    let output = command.output().map_err(|error| failed(command, error.to_string()))?;
    if !output.status.success() {
        let stderr = String::from_utf8_lossy(&output.stderr);
        return Err(failed(command, format!("{}, {}", output.status, stderr.trim())));
    }
    String::from_utf8(output.stdout).map_err(|error| failed(command, error.to_string()))
}

/// Whether the command starts and succeeds; what it prints is dropped.
pub(crate) fn succeeds(command: &mut Command) -> bool {
    let silent = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    silent.status().is_ok_and(|status| status.success())
}

/// Shows the command line that is about to run.
pub(crate) fn announce(command: &Command) {
    println!("$ {}", line(command));
}

/// The error of a command that did not do its work.
pub(crate) fn failed(command: &Command, outcome: String) -> Error {
    Error::Command { line: line(command), outcome }
}

/// The command as one would type it, without the program's directory. Only for reading: quoting is minimal.
fn line(command: &Command) -> String {
    let program = Path::new(command.get_program());
    let name = program.file_name().unwrap_or(program.as_os_str());
    let words = std::iter::once(name).chain(command.get_args());
    let quoted = words.map(|word| {
        let word = word.to_string_lossy();
        if word.is_empty() || word.contains([' ', '\n', '"']) {
            format!("'{word}'")
        } else {
            word.into_owned()
        }
    });
    quoted.collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_reads_as_typed() {
        let mut command = Command::new("/opt/bin/cargo");
        command.args(["test", "--", "two words", ""]);
        assert_eq!(line(&command), "cargo test -- 'two words' ''");
    }

    #[test]
    fn a_failure_names_the_command_and_its_status() {
        let error = quietly(Command::new("sh").args(["-c", "exit 3"])).unwrap_err();
        assert_eq!(error.to_string(), "exit status: 3: sh -c 'exit 3'");
    }

    #[test]
    fn a_program_that_is_not_there_is_an_error() {
        assert!(capture(&mut Command::new("no-such-program-here")).is_err());
        assert!(!succeeds(&mut Command::new("no-such-program-here")));
    }

    #[test]
    fn output_is_captured() {
        assert_eq!(capture(Command::new("sh").args(["-c", "echo one"])).unwrap(), "one\n");
    }
}
