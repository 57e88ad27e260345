//! Tries the conformance suite on wrong devices and prints what noticed each; ends with a failure when one survives.
//!
//! The suite must first pass on the device itself, wrapped as the mutants are but not altered.

use clap::Parser;
use std::{
    panic,
    process::ExitCode,
    sync::atomic::{AtomicUsize, Ordering},
    thread,
};
use tandem_contracts::{
    conformance::{
        Behaviour,
        mutant::{Mutant, control, killers},
    },
    tensor::Device,
};
use tandem_tests::{Result, device::Backend};

/// Tries the conformance suite on wrong devices.
#[derive(Debug, Parser)]
struct Arguments {
    /// The device that is made wrong.
    #[arg(long, value_enum, default_value_t = Backend::Fake)]
    device: Backend,
    /// Only operations whose name contains this.
    #[arg(long, value_name = "TEXT", default_value = "")]
    operation: String,
    /// Threads, each with its own devices.
    #[arg(long, value_name = "COUNT", default_value_t = 1)]
    jobs: usize,
}

/// What became of a mutant.
struct Verdict {
    mutant: Mutant,
    killers: Vec<&'static Behaviour>,
}

impl Verdict {
    fn survived(&self) -> bool {
        self.killers.is_empty() && self.mutant.inapplicable().is_none()
    }

    /// A row of the table.
    fn row(&self) -> String {
        let outcome = match (self.mutant.inapplicable(), self.killers.first()) {
            (Some(reason), _) => format!("not applicable: {reason}"),
            (None, Some(first)) => format!("killed by {}, first {first}", self.killers.len()),
            (None, None) => "SURVIVED".to_owned(),
        };
        format!("| {} | {} | {outcome} |", self.mutant.operation, self.mutant.mutation)
    }
}

fn main() -> ExitCode {
    // Panics are one way to notice a mutant; their messages are noise here.
    panic::set_hook(Box::new(|_| {}));
    match run(&Arguments::parse()) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::from(2)
        }
    }
}

/// Whether every mutant was noticed.
fn run(arguments: &Arguments) -> Result<bool> {
    let (device, other) = open(arguments.device)?;
    let broken = control(&device, &other);
    if let Some(first) = broken.first() {
        return Err(format!(
            "{} breaks {} behaviours itself, first: {first}",
            arguments.device,
            broken.len()
        )
        .into());
    }
    let mutants: Vec<Mutant> = Mutant::all()
        .into_iter()
        .filter(|mutant| mutant.operation.to_string().contains(&arguments.operation))
        .collect();
    let verdicts = judge(&mutants, arguments)?;
    println!("| operation | mutation | outcome on {} |\n|---|---|---|", arguments.device);
    verdicts.iter().for_each(|verdict| println!("{}", verdict.row()));
    let survivors = verdicts.iter().filter(|verdict| verdict.survived()).count();
    let inapplicable = verdicts.iter().filter(|verdict| verdict.mutant.inapplicable().is_some()).count();
    let killed = verdicts.len() - inapplicable - survivors;
    println!("\n{killed} killed, {survivors} survived, {inapplicable} not applicable");
    Ok(survivors == 0)
}

fn open(device: Backend) -> Result<(Device, Device)> {
    Ok((device.open()?, device.open()?))
}

/// Verdicts in the order of the mutants.
fn judge(mutants: &[Mutant], arguments: &Arguments) -> Result<Vec<Verdict>> {
    let next = AtomicUsize::new(0);
    let work = || -> Result<Vec<(usize, Verdict)>> {
        let (device, other) = open(arguments.device)?;
        let mut verdicts = Vec::new();
        loop {
            let place = next.fetch_add(1, Ordering::Relaxed);
            let Some(&mutant) = mutants.get(place) else { return Ok(verdicts) };
            let killers = match mutant.inapplicable() {
                Some(_) => Vec::new(),
                None => killers(mutant, &device, &other),
            };
            verdicts.push((place, Verdict { mutant, killers }));
        }
    };
    let mut verdicts = thread::scope(|scope| {
        let workers: Vec<_> = (0..arguments.jobs.max(1)).map(|_| scope.spawn(work)).collect();
        workers.into_iter().try_fold(Vec::new(), |mut all, worker| {
            all.extend(worker.join().map_err(|_| "a worker panicked")??);
            Result::Ok(all)
        })
    })?;
    verdicts.sort_by_key(|(place, _)| *place);
    Ok(verdicts.into_iter().map(|(_, verdict)| verdict).collect())
}
