//! MLX itself: the build that the Python package index carries for Linux, with a faster BLAS put in.
//!
//! The CPU build brings the reference BLAS (unblocked, one thread). In our own copy of it, never elsewhere,
//! that file is set aside and a link to OpenBLAS takes its name. OpenBLAS chooses its order of sums by the processor, the
//! reference has one: numbers that must be mlx-lm's on every machine are computed with what was set aside.

use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::{fs, io};

use super::{Options, Variant};
use crate::debian;
use crate::error::{Error, Result};
use crate::python;

/// What the reference BLAS is called once it is set aside.
const KEPT: &str = "reference-blas.so";

/// Which BLAS the fetched build is to use.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Blas {
    /// The one that it brings.
    Own,
    /// This file.
    File(PathBuf),
}

impl Blas {
    /// From the command line: `none` or a file.
    pub(super) fn parse(text: &str) -> std::result::Result<Self, String> {
        match text {
            "none" => Ok(Self::Own),
            file => fs::canonicalize(file).map(Self::File).map_err(|error| error.to_string()),
        }
    }

    /// What applies when nothing was said.
    fn detect() -> Self {
        debian::openblas().and_then(|file| file.canonicalize().ok()).map_or(Self::Own, Self::File)
    }
}

/// Fetches the build and gives the directory that holds its `include` and `lib`.
pub(super) fn fetch(options: &Options, cache: &Path) -> Result<PathBuf> {
    let site = python::fetch(options.variant.package(), cache)?;
    let blas = options.blas.clone().unwrap_or_else(Blas::detect);
    if let Some(bundled) = bundled_blas(&site) {
        put(&blas, &bundled).map_err(Error::file(&bundled))?;
    }
    Ok(site.join("mlx"))
}

/// The BLAS that the fetched build for CPUs brought, set aside or not.
pub(super) fn reference_blas(cache: &Path) -> Option<PathBuf> {
    let bundled = bundled_blas(&cache.join(Variant::Cpu.package()))?;
    let kept = bundled.with_file_name(KEPT);
    Some(if kept.exists() { kept } else { bundled })
}

/// The BLAS that the wheel carries: `<package>.libs/libblas-<hash>.so.<version>`.
fn bundled_blas(site: &Path) -> Option<PathBuf> {
    let entries = |directory: &Path| fs::read_dir(directory).into_iter().flatten().flatten();
    let carried =
        entries(site).map(|entry| entry.path()).filter(|path| path.extension().is_some_and(|e| e == "libs"));
    carried
        .flat_map(|directory| entries(&directory).map(|entry| entry.path()).collect::<Vec<_>>())
        .find(|path| path.file_name().is_some_and(|name| name.to_string_lossy().starts_with("libblas-")))
}

/// Puts `blas` where the build looks for its own; touches nothing that is already right.
fn put(blas: &Blas, bundled: &Path) -> io::Result<()> {
    let kept = bundled.with_file_name(KEPT);
    let linked = fs::read_link(bundled).ok();
    match blas {
        Blas::Own if linked.is_none() => Ok(()),
        Blas::Own => fs::rename(&kept, bundled),
        Blas::File(file) if linked.as_ref() == Some(file) => Ok(()),
        Blas::File(file) => {
            if linked.is_none() {
                fs::rename(bundled, &kept)?;
            }
            // Made beside it and renamed over it: a process that starts meanwhile finds one or the other.
            let new = bundled.with_extension("new");
            symlink(file, &new)?;
            fs::rename(&new, bundled)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_blas_is_put_in_replaced_and_taken_out() {
        let site = std::env::temp_dir().join(format!("xtask-blas-{}", std::process::id()));
        let libraries = site.join("mlx_cpu.libs");
        fs::create_dir_all(&libraries).unwrap();
        let bundled = libraries.join("libblas-0123.so.3");
        fs::write(&bundled, "reference").unwrap();
        let (one, two) = (site.join("one"), site.join("two"));
        fs::write(&one, "one").unwrap();
        fs::write(&two, "two").unwrap();

        assert_eq!(bundled_blas(&site).as_ref(), Some(&bundled));
        let read = || fs::read_to_string(&bundled).unwrap();
        for (blas, content) in [
            (Blas::Own, "reference"),
            (Blas::File(one.clone()), "one"),
            (Blas::File(one), "one"),
            (Blas::File(two), "two"),
            (Blas::Own, "reference"),
            (Blas::Own, "reference"),
        ] {
            put(&blas, &bundled).unwrap();
            assert_eq!(read(), content);
        }
        fs::remove_dir_all(&site).unwrap();
    }

    #[test]
    fn the_reference_is_found_whichever_is_used() {
        let cache = std::env::temp_dir().join(format!("xtask-reference-{}", std::process::id()));
        assert_eq!(reference_blas(&cache), None);
        let libraries = cache.join("mlx-cpu/mlx_cpu.libs");
        fs::create_dir_all(&libraries).unwrap();
        let bundled = libraries.join("libblas-0123.so.3");
        fs::write(&bundled, "reference").unwrap();
        for blas in [Blas::Own, Blas::File(cache.join("other")), Blas::Own] {
            put(&blas, &bundled).unwrap();
            assert_eq!(fs::read_to_string(reference_blas(&cache).unwrap()).unwrap(), "reference");
        }
        fs::remove_dir_all(&cache).unwrap();
    }

    #[test]
    fn a_blas_is_none_or_a_file_that_exists() {
        assert_eq!(Blas::parse("none"), Ok(Blas::Own));
        assert!(Blas::parse("/no/such/file").is_err());
    }
}
