//! What the locked `mlx-sys` package brings: mlx-c in source, and the version of MLX that it is made for.

use std::fs;
use std::path::{Path, PathBuf};

use serde_json::Value;

use crate::error::{Error, Result};
use crate::workspace;

/// The `mlx-sys` package that the workspace is locked to.
#[derive(Debug)]
pub(super) struct Source {
    /// The version of the package.
    pub(super) mlx_sys: String,
    /// mlx-c in it.
    pub(super) mlx_c: PathBuf,
    /// The version of MLX that mlx-c pins.
    pub(super) mlx: String,
}

impl Source {
    /// Finds it in Cargo's registry cache, where `cargo metadata` puts it if need be.
    pub(super) fn locate() -> Result<Self> {
        let metadata = workspace::metadata()?;
        let packages = metadata["packages"].as_array().into_iter().flatten();
        let package = packages
            .filter(|package| package["name"] == "mlx-sys")
            .find_map(|package| Some((text(package, "manifest_path")?, text(package, "version")?)));
        let (manifest, version) =
            package.ok_or_else(|| Error::unexpected("the workspace does not depend on mlx-sys"))?;
        let mlx_c = Path::new(manifest).with_file_name("src").join("mlx-c");
        let lists = mlx_c.join("CMakeLists.txt");
        let lists = fs::read_to_string(&lists).map_err(Error::file(&lists))?;
        let mlx = pinned(&lists).ok_or_else(|| Error::unexpected("mlx-c pins no version of MLX"))?;
        Ok(Self { mlx_sys: version.to_owned(), mlx: mlx.to_owned(), mlx_c })
    }

    /// Fails unless the MLX in `prefix` is the one that mlx-c pins.
    pub(super) fn check_version(&self, prefix: &Path) -> Result<()> {
        let header = prefix.join("include/mlx/version.h");
        let text = fs::read_to_string(&header).map_err(Error::file(&header))?;
        match declared(&text) {
            Some(found) if found == self.mlx => Ok(()),
            found => {
                let found = found.unwrap_or_else(|| "no version".to_owned());
                Err(Error::unexpected(format!(
                    "mlx-c needs MLX {}, found {found}: {}",
                    self.mlx,
                    header.display()
                )))
            }
        }
    }
}

fn text<'a>(package: &'a Value, key: &str) -> Option<&'a str> {
    package[key].as_str()
}

/// From `GIT_TAG v1.2.3)` in mlx-c's CMakeLists.txt.
fn pinned(lists: &str) -> Option<&str> {
    let tag = lists.lines().find_map(|line| line.trim().strip_prefix("GIT_TAG v"))?;
    Some(tag.trim_end_matches(')').trim())
}

/// From the three `#define MLX_VERSION_*` of MLX's version.h.
fn declared(header: &str) -> Option<String> {
    let part = |name: &str| {
        let prefix = format!("#define MLX_VERSION_{name} ");
        header.lines().find_map(|line| line.strip_prefix(&prefix)).map(str::trim)
    };
    Some(format!("{}.{}.{}", part("MAJOR")?, part("MINOR")?, part("PATCH")?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_pin_is_read_from_the_git_tag() {
        assert_eq!(pinned("  mlx\n    GIT_TAG v0.32.2)\n"), Some("0.32.2"));
        assert_eq!(pinned("GIT_REPOSITORY x\n"), None);
    }

    #[test]
    fn the_declared_version_has_three_parts() {
        let header =
            "#define MLX_VERSION_MAJOR 0\n#define MLX_VERSION_MINOR 32\n#define MLX_VERSION_PATCH 2\n";
        assert_eq!(declared(header).as_deref(), Some("0.32.2"));
        assert_eq!(declared("#define MLX_VERSION_MAJOR 0\n"), None);
    }
}
