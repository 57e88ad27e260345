//! Weight files: what they hold, and how it comes onto a device.
//!
//! ```text
//!   bytes of files --safetensors|gguf--> Weights: name -> (shape, encoding, bytes)
//!                                           |
//!                            matrix(path), vector(name)
//!                                           v
//!                                    handles on a device
//! ```
//!
//! Files of every kind end in one `Weights` with one naming, so that the layers know neither format. Reading a
//! header copies nothing; a tensor's bytes are touched when its handle is made, and its entry is then gone: what is
//! left over after a model was built is what the model does not know.
//!
//! Invariant: nothing is allocated that is larger than a small multiple of the tensor's own bytes in the file.

mod adapter;
mod entry;
mod gguf;
mod microscaling;
mod safetensors;

pub use self::{adapter::Adapter, gguf::GgufVocabulary, safetensors::shards};
pub(crate) use gguf::{Gguf, Value};
pub use microscaling::Format as Microscaling;

use crate::{
    config::Scheme,
    error::{Error, ErrorKind, Result},
};
use entry::{Encoding, Entry};
use std::collections::BTreeMap;
use tandem_contracts::tensor::{Device, Dtype, Tensor, Weight};

/// A file's bytes under the name that errors give it. The application maps or reads the file.
#[derive(Clone, Copy, Debug)]
pub struct File<'a> {
    /// Name without folders.
    pub name: &'a str,
    /// The whole file.
    pub bytes: &'a [u8],
}

/// The tensors of a model, under the names of MLX checkpoints.
#[derive(Clone, Debug)]
pub(crate) struct Weights<'a> {
    entries: BTreeMap<String, Entry<'a>>,
    /// The file that all of them are in, if it is one.
    only: Option<&'a str>,
    /// Bytes of tensors that were taken since the last [`Weights::drain_taken`].
    taken: Vec<&'a [u8]>,
}

impl<'a> Weights<'a> {
    /// Reads safetensors files; see [`shards`] for those that an index names.
    pub(crate) fn safetensors(files: &[File<'a>], index: Option<&[u8]>) -> Result<Self> {
        safetensors::read(files, index)
    }

    /// The tensors of a GGUF file whose model has so many query and key heads.
    pub(crate) fn gguf(file: Gguf<'a>, heads: usize, shared_heads: usize) -> Result<Self> {
        Ok(file.into_entries(heads, shared_heads)?.into())
    }

    /// Whether there is a tensor of that name.
    pub(crate) fn contains(&self, name: &str) -> bool {
        self.entries.contains_key(name)
    }

    /// Forgets tensors that a model does not need.
    pub(crate) fn discard(&mut self, unneeded: impl Fn(&str) -> bool) {
        self.entries.retain(|name, _| !unneeded(name));
    }

    /// Gives names that begin in one of these ways the beginning beside it; the first that fits counts.
    ///
    /// # Errors
    /// Two tensors would have one name.
    pub(crate) fn rename(&mut self, beginnings: &[(&str, &str)]) -> Result<()> {
        for (name, entry) in std::mem::take(&mut self.entries) {
            let fits = |(from, to): &(&str, &str)| Some(format!("{to}{}", name.strip_prefix(from)?));
            let renamed = beginnings.iter().find_map(fits).unwrap_or_else(|| name.clone());
            let file = entry.file;
            if self.entries.insert(renamed.clone(), entry).is_some() {
                return Err(Error::twice(&name, &renamed).in_file(file));
            }
        }
        Ok(())
    }

    /// Whether a tensor has that part in its name.
    pub(crate) fn has_part(&self, part: &str) -> bool {
        self.entries.keys().any(|name| name.contains(part))
    }

    /// Whether a convolution of each channel by itself has its axis of one input in the middle, as PyTorch keeps it:
    /// MLX's converter puts it last.
    pub(crate) fn has_middle_axis(&self) -> bool {
        let middle = |(name, entry): (&String, &Entry<'_>)| {
            name.ends_with("conv1d.weight") && entry.shape().last() != Some(&1)
        };
        self.entries.iter().any(middle)
    }

    /// Checks that every tensor was taken.
    pub(crate) fn finish(&self) -> Result<()> {
        match self.entries.iter().next() {
            None => Ok(()),
            Some((name, entry)) => {
                let message =
                    format!("the model has no such weight, left over in all: {}", self.entries.len());
                Err(Error::new(ErrorKind::Tensor, message).of_tensor(name).in_file(entry.file))
            }
        }
    }

    /// The files' bytes of the tensors that were taken since the last call. They are on the device now.
    pub(crate) fn drain_taken(&mut self) -> impl Iterator<Item = &'a [u8]> {
        self.taken.drain(..)
    }

    /// Takes floats of a shape, in the dtype in which the device computes.
    pub(crate) fn floats(&mut self, name: &str, shape: &[usize], device: &Device) -> Result<Tensor> {
        let entry = self.take(name)?;
        entry.computed(shape, device).map_err(|error| error.of_tensor(name).in_file(entry.file))
    }

    /// The same in f32.
    pub(crate) fn exact_vector(&mut self, name: &str, width: usize, device: &Device) -> Result<Tensor> {
        let entry = self.take(name)?;
        entry.exact(&[width], device).map_err(|error| error.of_tensor(name).in_file(entry.file))
    }

    /// Takes the weight of a convolution of each channel by itself, `[channels, taps]`. Its axis of one input stands last
    /// in MLX's files and in the middle in others; see [`Self::has_middle_axis`].
    pub(crate) fn taps(
        &mut self,
        name: &str,
        [channels, taps]: [usize; 2],
        device: &Device,
    ) -> Result<Tensor> {
        let entry = self.take(name)?;
        let middle = [channels, 1, taps];
        let shape = if entry.shape() == middle { middle } else { [channels, taps, 1] };
        let weight =
            entry.exact(&shape, device).map_err(|error| error.of_tensor(name).in_file(entry.file))?;
        let weight = device.reshape(&weight, &[channels, taps])?;
        Ok(device.cast(&weight, device.traits().compute_dtype)?)
    }

    /// Takes matrices that stand under a name of their own, as floats.
    pub(crate) fn plain(&mut self, name: &str, shape: &[usize], device: &Device) -> Result<Weight> {
        let entry = self.take(name)?;
        entry.matrix(shape, device).map_err(|error| error.of_tensor(name).in_file(entry.file))
    }

    /// Takes the matrices of several experts as gpt-oss's authors store them in MXFP4: `name_blocks` and `name_scales`, with
    /// the rows of two halves in turn if they are `paired`.
    pub(crate) fn blocks(
        &mut self,
        name: &str,
        shape: [usize; 3],
        paired: bool,
        device: &Device,
    ) -> Result<Weight> {
        let ([experts, outputs, inputs], format) = (shape, Microscaling::Mxfp4);
        let group = format.group();
        let [blocks, scales] = [format!("{name}_blocks"), format!("{name}_scales")];
        let [codes, factors] = [self.take(&blocks)?, self.take(&scales)?];
        let pairs = paired.then_some((experts * outputs, experts));
        let plane = |entry: &Entry<'a>, extents: &[usize]| {
            entry::require_groups(&shape, group)?;
            entry.octets(extents, pairs)
        };
        let extents = [experts, outputs, inputs / group, group * format.bits() / 8];
        let of_blocks = |error: Error| error.of_tensor(&blocks).in_file(codes.file);
        let of_scales = |error: Error| error.of_tensor(&scales).in_file(factors.file);
        let codes = plane(&codes, &extents).map_err(of_blocks)?;
        let planes = (codes, plane(&factors, &extents[..3]).map_err(of_scales)?);
        let values = format.decode(&planes.0, &planes.1).map_err(of_scales)?;
        Ok(Weight::Dense(device.upload(&values, Dtype::Bf16, &shape)?))
    }

    /// Takes the weight of a projection, `[outputs, inputs]`, or those of several experts, `[experts, outputs, inputs]`:
    /// `path.weight`, with `path.scales` and `path.biases` where `scheme` quantises it.
    pub(crate) fn matrix(
        &mut self,
        path: &str,
        scheme: Option<Scheme>,
        shape: &[usize],
        device: &Device,
    ) -> Result<Weight> {
        let name = format!("{path}.weight");
        let entry = self.take(&name)?;
        let scales = self.take(&format!("{path}.scales")).ok();
        let weight = match (scales, scheme) {
            (None, _) => entry.matrix(shape, device),
            (Some(_), None) => {
                Err(Error::config("the configuration names no quantisation for this tensor that has scales"))
            }
            (Some(scales), Some(Scheme::Affine(format))) => self
                .take(&format!("{path}.biases"))
                .and_then(|biases| entry.affine([&scales, &biases], format, shape, device)),
            (Some(scales), Some(Scheme::Microscaling(format))) => {
                entry.microscaling(&scales, format, shape, device)
            }
        };
        weight.map_err(|error| error.of_tensor(&name).in_file(entry.file))
    }

    fn take(&mut self, name: &str) -> Result<Entry<'a>> {
        let entry = self.entries.remove(name).ok_or_else(|| self.missing(name))?;
        self.taken.push(entry.bytes);
        Ok(entry)
    }

    fn missing(&self, name: &str) -> Error {
        match self.only {
            Some(file) => Error::new(ErrorKind::Tensor, "is not there").of_tensor(name).in_file(file),
            None => Error::new(ErrorKind::Tensor, "is not in the files").of_tensor(name),
        }
    }
}

impl<'a> From<BTreeMap<String, Entry<'a>>> for Weights<'a> {
    fn from(entries: BTreeMap<String, Entry<'a>>) -> Self {
        let mut files = entries.values().map(|entry| entry.file);
        let only = files.next().filter(|first| files.all(|file| file == *first));
        Self { entries, only, taken: Vec::new() }
    }
}

#[cfg(test)]
mod tests;
