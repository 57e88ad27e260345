//! A row as bytes, and back.
//!
//! ```text
//!   offset  bytes
//!        0      8  "TANDEMKV"
//!        8      4  version, 1
//!       12      4  length of the header
//!       16     32  SHA-256 of the header
//!       48      .  header
//!        .      .  planes, each from a multiple of 4096 on, so that a file can be mapped; zeros between them
//! ```
//!
//! The header: the model's name and the blueprint's signature (length and bytes each), length of the whole, tokens;
//! then for each layer that keeps keys whether it is encoded, and for each plane its length and SHA-256. Numbers are
//! little-endian, of 8 bytes, lengths within the header of 4. A plane is `[heads, positions, extent]`, of the positions
//! that the row's next step reads and no others. A layer that carries a state has two planes, its tail and its matrix,
//! unless the row is empty.
//!
//! Invariant: bytes are checked whole before anything is made of them on the device. What is cut off, changed, of a later version, of
//! another model or of other layers is an error that says so.

use super::{
    cell::Cell,
    kit::{Kit, Layout, Source},
    layer::Layer,
    row::{Kept, RaggedRow},
    store::{Store, moved},
};
use crate::{RecurrentShape, codec::Field, recurrence::State};
use sha2::{Digest, Sha256};
use std::rc::Rc;
use tandem_contracts::tensor::{Device, Dtype, Error, ErrorKind, Result, Tensor};

const MAGIC: &[u8; 8] = b"TANDEMKV";
const VERSION: u32 = 1;
/// Bytes before the header.
const PREAMBLE: usize = 48;
const PAGE: usize = 4096;
const HASH: usize = 32;
/// No row has more tokens, so that positions are far from where they overflow.
const MOST_TOKENS: usize = 1 << 40;

impl RaggedRow {
    /// The row's bytes, for [`RaggedRow::restore`] with the same `model`, a name that no other model has.
    ///
    /// # Errors
    /// The row is unusable or in a step, or the device's own: the planes are evaluated and downloaded.
    pub fn snapshot(&self, model: &[u8]) -> Result<Vec<u8>> {
        self.check_idle()?;
        let device = self.kit().device();
        let mut layers = Vec::new();
        for layer in self.layers() {
            let (encoded, planes) = match layer {
                Kept::Keys(layer) => {
                    let runs = layer.place.sight(self.tokens(), 0);
                    let planes = if runs.is_empty() { Vec::new() } else { layer.store.cut(device, &runs)? };
                    (Some(layer.encoded), planes)
                }
                Kept::State(cell) if self.tokens() > 0 => (None, cell.planes().cloned().collect()),
                Kept::State(_) | Kept::Nothing => (None, Vec::new()),
            };
            let planes = planes.iter().map(|plane| device.download(plane)).collect::<Result<Vec<_>>>()?;
            layers.push((encoded, planes));
        }
        let signature = self.kit().blueprint().signature();
        // The header's length does not depend on the whole's, so that it can be measured first.
        let measured = header(model, &signature, (0, self.tokens()), &layers)?.len();
        let planes = layers.iter().flat_map(|(_, planes)| planes);
        let end =
            planes.clone().fold(PREAMBLE + measured, |end, plane| end.next_multiple_of(PAGE) + plane.len());
        let header = header(model, &signature, (end, self.tokens()), &layers)?;

        let mut bytes = Vec::with_capacity(end);
        bytes.extend(MAGIC);
        bytes.extend(VERSION.to_le_bytes());
        bytes.extend(length(header.len())?);
        bytes.extend(Sha256::digest(&header));
        bytes.extend(&header);
        for plane in planes {
            bytes.resize(bytes.len().next_multiple_of(PAGE), 0);
            bytes.extend(plane);
        }
        Ok(bytes)
    }

    /// The row that [`RaggedRow::snapshot`] made these bytes of.
    ///
    /// # Errors
    /// `Data`, with the reason, where the bytes are not those of a row of this model and kit; or the device's own.
    pub fn restore(kit: Rc<Kit>, model: &[u8], bytes: &[u8]) -> Result<Self> {
        let header = check_preamble(bytes)?;
        let after = PREAMBLE + header.len();
        let mut header = Reader(header);
        if header.block()? != model {
            return Err(refused("it is of another model"));
        }
        if header.block()? != kit.blueprint().signature() {
            return Err(refused("it is of other layers, or stored otherwise"));
        }
        let (end, tokens) = (header.number()?, header.number()?);
        if end != bytes.len() {
            return Err(refused(&format!("it should have {end} bytes, and has: {}", bytes.len())));
        }
        if tokens > MOST_TOKENS {
            return Err(refused(&format!("no row has so many tokens: {tokens}")));
        }
        let mut planes = Planes { bytes, at: after };
        let mut layers = Vec::new();
        for source in kit.layers() {
            layers.push(match source {
                Source::Own(layout) => read_layer(layout, tokens, &mut header, &mut planes)?,
                Source::State(shape) => {
                    let tail = kit.blueprint().policy().dtype();
                    Checked::State(read_state((*shape, tail), tokens, &mut header, &mut planes)?)
                }
                Source::Shared(_) => Checked::Nothing,
            });
        }
        if !header.0.is_empty() || planes.at != bytes.len() {
            return Err(refused("it has more than a row's bytes"));
        }
        let layers =
            layers.into_iter().map(|layer| layer.make(kit.device(), tokens)).collect::<Result<_>>()?;
        Ok(Self::stored(kit, layers, tokens))
    }
}

fn header(
    model: &[u8],
    signature: &[u8],
    (end, tokens): (usize, usize),
    layers: &[(Option<bool>, Vec<Vec<u8>>)],
) -> Result<Vec<u8>> {
    let mut header = Vec::new();
    for block in [model, signature] {
        header.extend(length(block.len())?);
        header.extend(block);
    }
    for number in [end, tokens] {
        header.extend((number as u64).to_le_bytes());
    }
    for (encoded, planes) in layers {
        header.extend(encoded.map(u8::from));
        for plane in planes {
            header.extend((plane.len() as u64).to_le_bytes());
            header.extend(Sha256::digest(plane));
        }
    }
    Ok(header)
}

fn length(length: usize) -> Result<[u8; 4]> {
    let short = u32::try_from(length).map_err(|_| refused(&format!("the header is too long: {length}")))?;
    Ok(short.to_le_bytes())
}

/// The header, after everything before it has been checked.
fn check_preamble(bytes: &[u8]) -> Result<&[u8]> {
    let mut reader = Reader(bytes);
    if reader.take(MAGIC.len())? != MAGIC {
        return Err(refused("it does not begin as one"));
    }
    let version = reader.short()?;
    if version != VERSION as usize {
        return Err(refused(&format!("this program reads version {VERSION}, got: {version}")));
    }
    let length = reader.short()?;
    let hash = reader.take(HASH)?;
    let header = reader.take(length)?;
    if Sha256::digest(header)[..] != *hash {
        return Err(refused("its header was changed"));
    }
    Ok(header)
}

/// A layer whose bytes were checked.
enum Checked<'a> {
    /// The planes of its codecs, none where the next step reads nothing.
    Keys {
        layout: &'a Layout,
        encoded: bool,
        planes: Vec<Plane<'a>>,
    },
    /// Tail and matrix, none of an empty row.
    State(Option<[Plane<'a>; 2]>),
    Nothing,
}

/// As many bytes as the shape takes.
struct Plane<'a> {
    bytes: &'a [u8],
    dtype: Dtype,
    shape: Vec<usize>,
}

impl Plane<'_> {
    fn make(&self, device: &Device) -> Result<Tensor> {
        device.upload(self.bytes, self.dtype, &self.shape)
    }
}

impl Checked<'_> {
    fn make(self, device: &Device, tokens: usize) -> Result<Kept> {
        let (layout, encoded, planes) = match self {
            Self::Keys { layout, encoded, planes } => (layout, encoded, planes),
            Self::State(None) => return Ok(Kept::State(Cell::default())),
            Self::State(Some([tail, matrix])) => {
                let (tail, matrix) = (tail.make(device)?, matrix.make(device)?);
                return Ok(Kept::State(Cell::stored(Some(State { tail, matrix }))));
            }
            Self::Nothing => return Ok(Kept::Nothing),
        };
        let fresh = layout.place();
        if planes.is_empty() {
            return Ok(Kept::Keys(Layer { place: fresh, store: Store::Empty, encoded }));
        }
        let held = planes.iter().map(|plane| plane.make(device)).collect::<Result<Vec<_>>>()?;
        let place = fresh.room(layout.growth, tokens, 0);
        let of = (&layout.coders(encoded).fields()?[..], layout.shape.heads);
        let planes = moved(device, of, place.capacity(), &held, &place.spread(tokens))?;
        Ok(Kept::Keys(Layer { place, store: Store::Held(planes), encoded }))
    }
}

fn read_layer<'a>(
    layout: &'a Layout,
    tokens: usize,
    header: &mut Reader<'_>,
    planes: &mut Planes<'a>,
) -> Result<Checked<'a>> {
    let encoded = match header.take(1)? {
        [0] => false,
        [1] => true,
        other => return Err(refused(&format!("a layer is encoded or not, got: {other:?}"))),
    };
    let possible = match layout.transition.boundary() {
        None => encoded,
        Some(start) if encoded => tokens >= start,
        Some(start) => tokens <= start,
    };
    if !possible {
        return Err(refused(&format!("a layer of {tokens} tokens cannot be encoded: {encoded}")));
    }
    let positions = layout.place().reads(tokens).map(|range| range.len()).iter().sum();
    let fields = if positions == 0 { Vec::new() } else { layout.coders(encoded).fields()? };
    let plane = |field: &Field| {
        let shape = vec![1, layout.shape.heads, positions, field.extent];
        planes.read(header, field.dtype, shape)
    };
    let planes = fields.iter().map(plane).collect::<Result<_>>()?;
    Ok(Checked::Keys { layout, encoded, planes })
}

/// The planes of a state, its tail in a dtype of its own.
fn read_state<'a>(
    (shape, tail): (RecurrentShape, Dtype),
    tokens: usize,
    header: &mut Reader<'_>,
    planes: &mut Planes<'a>,
) -> Result<Option<[Plane<'a>; 2]>> {
    if tokens == 0 {
        return Ok(None);
    }
    let tail = planes.read(header, tail, shape.tail().to_vec())?;
    Ok(Some([tail, planes.read(header, Dtype::F32, shape.matrix().to_vec())?]))
}

/// What is left of the header.
struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    fn take(&mut self, count: usize) -> Result<&'a [u8]> {
        let (taken, left) = self.0.split_at_checked(count).ok_or_else(|| refused("it is cut off"))?;
        self.0 = left;
        Ok(taken)
    }

    fn short(&mut self) -> Result<usize> {
        let bytes = self.take(4)?;
        Ok(bytes.iter().rev().fold(0, |number, &byte| number << 8 | usize::from(byte)))
    }

    fn number(&mut self) -> Result<usize> {
        let bytes = self.take(8)?;
        let number = bytes.iter().rev().fold(0, |number, &byte| number << 8 | u64::from(byte));
        usize::try_from(number).map_err(|_| refused(&format!("a number is too large: {number}")))
    }

    fn block(&mut self) -> Result<&'a [u8]> {
        let length = self.short()?;
        self.take(length)
    }
}

/// The planes, one after the other.
struct Planes<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl<'a> Planes<'a> {
    /// The next plane, which must have this shape.
    fn read(&mut self, header: &mut Reader<'_>, dtype: Dtype, shape: Vec<usize>) -> Result<Plane<'a>> {
        let needed = shape.iter().try_fold(dtype.size(), |bytes, &extent| bytes.checked_mul(extent));
        let (length, hash) = (header.number()?, header.take(HASH)?);
        if needed != Some(length) {
            return Err(refused(&format!("{dtype:?} {shape:?} does not have a plane of bytes: {length}")));
        }
        Ok(Plane { bytes: self.next(length, hash)?, dtype, shape })
    }

    fn next(&mut self, length: usize, hash: &[u8]) -> Result<&'a [u8]> {
        let cut = || refused("it is cut off");
        let first = self.at.checked_next_multiple_of(PAGE).ok_or_else(cut)?;
        let end = first.checked_add(length).ok_or_else(cut)?;
        let between = self.bytes.get(self.at..first).ok_or_else(cut)?;
        let plane = self.bytes.get(first..end).ok_or_else(cut)?;
        if !between.iter().all(|&byte| byte == 0) || Sha256::digest(plane)[..] != *hash {
            return Err(refused("its planes were changed"));
        }
        self.at = end;
        Ok(plane)
    }
}

fn refused(reason: &str) -> Error {
    Error::new(ErrorKind::Data, "restore", format!("not a row that can be read: {reason}"))
}
