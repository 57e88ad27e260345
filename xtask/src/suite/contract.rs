//! The running program against its own description, by Schemathesis; the tour itself is `tests/clients/description.py`.

use std::process::Command;

use super::report::Outcome;
use crate::error::Result;
use crate::{process, python, workspace};

/// The requirements file, and the folder of the cache that holds its environment.
const PACKAGES: &str = "schemathesis";

/// Requests right and wrong, of every endpoint; well below a minute.
pub(super) fn contract(_quick: bool) -> Result<Outcome> {
    process::run(&mut workspace::cargo(["build", "--package", "tandem"]))?;
    let mut tour = Command::new(python::environment(PACKAGES)?);
    tour.arg("description.py").current_dir(workspace::root().join("tests/clients"));
    // Nothing is left in the folder of the sources.
    tour.env("PYTHONDONTWRITEBYTECODE", "1").env("TANDEM_PROGRAM", workspace::program("debug", "tandem")?);
    process::run(&mut tour).map(|()| Outcome::Passed)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_version_is_pinned() {
        let text = std::fs::read_to_string(workspace::own("requirements/schemathesis.txt")).unwrap();
        let lines: Vec<_> = text.lines().filter(|line| !line.is_empty() && !line.starts_with('#')).collect();
        assert!(lines.iter().any(|line| line.split("==").next() == Some(PACKAGES)));
        assert!(lines.iter().all(|line| line.contains("==")));
    }
}
