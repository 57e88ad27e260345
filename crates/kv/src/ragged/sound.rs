//! Whether what was encoded for a row could be stored.

use std::ops::Range;
use tandem_contracts::tensor::{Device, Dtype, Reduce, Result, Tensor};

/// What codecs have said since somebody asked.
#[derive(Clone, Debug, Default)]
pub(crate) struct Sounds(Vec<Sound>);

/// Whether heads of a row could be stored: all of a boolean tensor, or some of its first axis.
#[derive(Clone, Debug)]
struct Sound {
    heads: Tensor,
    range: Option<Range<usize>>,
}

impl Sounds {
    /// Adds a boolean tensor, of which those at `range` of the first axis, or all, are the row's.
    pub(crate) fn note(&mut self, heads: Tensor, range: Option<Range<usize>>) {
        self.0.push(Sound { heads, range });
    }

    /// How many were added.
    pub(crate) fn count(&self) -> usize {
        self.0.len()
    }

    /// Forgets all but the first ones.
    pub(crate) fn truncate(&mut self, count: usize) {
        self.0.truncate(count);
    }

    /// `i32 [1]`: 1 if all could be stored, else 0; none where nothing was encoded.
    pub(crate) fn least(&self, device: &Device) -> Result<Option<Tensor>> {
        let mut flags = Vec::new();
        for Sound { heads, range } in &self.0 {
            let own = match range {
                Some(range) => device.slice(heads, &[range.clone(), 0..heads.shape()[1]])?,
                None => heads.clone(),
            };
            flags.push(device.reshape(&device.cast(&own, Dtype::I32)?, &[own.elements()])?);
        }
        if flags.is_empty() {
            return Ok(None);
        }
        let all = device.concat(&flags.iter().collect::<Vec<_>>(), 0)?;
        device.reduce(Reduce::Minimum, &all, 0).map(Some)
    }
}
