//! What the program says of itself, and of what is typed wrong: all of it as people see it.

use crate::support::{tandem, tiny_model};
use insta::assert_snapshot;
use std::{fs, process::Output};

/// Standard output of a command that succeeds.
fn told(arguments: &[&str]) -> String {
    let output = tandem(arguments);
    assert!(output.status.success() && output.stderr.is_empty(), "{output:?}");
    String::from_utf8(output.stdout).unwrap()
}

/// Standard error of a command that fails.
fn refused(arguments: &[&str]) -> String {
    let Output { status, stdout, stderr } = tandem(arguments);
    assert!(!status.success() && stdout.is_empty(), "{status}");
    String::from_utf8(stderr).unwrap()
}

/// On a Mac another backend is the usual one.
#[cfg(not(target_os = "macos"))]
#[test]
fn help_is_what_a_newcomer_needs() {
    assert_snapshot!("help", told(&["--help"]));
    assert_snapshot!("chat", told(&["chat", "-h"]));
    assert_snapshot!("generate", told(&["generate", "--help"]));
    assert_snapshot!("serve", told(&["serve", "--help"]));
}

/// The flags of a server stand in groups too, and every one has its group.
#[test]
fn a_servers_flags_stand_in_groups() {
    let help = told(&["serve", "--help"]);
    for heading in ["Server:", "Model:", "Memory:", "Speed:", "Answer:", "Sharing:", "Access:", "Examples:"] {
        assert!(help.lines().any(|line| line == heading), "{heading}\n{help}");
    }
    let (_, options) = help.split_once("\nOptions:\n").unwrap();
    let options = options.split_once("\n\n").map_or(options, |(own, _)| own);
    let alone: Vec<_> =
        options.lines().filter(|line| line.contains("  --") || line.contains(", --")).collect();
    assert!(alone.len() <= 2, "{alone:?}");
}

#[test]
fn what_is_typed_wrong_is_answered_with_what_was_meant() {
    assert_snapshot!(refused(&["chta"]), @"
    error: unrecognized subcommand 'chta'

      tip: a similar subcommand exists: 'chat'

    Usage: tandem [OPTIONS] <COMMAND>

    For more information, try '--help'.
    ");
    assert_snapshot!(refused(&["chat", "-m", "x", "--temprature", "0"]), @"
    error: unexpected argument '--temprature' found

      tip: a similar argument exists: '--temperature'

    Usage: tandem chat --model <DIR|FILE.gguf> --temperature <T>

    For more information, try '--help'.
    ");
    assert_snapshot!(refused(&["generate", "-p", "Hello"]), @"
    error: the following required arguments were not provided:
      --model <DIR|FILE.gguf>

    Usage: tandem generate --model <DIR|FILE.gguf> --prompt <TEXT>

    For more information, try '--help'.
    ");
    assert_snapshot!(refused(&["chat", "-m", "x", "--kv-quant", "7"]), @"
    error: invalid value '7' for '--kv-quant <HOW>': takes off; 8 or 4, with g32, g64 or g128 behind it; k8v3 (keys of 2, 4, 5 or 8 bits, values of 2, 3, 4, 5 or 8); config; or a file ending in .json

    For more information, try '--help'.
    ");
    assert_snapshot!(refused(&["chat", "-m", "/nowhere/model.gguf"]), @"
    error: /nowhere/model.gguf: No such file or directory (os error 2)
    hint: --model takes a model folder or a GGUF file; `cargo xtask demo` fetches one
    ");
    assert_snapshot!(refused(&["chat", "-v", "-m", "/nowhere/model.gguf"]), @"
    error: /nowhere/model.gguf
      because: No such file or directory (os error 2)
    hint: --model takes a model folder or a GGUF file; `cargo xtask demo` fetches one
    ");
}

/// The log has nothing that the error does not say.
#[test]
fn a_model_that_cannot_be_loaded_is_told_once() {
    let model = tiny_model("once");
    let weights = model.path().join("model.safetensors");
    let bytes = fs::read(&weights).unwrap();
    let (length, rest) = bytes.split_at(8);
    let header = u64::from_le_bytes(length.try_into().unwrap()) as usize;
    // One tensor of another name: the files' heads are well, so that only the engine's thread finds out.
    let renamed =
        String::from_utf8_lossy(&rest[..header]).replacen("model.norm.weight", "model.morn.weight", 1);
    fs::write(&weights, [length, renamed.as_bytes(), &rest[header..]].concat()).unwrap();
    let path = model.path().to_str().unwrap();
    assert_snapshot!(refused(&["generate", "--backend", "cpu", "-m", path, "-p", "x"]), @"error: the model could not be started: the model could not be loaded: load: model.safetensors: tensor model.norm.weight: is not there");
}
