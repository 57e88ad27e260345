//! The calls that `mlx-rs` has no name for, straight to MLX's C layer.
//!
//! The C layer's own error handler ends the process. `mlx-rs` replaces it before its first fallible operation, so
//! [`install_error_handler`] comes before anything here; a [`Stream`] in hand shows that it did. A failed call says
//! only that it failed: the text goes to storage private to `mlx-rs`.

use crate::error::Outcome;
use mlx_rs::{Array, Dtype, Stream, error::Exception, memory};
use mlx_sys::mlx_array;
use std::ffi::{CStr, c_int};

// Host bytes are handed to MLX as they are.
const _: () = assert!(cfg!(target_endian = "little"), "MLX arrays are little-endian here");

/// Makes MLX report errors instead of ending the process.
pub(crate) fn install_error_handler() -> Outcome<()> {
    memory::active_memory().map(drop)
}

/// Version of the MLX library that is loaded.
pub(crate) fn version() -> Outcome<String> {
    // SAFETY: an empty string is a valid target; its text is copied before it is freed, and freed once.
    unsafe {
        let mut text = mlx_sys::mlx_string_new();
        let status = mlx_sys::mlx_version(&mut text);
        let data = mlx_sys::mlx_string_data(text);
        let version = (!data.is_null()).then(|| CStr::from_ptr(data).to_string_lossy().into_owned());
        mlx_sys::mlx_string_free(text);
        version.filter(|_| status == 0).ok_or_else(|| failure("version"))
    }
}

/// Whether there is a GPU that MLX was built for.
pub(crate) fn has_gpu() -> bool {
    // SAFETY: the device is made here, looked at and freed once.
    unsafe {
        let device = mlx_sys::mlx_device_new_type(mlx_sys::mlx_device_type__MLX_GPU, 0);
        let mut available = false;
        let status = mlx_sys::mlx_device_is_available(&mut available, device);
        mlx_sys::mlx_device_free(device);
        status == 0 && available
    }
}

/// Waits for everything started on `stream`.
pub(crate) fn synchronize(stream: &Stream) -> Outcome<()> {
    // SAFETY: the stream is alive for the call.
    let status = unsafe { mlx_sys::mlx_synchronize(stream.as_ptr()) };
    if status == 0 { Ok(()) } else { Err(failure("synchronize")) }
}

/// A copy of the row-major elements in `bytes`, whose length is that of `dims` and `dtype` (booleans 0 or 1).
pub(crate) fn copy_in(bytes: &[u8], dims: &[i32], dtype: Dtype, element: usize) -> Outcome<Array> {
    // MLX reads whole elements; bytes from a file may lie anywhere.
    let aligned: Vec<u32>;
    let data = if bytes.as_ptr().addr().is_multiple_of(element) {
        bytes.as_ptr()
    } else {
        aligned = bytes.chunks(4).map(word).collect();
        aligned.as_ptr().cast()
    };
    // SAFETY: `data` is aligned and holds the bytes of all elements, as the caller states; MLX copies them.
    let array = unsafe { Array::from_raw_data(data.cast(), dims, dtype) };
    if array.as_ptr().ctx.is_null() { Err(failure("malloc")) } else { Ok(array) }
}

/// Up to four bytes, in place, as a word.
fn word(bytes: &[u8]) -> u32 {
    let mut word = [0; 4];
    word[..bytes.len()].copy_from_slice(bytes);
    u32::from_le_bytes(word)
}

/// Cuts the box `start..stop` out.
pub(crate) fn slice(x: &Array, start: &[i32], stop: &[i32], stream: &Stream) -> Outcome<Array> {
    let steps = vec![1; start.len()];
    let (rank, x) = (start.len(), x.as_ptr());
    result("slice", |result| {
        // SAFETY: arrays and stream are alive for the call; the three lists have `rank` elements each.
        unsafe {
            mlx_sys::mlx_slice(
                result,
                x,
                start.as_ptr(),
                rank,
                stop.as_ptr(),
                stop.len(),
                steps.as_ptr(),
                rank,
                stream.as_ptr(),
            )
        }
    })
}

/// Replaces the box `start..stop`, which has the shape of `update`.
pub(crate) fn slice_update(
    x: &Array,
    update: &Array,
    start: &[i32],
    stop: &[i32],
    stream: &Stream,
) -> Outcome<Array> {
    let steps = vec![1; start.len()];
    let (rank, x, update) = (start.len(), x.as_ptr(), update.as_ptr());
    result("slice_update", |result| {
        // SAFETY: arrays and stream are alive for the call; the three lists have `rank` elements each.
        unsafe {
            mlx_sys::mlx_slice_update(
                result,
                x,
                update,
                start.as_ptr(),
                rank,
                stop.as_ptr(),
                stop.len(),
                steps.as_ptr(),
                rank,
                stream.as_ptr(),
            )
        }
    })
}

/// Bitwise operations of two integer arrays.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Bitwise {
    And,
    Or,
    ShiftLeft,
    ShiftRight,
}

/// Applies a bitwise operation to arrays that broadcast.
pub(crate) fn bitwise(op: Bitwise, a: &Array, b: &Array, stream: &Stream) -> Outcome<Array> {
    let call = match op {
        Bitwise::And => mlx_sys::mlx_bitwise_and,
        Bitwise::Or => mlx_sys::mlx_bitwise_or,
        Bitwise::ShiftLeft => mlx_sys::mlx_left_shift,
        Bitwise::ShiftRight => mlx_sys::mlx_right_shift,
    };
    result("bitwise operation", |result| {
        // SAFETY: arrays and stream are alive for the call.
        unsafe { call(result, a.as_ptr(), b.as_ptr(), stream.as_ptr()) }
    })
}

/// Runs a call that fills in an array and returns 0 where it could.
fn result(what: &str, call: impl FnOnce(*mut mlx_array) -> c_int) -> Outcome<Array> {
    // SAFETY: makes an empty handle, which owns nothing yet.
    let mut array = unsafe { mlx_sys::mlx_array_new() };
    let status = call(&mut array);
    // SAFETY: the handle is empty or the call's result; its owner from here on is `Array`, which frees it once.
    let array = unsafe { Array::from_ptr(array) };
    if status == 0 { Ok(array) } else { Err(failure(what)) }
}

fn failure(what: &str) -> Exception {
    Exception::custom(format!("[{what}] the call failed"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failed_call_is_an_error_and_not_the_end_of_the_process() {
        assert!(install_error_handler().is_ok());
        let x = Array::from_slice(&[1.0f32, 2.0, 3.0], &[3]);
        // One bound too many for one axis.
        let refused = slice(&x, &[0, 0], &[1, 1], &Stream::new());
        assert!(refused.is_err_and(|exception| exception.what().contains("slice")));
    }

    #[test]
    fn bytes_may_lie_anywhere() {
        assert!(install_error_handler().is_ok());
        let bytes: Vec<u8> =
            std::iter::once(0).chain([1.5f32, -2.0].iter().flat_map(|x| x.to_le_bytes())).collect();
        let array = copy_in(&bytes[1..], &[2], Dtype::Float32, 4);
        assert_eq!(array.ok().as_ref().map(Array::as_slice::<f32>), Some(&[1.5, -2.0][..]));
    }

    #[test]
    fn the_library_is_the_one_that_the_bindings_were_written_for() {
        assert!(install_error_handler().is_ok());
        assert_eq!(version().ok().as_deref(), Some("0.32.2"));
    }
}
