//! From MLX's exceptions to the port's errors.
//!
//! Operands are checked before MLX sees them, so an exception is a fault of the device, or memory that ran out.

use mlx_rs::error::Exception;
use tandem_contracts::tensor::{Error, ErrorKind};

/// What building or evaluating a graph gives.
pub(crate) type Outcome<T> = Result<T, Exception>;

/// Parts of the messages in which MLX's allocators and Metal's command buffers say that memory ran out.
const OUT_OF_MEMORY: [&str; 4] = ["[malloc", "[metal::malloc]", "unable to allocate", "insufficient memory"];

/// The error of `operation` that `exception` stands for.
pub(crate) fn failed(operation: &'static str, exception: &Exception) -> Error {
    let text = message(exception.what());
    let lower = text.to_lowercase();
    let kind = if OUT_OF_MEMORY.iter().any(|part| lower.contains(part)) {
        ErrorKind::Memory
    } else {
        ErrorKind::Device
    };
    Error::new(kind, operation, format!("mlx refused: {text}"))
}

/// MLX's own words: the C layer appends ` at <its source file>:<line>`.
fn message(what: &str) -> &str {
    match what.rsplit_once(" at ") {
        Some((text, place)) if place.starts_with('/') => text,
        _ => what,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_place_in_the_c_layer_is_dropped() {
        assert_eq!(
            message("[matmul] bad shapes (2,3) at (1) at /src/mlx/c/ops.cpp:12"),
            "[matmul] bad shapes (2,3) at (1)"
        );
        assert_eq!(message("no stream at hand"), "no stream at hand");
    }

    #[test]
    fn allocator_messages_are_of_kind_memory() {
        let kind = |what: &str| failed("eval", &Exception::custom(what)).kind();
        assert_eq!(kind("[metal::malloc] Attempting to allocate 9 bytes"), ErrorKind::Memory);
        assert_eq!(kind("Command buffer execution failed: Insufficient Memory (8)"), ErrorKind::Memory);
        assert_eq!(kind("There is no Stream(cpu, 0) in current thread."), ErrorKind::Device);
    }
}
