//! `cargo xtask demo`: fetches the starter model, builds the program and serves the model over HTTP.

use std::os::unix::process::CommandExt;
use std::process::Command;

use clap::{Args, ValueEnum};

use crate::error::Result;
use crate::{mlx, model, process, workspace};

/// What `cargo xtask demo` can be told.
#[derive(Args, Clone, Debug)]
pub(crate) struct Options {
    /// The port to serve on, on this machine alone.
    #[arg(long, default_value_t = 8080)]
    port: u16,
    /// Which backend computes.
    #[arg(long, value_enum, default_value_t)]
    backend: Backend,
    /// Fetch and build, and stop there.
    #[arg(long)]
    no_serve: bool,
}

/// A backend of the program.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
enum Backend {
    /// The processor.
    #[default]
    Cpu,
    /// Apple's MLX; on Linux this sets it up first.
    Mlx,
}

impl Backend {
    /// Its name on the program's command line, and of the feature that builds it in.
    fn name(self) -> &'static str {
        match self {
            Self::Cpu => "cpu",
            Self::Mlx => "mlx",
        }
    }
}

/// Runs the command. Serving takes this process's place and ends with Ctrl-C.
pub(crate) fn run(options: &Options) -> Result<()> {
    let model = model::STARTER.fetch()?;
    if options.backend == Backend::Mlx {
        mlx::run(&mlx::Options::default())?;
    }
    let features = ["build", "--release", "--package", "tandem", "--features", options.backend.name()];
    process::run(&mut workspace::cargo(features))?;

    let mut serve = Command::new(workspace::release_program("tandem")?);
    serve.arg("serve").arg("--model").arg(&model).args(["--backend", options.backend.name()]);
    serve.args(["--port", &options.port.to_string()]);
    // So small a model wanders at OpenAI's default temperature of 1, which holds for requests that name none.
    serve.args(["--temperature", "0"]);
    if options.no_serve {
        println!("ready; to serve the model:");
        process::announce(&serve);
        return Ok(());
    }
    println!("{}", invitation(options.port));
    process::announce(&serve);
    let error = serve.exec();
    Err(process::failed(&serve, error.to_string()))
}

/// Where the server will be, and a request to try.
fn invitation(port: u16) -> String {
    format!(
        "\nThe server will listen on http://127.0.0.1:{port} until Ctrl-C. Open that address in a browser,\n\
         or in another terminal:\n\n\
         curl http://127.0.0.1:{port}/v1/chat/completions -H 'Content-Type: application/json' \\\n  \
         -d '{{\"messages\": [{{\"role\": \"user\", \"content\": \"What is the capital of France?\"}}]}}'\n"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_invitation_shows_a_whole_request() {
        insta::assert_snapshot!(invitation(8081), @r#"

        The server will listen on http://127.0.0.1:8081 until Ctrl-C. Open that address in a browser,
        or in another terminal:

        curl http://127.0.0.1:8081/v1/chat/completions -H 'Content-Type: application/json' \
          -d '{"messages": [{"role": "user", "content": "What is the capital of France?"}]}'
        "#);
    }
}
