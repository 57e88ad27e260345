//! The wall clock as templates see it: a date and time of day, formatted with `strftime`'s directives.
//!
//! Invariant: nothing in rendering reads a clock; a [`Moment`] is handed in.

use jiff::{ZonedDateTime, civil::DateTime, fmt::strtime, tz::TimeZone};

/// A local date and time.
#[derive(Clone, Debug, PartialEq)]
pub struct Moment(ZonedDateTime);

impl Moment {
    /// The system's clock in the system's time zone.
    pub fn now() -> Self {
        Self(ZonedDateTime::now())
    }

    /// A moment in universal time; the Unix epoch if there is no such date.
    pub fn utc(date: (i16, i8, i8), time: (i8, i8, i8)) -> Self {
        let moment = DateTime::new(date.0, date.1, date.2, time.0, time.1, time.2, 0).unwrap_or_default();
        Self(moment.to_zoned_datetime(TimeZone::UTC).unwrap_or_default())
    }

    /// Formats with `strftime`'s directives (`%Y-%m-%d`, `%d %b %Y`, `%H:%M`).
    ///
    /// # Errors
    /// Names what is wrong with the format.
    pub fn format(&self, format: &str) -> Result<String, String> {
        strtime::format(format, &self.0).map_err(|error| error.to_string())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn directives_are_those_of_strftime() {
        let moment = Moment::utc((2026, 1, 5), (9, 3, 7));
        for (format, want) in [
            ("%Y-%m-%d", "2026-01-05"),
            ("%d %b %Y", "05 Jan 2026"),
            ("%A, %B %-d, %Y", "Monday, January 5, 2026"),
            ("%H:%M:%S %p %j %y %%", "09:03:07 AM 005 26 %"),
        ] {
            assert_eq!(moment.format(format).as_deref(), Ok(want));
        }
        assert!(moment.format("%&").is_err());
    }
}
