//! Where what was typed in conversations is kept.

use std::{env, ffi::OsString, path::PathBuf};

/// `tandem/history` in the folder for the state of programs, as the XDG Base Directory Specification has it
/// (<https://specifications.freedesktop.org/basedir-spec/latest/>). None without a home.
pub(super) fn usual() -> Option<PathBuf> {
    usual_with(|name| env::var_os(name).filter(|value| !value.is_empty()))
}

fn usual_with(variable: impl Fn(&str) -> Option<OsString>) -> Option<PathBuf> {
    let state = variable("XDG_STATE_HOME").map(PathBuf::from).filter(|folder| folder.is_absolute());
    let home = || variable("HOME").map(|home| PathBuf::from(home).join(".local/state"));
    Some(state.or_else(home)?.join("tandem/history"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn with(variables: &[(&str, &str)]) -> Option<PathBuf> {
        usual_with(|name| variables.iter().find(|(key, _)| *key == name).map(|(_, value)| value.into()))
    }

    #[test]
    fn the_state_folder_comes_before_the_home() {
        let home = ("HOME", "/home/a");
        assert_eq!(with(&[home]), Some("/home/a/.local/state/tandem/history".into()));
        assert_eq!(with(&[home, ("XDG_STATE_HOME", "/state")]), Some("/state/tandem/history".into()));
        // The specification has relative paths ignored.
        assert_eq!(
            with(&[home, ("XDG_STATE_HOME", "state")]),
            Some("/home/a/.local/state/tandem/history".into())
        );
        assert_eq!(with(&[]), None);
    }
}
