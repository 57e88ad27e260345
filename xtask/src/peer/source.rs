//! llama.cpp's sources: from the package that carries them, with one mend.
//!
//! GCC 12 may drop the stores of the tile configuration, a structure on the stack, before the instruction that loads
//! it: the intrinsic does not say that it reads memory. The first product with AMX then ends the program with an
//! illegal instruction. A compiler barrier before that one place keeps the stores
//! (<https://github.com/ggml-org/llama.cpp/pull/26954>). Where the place is not found, nothing is built: a newer
//! release may have mended it otherwise, and then this file has to follow.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::error::{Error, Result};
use crate::{process, python, workspace};

/// The package that carries the sources, and the name of its requirements file.
const PACKAGE: &str = "llama-cpp-python";

/// The sources within the package.
const FOLDER: &str = "vendor/llama.cpp";

/// The file that is mended, within the sources.
const MENDED: &str = "ggml/src/ggml-cpu/amx/mmq.cpp";

/// What stands in it once.
const PLACE: &str = "_tile_loadconfig(&tc);";

/// What is put before that.
const BARRIER: &str = r#"asm volatile("" :: "r"(&tc) : "memory"); "#;

/// The mended sources, in a folder that is theirs alone. A later call returns at once, unless the requirements
/// or the mend have changed since.
pub(super) fn fetch(cache: &Path) -> Result<PathBuf> {
    let (package, wanted) = (cache.join("source"), stamp()?);
    let stamp = package.join("stamp");
    if !fs::read_to_string(&stamp).is_ok_and(|present| present == wanted) {
        // Unpacked and mended beside its place and then moved: an interrupted run leaves nothing half done.
        let partial = cache.join("source.partial");
        for old in [&partial, &package] {
            if old.exists() {
                fs::remove_dir_all(old).map_err(Error::file(old))?;
            }
        }
        python::with_source(PACKAGE, cache, |archive| unpack(archive, &partial))?;
        mend(&partial.join(FOLDER).join(MENDED))?;
        fs::write(partial.join("stamp"), wanted).map_err(Error::file(&partial))?;
        fs::rename(&partial, &package).map_err(Error::file(&package))?;
    }
    Ok(package.join(FOLDER))
}

/// All that the sources depend on.
pub(super) fn stamp() -> Result<String> {
    let requirements = workspace::own(&format!("requirements/{PACKAGE}.txt"));
    let text = fs::read_to_string(&requirements).map_err(Error::file(&requirements))?;
    Ok(format!("{text}{BARRIER}{PLACE}\n"))
}

fn unpack(archive: &Path, folder: &Path) -> Result<()> {
    fs::create_dir_all(folder).map_err(Error::file(folder))?;
    let mut tar = Command::new("tar");
    tar.args(["--extract", "--gzip", "--strip-components=1", "--file"]).arg(archive);
    process::run(tar.arg("--directory").arg(folder))
}

fn mend(file: &Path) -> Result<()> {
    let text = fs::read_to_string(file).map_err(Error::file(file))?;
    let mended = mended(&text).ok_or_else(|| {
        Error::unexpected(format!(
            "the place to mend stands {} times, not once, in: {}",
            text.matches(PLACE).count(),
            file.display()
        ))
    })?;
    fs::write(file, mended).map_err(Error::file(file))
}

/// The text with the barrier; `None` unless there is exactly one place for it.
fn mended(text: &str) -> Option<String> {
    let (before, after) = text.split_once(PLACE)?;
    (!after.contains(PLACE)).then(|| format!("{before}{BARRIER}{PLACE}{after}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_barrier_stands_before_the_one_load() {
        let text = "    tc.rows[7] = 16;\n    _tile_loadconfig(&tc);\n    done = true;\n";
        assert_eq!(
            mended(text).as_deref(),
            Some(
                "    tc.rows[7] = 16;\n    asm volatile(\"\" :: \"r\"(&tc) : \"memory\"); _tile_loadconfig(&tc);\n    \
                 done = true;\n"
            )
        );
    }

    #[test]
    fn sources_without_the_place_or_with_two_are_refused() {
        assert_eq!(mended("_tile_loadconfig(&other);"), None);
        assert_eq!(mended(&PLACE.repeat(2)), None);
        let file = std::env::temp_dir().join(format!("xtask-mend-{}", std::process::id()));
        fs::write(&file, "nothing here").unwrap();
        let error = mend(&file).unwrap_err().to_string();
        fs::remove_file(&file).unwrap();
        assert!(error.starts_with("the place to mend stands 0 times, not once, in: "), "{error}");
    }
}
