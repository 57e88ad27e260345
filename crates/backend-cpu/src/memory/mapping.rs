//! How memory is asked from the system.
//!
//! Invariants: `allocate` gives zeroed bytes aligned to [`ALIGNMENT`]; the way an allocation was made depends on
//! its capacity alone, so `release` needs nothing else to undo it.

use std::alloc::{Layout, alloc_zeroed, dealloc};
use std::fmt;
use std::ptr::NonNull;

use super::ALIGNMENT;

/// The system has no memory left for a buffer of this many bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OutOfMemory {
    /// Bytes asked for.
    pub bytes: usize,
}

impl fmt::Display for OutOfMemory {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "out of memory: {} bytes asked for", self.bytes)
    }
}

impl std::error::Error for OutOfMemory {}

/// From this capacity on, memory is mapped by itself rather than taken from the heap: a huge page.
#[cfg(unix)]
const MAPPED: usize = HUGE_PAGE;

#[cfg(unix)]
const HUGE_PAGE: usize = 2 << 20;

/// A multiple of every page size in use, so that ranges cut at it can be unmapped.
#[cfg(unix)]
const PAGE: usize = 64 << 10;

/// `capacity` zeroed bytes; nothing is allocated for 0.
pub(super) fn allocate(capacity: usize) -> Result<NonNull<u8>, OutOfMemory> {
    #[cfg(unix)]
    if capacity >= MAPPED {
        return map(capacity).ok_or(OutOfMemory { bytes: capacity });
    }
    let layout = Layout::from_size_align(capacity, ALIGNMENT).map_err(|_| OutOfMemory { bytes: capacity })?;
    if capacity == 0 {
        return Ok(layout.dangling_ptr());
    }
    // SAFETY: the layout's size is not zero.
    NonNull::new(unsafe { alloc_zeroed(layout) }).ok_or(OutOfMemory { bytes: capacity })
}

/// Gives an allocation back.
///
/// # Safety
///
/// `start` came from `allocate(capacity)` and is not used any more.
pub(super) unsafe fn release(start: NonNull<u8>, capacity: usize) {
    #[cfg(unix)]
    if capacity >= MAPPED {
        // SAFETY: `map` left exactly these bytes mapped at `start`.
        unsafe { libc::munmap(start.as_ptr().cast(), capacity.next_multiple_of(PAGE)) };
        return;
    }
    if capacity != 0 {
        // SAFETY: `allocate` made it with this very layout, which it had checked.
        unsafe { dealloc(start.as_ptr(), Layout::from_size_align_unchecked(capacity, ALIGNMENT)) }
    }
}

/// Maps `capacity` bytes at a multiple of a huge page.
#[cfg(unix)]
fn map(capacity: usize) -> Option<NonNull<u8>> {
    let used = capacity.checked_next_multiple_of(PAGE)?;
    let whole = used.checked_add(HUGE_PAGE)?;
    // SAFETY: an anonymous private mapping at an address of the system's choice touches nothing that exists.
    let mapped = unsafe {
        libc::mmap(
            std::ptr::null_mut(),
            whole,
            libc::PROT_READ | libc::PROT_WRITE,
            libc::MAP_PRIVATE | libc::MAP_ANON,
            -1,
            0,
        )
    };
    if mapped == libc::MAP_FAILED {
        return None;
    }
    let first = mapped as usize;
    let start = first.next_multiple_of(HUGE_PAGE);
    // What lies before the aligned start and after the last used page goes back at once.
    let end = start + used;
    // SAFETY: both ranges are parts of the new mapping that nobody has seen, and start at page boundaries;
    // unmapping nothing is refused harmlessly. The advice is only advice.
    unsafe {
        if start > first {
            libc::munmap(mapped, start - first);
        }
        if first + whole > end {
            libc::munmap(end as *mut _, first + whole - end);
        }
        #[cfg(target_os = "linux")]
        libc::madvise(start as *mut _, capacity, libc::MADV_HUGEPAGE);
    }
    NonNull::new(start as *mut u8)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mapped_memory_is_zero_writable_and_aligned_to_huge_pages() {
        for capacity in [4 << 20, (4 << 20) + 64, (6 << 20) - 64] {
            let start = allocate(capacity).unwrap();
            assert_eq!(start.as_ptr() as usize % (2 << 20), 0);
            // SAFETY: `allocate` gave `capacity` bytes, released only after their last use.
            unsafe {
                assert_eq!(*start.as_ptr().add(capacity - 1), 0);
                start.as_ptr().add(capacity - 1).write(7);
                assert_eq!(*start.as_ptr().add(capacity - 1), 7);
                release(start, capacity);
            }
        }
    }

    #[test]
    fn nothing_is_allocated_for_no_bytes() {
        let start = allocate(0).unwrap();
        // SAFETY: it came from `allocate(0)`.
        unsafe { release(start, 0) };
    }
}
