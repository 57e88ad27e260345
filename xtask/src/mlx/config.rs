//! The Cargo configuration that stands in for the build script of `mlx-sys`.
//!
//! Cargo takes `[target.<triple>.<links>]` instead of running the script of a package with that `links` key (The
//! Cargo Book, "Overriding Build Scripts"). The same bindings are also named for macOS, without a library: enough
//! for `cargo check --target aarch64-apple-darwin`, which reads them and links nothing.

use std::path::PathBuf;

use serde_json::Value;

use super::Setup;

/// The target whose code can be checked, though not linked, with what is set up here.
const CHECKED: &str = "aarch64-apple-darwin";

/// What the configuration says.
#[derive(Debug)]
pub(super) struct Override {
    output: PathBuf,
    prefix: PathBuf,
    mlx_c: PathBuf,
    version: String,
}

impl Override {
    /// The one for this set-up.
    pub(super) fn of(setup: &Setup) -> Self {
        Self {
            output: setup.output.clone(),
            prefix: setup.prefix.clone(),
            mlx_c: setup.source.mlx_c.clone(),
            version: setup.source.mlx.clone(),
        }
    }

    /// The configuration file's text.
    pub(super) fn render(&self, host: &str) -> String {
        let output = quoted(self.output.display());
        let search = quoted(format_args!("native={}", self.output.join("lib").display()));
        let include = quoted(format_args!("{}/include:{}", self.prefix.display(), self.mlx_c.display()));
        let root = quoted(self.prefix.display());
        let version = quoted(&self.version);
        format!(
            "# Written by `cargo xtask mlx`; not for the repository.\n\
             [target.{host}.mlx]\n\
             rustc-link-search = [{search}]\n\
             rustc-link-lib = [\"dylib=mlxc\"]\n\
             rustc-env = {{ OUT_DIR = {output} }}\n\
             # For build scripts of dependents, as DEP_MLX_*.\n\
             include = {include}\n\
             defines = \"\"\n\
             version = {version}\n\
             root = {root}\n\
             \n\
             # For `cargo check` alone.\n\
             [target.{CHECKED}.mlx]\n\
             rustc-env = {{ OUT_DIR = {output} }}\n"
        )
    }
}

/// A TOML string. A JSON string is one: TOML knows every escape that JSON's writer uses.
fn quoted(text: impl std::fmt::Display) -> String {
    Value::String(text.to_string()).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_configuration_names_both_targets() {
        let setup = Override {
            output: "/cache/out".into(),
            prefix: "/cache/mlx".into(),
            mlx_c: "/registry/mlx \"c\"".into(),
            version: "0.32.2".to_owned(),
        };
        let text = setup.render("x86_64-unknown-linux-gnu");
        insta::assert_snapshot!(text, @r#"
        # Written by `cargo xtask mlx`; not for the repository.
        [target.x86_64-unknown-linux-gnu.mlx]
        rustc-link-search = ["native=/cache/out/lib"]
        rustc-link-lib = ["dylib=mlxc"]
        rustc-env = { OUT_DIR = "/cache/out" }
        # For build scripts of dependents, as DEP_MLX_*.
        include = "/cache/mlx/include:/registry/mlx \"c\""
        defines = ""
        version = "0.32.2"
        root = "/cache/mlx"

        # For `cargo check` alone.
        [target.aarch64-apple-darwin.mlx]
        rustc-env = { OUT_DIR = "/cache/out" }
        "#);
        let parsed: toml::Table = toml::from_str(&text).unwrap();
        let mlx = &parsed["target"]["x86_64-unknown-linux-gnu"]["mlx"];
        assert_eq!(mlx["include"].as_str(), Some("/cache/mlx/include:/registry/mlx \"c\""));
    }
}
