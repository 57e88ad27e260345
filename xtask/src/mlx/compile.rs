//! Compiles mlx-c and the shim into one shared library.
//!
//! Its SONAME is its absolute path, so that whatever links it starts without an rpath, linker flags or
//! `LD_LIBRARY_PATH`; it finds MLX through its own rpath. That suits development and tests; a binary to hand
//! out would need a plain SONAME and an rpath of `$ORIGIN`.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use super::Setup;
use crate::error::{Error, Result};
use crate::{debian, process, workspace};

/// How each file is compiled.
pub(super) const FLAGS: &[&str] = &["-std=c++20", "-O2", "-fPIC", "-DNDEBUG"];

/// Compiles everything, with one compiler for each core.
pub(super) fn run(setup: &Setup) -> Result<()> {
    let sources = sources(setup)?;
    let objects = setup.output.join("objects");
    fs::create_dir_all(&objects).map_err(Error::file(&objects))?;
    let object = |source: &Path| objects.join(source.with_extension("o").file_name().unwrap_or_default());

    println!("compiling mlx-c ({} files) in {}", sources.len(), setup.output.display());
    let next = AtomicUsize::new(0);
    let work = || {
        while let Some(source) = sources.get(next.fetch_add(1, Ordering::Relaxed)) {
            process::quietly(&mut compiler(setup, source, &object(source)))?;
        }
        Ok(())
    };
    thread::scope(|scope| {
        let count = thread::available_parallelism().map_or(1, usize::from);
        let workers: Vec<_> = (0..count).map(|_| scope.spawn(work)).collect();
        let join = |worker: thread::ScopedJoinHandle<'_, Result<()>>| {
            worker
                .join()
                .unwrap_or_else(|_| Err(Error::unexpected("a thread that runs the compiler panicked")))
        };
        workers.into_iter().try_for_each(join)
    })?;
    link(setup, sources.iter().map(|source| object(source)))
}

/// The files of mlx-c and the shim, in a fixed order.
fn sources(setup: &Setup) -> Result<Vec<PathBuf>> {
    let directory = setup.source.mlx_c.join("mlx/c");
    let entries = fs::read_dir(&directory).map_err(Error::file(&directory))?;
    let paths = entries.map(|entry| entry.map(|entry| entry.path()).map_err(Error::file(&directory)));
    let mut sources = paths.collect::<Result<Vec<_>>>()?;
    sources.retain(|path| path.extension().is_some_and(|extension| extension == "cpp"));
    sources.push(workspace::own("shim/compat.cpp"));
    sources.sort();
    Ok(sources)
}

fn compiler(setup: &Setup, source: &Path, object: &Path) -> Command {
    let mut command = Command::new(debian::cxx());
    command.args(FLAGS).arg("-c").arg("-include").arg(workspace::own("shim/compat.h"));
    command.arg("-I").arg(&setup.source.mlx_c);
    command.arg("-isystem").arg(setup.prefix.join("include"));
    command.arg("-o").arg(object).arg(source);
    command
}

fn link(setup: &Setup, objects: impl Iterator<Item = PathBuf>) -> Result<()> {
    let directory = setup.output.join("lib");
    fs::create_dir_all(&directory).map_err(Error::file(&directory))?;
    let library = directory.join("libmlxc.so");
    let mlx = setup.prefix.join("lib");
    let mut command = Command::new(debian::cxx());
    command.arg("-shared").arg("-o").arg(&library).args(objects);
    command.arg("-L").arg(&mlx).arg("-lmlx");
    command.arg(format!("-Wl,-rpath,{}", mlx.display()));
    command.arg(format!("-Wl,-soname,{}", library.display()));
    process::quietly(&mut command)
}
