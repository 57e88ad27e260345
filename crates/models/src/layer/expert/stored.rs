//! How files hold the matrices of experts: found out by names, taken, and brought into one form.

use super::ExpertNames;
use crate::{
    error::{Error, ErrorKind, Result},
    layer::Loader,
};
use tandem_contracts::tensor::{self, Device, Quantized, Tensor, Weight};

/// One of the forms that [`ExpertNames`] tells.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Form {
    Stacked,
    Apart,
    Joint,
    Paired,
}

/// Where the experts of one block stand.
#[derive(Debug)]
pub(super) struct Stored {
    form: Form,
    /// Paths of the modules that may hold them.
    stacked: String,
    apart: String,
    /// Gate, up and down of an expert that has a module.
    own: [&'static str; 3],
}

impl Stored {
    /// Finds the experts of the block at a path.
    ///
    /// # Errors
    /// They are there in two forms.
    pub(super) fn find(names: &ExpertNames, path: &str, loader: &Loader<'_, '_>) -> Result<Self> {
        let (stacked, apart) = (format!("{path}.{}", names.stacked), format!("{path}.{}", names.apart));
        let found: Vec<_> = [
            (format!("{apart}.0.{}.weight", names.own[0]), Form::Apart),
            (format!("{apart}.gate_up_proj"), Form::Joint),
            (format!("{apart}.gate_up_proj_blocks"), Form::Paired),
            (format!("{stacked}.gate_proj.weight"), Form::Stacked),
        ]
        .into_iter()
        .filter(|(name, _)| loader.weights.contains(name))
        .collect();
        let form = match &found[..] {
            // What is missing is then named as MLX's files have it.
            [] => Form::Stacked,
            [(_, form)] => *form,
            [(name, _), (other, _), ..] => {
                let message = format!("the same experts are also in: {other}");
                return Err(Error::new(ErrorKind::Tensor, message).of_tensor(name));
            }
        };
        Ok(Self { form, stacked, apart, own: names.own })
    }

    /// The stack of floats that holds gates and ups, if there is one.
    pub(super) fn joint(&self) -> Option<String> {
        (self.form == Form::Joint).then(|| format!("{}.gate_up_proj", self.apart))
    }

    /// Gates and ups, in this order by their outputs; `shape` is that of the experts' gates.
    pub(super) fn entry(&self, shape: [usize; 3], loader: &mut Loader<'_, '_>) -> Result<Vec<Weight>> {
        let [count, width, hidden] = shape;
        let [gate, up, _] = self.own;
        match self.form {
            Form::Joint | Form::Paired => {
                Ok(vec![self.whole("gate_up_proj", [count, 2 * width, hidden], loader)?])
            }
            Form::Stacked | Form::Apart => [("gate_proj", gate), ("up_proj", up)]
                .into_iter()
                .map(|names| self.matrices(names, shape, loader))
                .collect(),
        }
    }

    /// What follows them.
    pub(super) fn exit(&self, shape: [usize; 3], loader: &mut Loader<'_, '_>) -> Result<Weight> {
        match self.form {
            Form::Joint | Form::Paired => self.whole("down_proj", shape, loader),
            Form::Stacked | Form::Apart => self.matrices(("down_proj", self.own[2]), shape, loader),
        }
    }

    /// A stack that is no module.
    fn whole(&self, name: &str, shape: [usize; 3], loader: &mut Loader<'_, '_>) -> Result<Weight> {
        let (path, device) = (format!("{}.{name}", self.apart), loader.device);
        let weight = match self.form {
            Form::Paired => loader.weights.blocks(&path, shape, name == "gate_up_proj", device)?,
            _ => loader.weights.plain(&path, &shape, device)?,
        };
        loader.recoded(&path, weight)
    }

    /// One matrix of each expert, from a stack of that name, or from each expert's own module of the other name.
    fn matrices(
        &self,
        (name, own): (&str, &str),
        shape: [usize; 3],
        loader: &mut Loader<'_, '_>,
    ) -> Result<Weight> {
        if self.form == Form::Stacked {
            return loader.matrix(&format!("{}.{name}", self.stacked), &shape);
        }
        let [count, outputs, inputs] = shape;
        let each = (0..count)
            .map(|expert| loader.matrix(&format!("{}.{expert}.{own}", self.apart), &[outputs, inputs]))
            .collect::<Result<Vec<_>>>()?;
        stack(&each, loader.device)?.ok_or_else(|| {
            let message = "experts are stored in different ways";
            Error::new(ErrorKind::Tensor, message).of_tensor(&format!("{}.0.{own}.weight", self.apart))
        })
    }

    /// Biases of gates and ups, in this order.
    pub(super) fn entry_bias(
        &self,
        [count, width]: [usize; 2],
        loader: &mut Loader<'_, '_>,
    ) -> Result<Tensor> {
        let device = loader.device;
        if self.form == Form::Paired {
            let name = format!("{}.gate_up_proj_bias", self.apart);
            let pairs = loader.weights.floats(&name, &[count, 2 * width], device)?;
            let pairs = device.reshape(&pairs, &[count, width, 2])?;
            return Ok(device.reshape(&device.transpose(&pairs, &[0, 2, 1])?, &[count, 2 * width])?);
        }
        let mut bias = |name: &str| {
            loader.weights.floats(&format!("{}.{name}.bias", self.stacked), &[count, width], device)
        };
        let (gate, up) = (bias("gate_proj")?, bias("up_proj")?);
        Ok(device.concat(&[&gate, &up], 1)?)
    }

    /// Biases of what follows them.
    pub(super) fn exit_bias(&self, extents: [usize; 2], loader: &mut Loader<'_, '_>) -> Result<Tensor> {
        let name = match self.form {
            Form::Paired => format!("{}.down_proj_bias", self.apart),
            _ => format!("{}.down_proj.bias", self.stacked),
        };
        loader.weights.floats(&name, &extents, loader.device)
    }
}

/// Matrices of one form, one behind the other; none where they are of several.
fn stack(each: &[Weight], device: &Device) -> tensor::Result<Option<Weight>> {
    let join = |planes: Vec<&Tensor>| {
        let one = |plane: &&Tensor| device.reshape(plane, &[&[1], plane.shape()].concat());
        let planes = planes.iter().map(one).collect::<tensor::Result<Vec<_>>>()?;
        device.concat(&planes.iter().collect::<Vec<_>>(), 0)
    };
    let dense: Vec<_> = each
        .iter()
        .filter_map(|weight| match weight {
            Weight::Dense(plane) => Some(plane),
            Weight::Affine(_) => None,
        })
        .collect();
    if dense.len() == each.len() {
        return Ok(Some(Weight::Dense(join(dense)?)));
    }
    let affine: Vec<_> = each
        .iter()
        .filter_map(|weight| match weight {
            Weight::Dense(_) => None,
            Weight::Affine(planes) => Some(planes),
        })
        .collect();
    let Some(&Quantized { format, .. }) = affine.first().copied() else { return Ok(None) };
    if affine.len() < each.len() || affine.iter().any(|planes| planes.format != format) {
        return Ok(None);
    }
    let plane = |which: fn(&Quantized) -> &Tensor| join(affine.iter().map(|planes| which(planes)).collect());
    Ok(Some(Weight::Affine(Quantized {
        codes: plane(|planes| &planes.codes)?,
        scales: plane(|planes| &planes.scales)?,
        biases: plane(|planes| &planes.biases)?,
        format,
    })))
}
