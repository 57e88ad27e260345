//! Where things are: the workspace, its build directory, the cache, the compiler's target.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::{
    env,
    fs::{self, File},
};

use serde_json::Value;

use crate::error::{Error, Result};
use crate::process;

/// The workspace's directory.
pub(crate) fn root() -> &'static Path {
    let manifest = Path::new(env!("CARGO_MANIFEST_DIR"));
    manifest.parent().unwrap_or(manifest)
}

/// A file of this package, by its path within it.
pub(crate) fn own(file: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(file)
}

/// The Cargo that runs this program, in the workspace's directory: only from there does it see
/// `.cargo/config.toml`.
pub(crate) fn cargo<'a>(arguments: impl IntoIterator<Item = &'a str>) -> Command {
    let mut command = Command::new(env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    command.current_dir(root()).args(arguments);
    command
}

/// What `cargo metadata` says, dependencies included.
pub(crate) fn metadata() -> Result<Value> {
    let text = process::capture(&mut cargo(["metadata", "--format-version", "1"]))?;
    serde_json::from_str(&text).map_err(|error| Error::unexpected(format!("cargo metadata: {error}")))
}

/// A program that Cargo built in release.
pub(crate) fn release_program(name: &str) -> Result<PathBuf> {
    program("release", name)
}

/// A program that Cargo built, by the folder of its profile.
pub(crate) fn program(profile: &str, name: &str) -> Result<PathBuf> {
    let metadata = metadata()?;
    let target = metadata["target_directory"]
        .as_str()
        .ok_or_else(|| Error::unexpected("cargo metadata: no target_directory"))?;
    Ok(Path::new(target).join(profile).join(name))
}

/// The names of a package's integration tests.
pub(crate) fn test_names(package: &str) -> Result<Vec<String>> {
    let metadata = metadata()?;
    let packages = metadata["packages"].as_array().into_iter().flatten();
    let targets = packages
        .filter(|it| it["name"] == package)
        .filter_map(|it| it["targets"].as_array())
        .flatten()
        .filter(|target| target["kind"][0] == "test");
    Ok(targets.filter_map(|target| target["name"].as_str()).map(str::to_owned).collect())
}

/// The target that the compiler builds for when none is named, such as `x86_64-unknown-linux-gnu`.
pub(crate) fn host() -> Result<String> {
    let rustc = env::var_os("RUSTC").unwrap_or_else(|| "rustc".into());
    let text = process::capture(Command::new(rustc).arg("-vV").current_dir(root()))?;
    let host = text.lines().find_map(|line| line.strip_prefix("host: "));
    host.map(str::to_owned).ok_or_else(|| Error::unexpected("rustc -vV: no host"))
}

/// The directory for what is fetched and built outside the workspace; it is made if need be. It may be
/// deleted at any time: the commands bring back what they miss.
pub(crate) fn cache() -> Result<PathBuf> {
    let directory = cache_directory(|name| env::var_os(name).filter(|value| !value.is_empty()))
        .ok_or_else(|| Error::missing("a home directory", "set HOME, or TANDEM_CACHE to a directory"))?;
    fs::create_dir_all(&directory).map_err(Error::file(&directory))?;
    directory.canonicalize().map_err(Error::file(&directory))
}

/// Keeps a folder of the cache to this process until the handle is dropped: two checkouts may share the cache.
pub(crate) fn lock(folder: &Path) -> Result<File> {
    let path = folder.join("lock");
    let file = File::create(&path).map_err(Error::file(&path))?;
    file.lock().map_err(Error::file(&path))?;
    Ok(file)
}

/// `$TANDEM_CACHE`, or else `tandem` in the user's cache directory (XDG Base Directory Specification).
fn cache_directory(variable: impl Fn(&str) -> Option<OsString>) -> Option<PathBuf> {
    let named = variable("TANDEM_CACHE").map(PathBuf::from);
    let xdg = || Some(Path::new(&variable("XDG_CACHE_HOME")?).join("tandem"));
    let home = || Some(Path::new(&variable("HOME")?).join(".cache/tandem"));
    named.or_else(xdg).or_else(home)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cache_with(variables: &[(&str, &str)]) -> Option<PathBuf> {
        let find = |name: &str| variables.iter().find(|(key, _)| *key == name).map(|(_, value)| value.into());
        cache_directory(find)
    }

    #[test]
    fn the_cache_is_the_named_one_then_the_user_s() {
        let home = ("HOME", "/home/a");
        let xdg = ("XDG_CACHE_HOME", "/caches");
        assert_eq!(cache_with(&[home]), Some("/home/a/.cache/tandem".into()));
        assert_eq!(cache_with(&[home, xdg]), Some("/caches/tandem".into()));
        assert_eq!(cache_with(&[home, xdg, ("TANDEM_CACHE", "/here")]), Some("/here".into()));
        assert_eq!(cache_with(&[]), None);
    }

    #[test]
    fn the_root_holds_the_workspace() {
        let manifest = fs::read_to_string(root().join("Cargo.toml")).unwrap();
        assert!(manifest.contains("[workspace]"));
    }

    #[test]
    fn the_tests_of_a_package_are_its_own() {
        let names = test_names("tandem-tests").unwrap();
        assert!(
            names.contains(&"golden".to_owned()) && !names.contains(&"templates".to_owned()),
            "{names:?}"
        );
    }

    #[test]
    fn the_host_is_a_target_triple() {
        assert!(host().unwrap().split('-').count() >= 3);
    }
}
