//! The calendar: days since 1970 to year, month and day in the proleptic Gregorian calendar, and back.

/// Seconds in a day.
pub(super) const DAY: i64 = 86_400;

/// A point in time on the calendar and clock of some zone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Civil {
    /// The year; before year 1 it is 0 or negative.
    pub year: i64,
    /// 1 to 12.
    pub month: u32,
    /// 1 to 31.
    pub day: u32,
    /// 0 to 365.
    pub day_of_year: u32,
    /// 0 (Sunday) to 6.
    pub weekday: u32,
    /// 0 to 23.
    pub hour: u32,
    /// 0 to 59.
    pub minute: u32,
    /// 0 to 59.
    pub second: u32,
}

impl Civil {
    /// Clock and calendar fields of a number of seconds since 1970.
    #[expect(
        clippy::arithmetic_side_effects,
        clippy::cast_sign_loss,
        clippy::cast_possible_truncation,
        reason = "days are below 2^48, and every remainder is below its divisor, which is positive"
    )]
    pub fn from_seconds(seconds: i64) -> Civil {
        let days = seconds.div_euclid(DAY);
        let clock = seconds.rem_euclid(DAY) as u32;
        // Years are counted from March, so that a leap day is the last of its year, and in eras of 400 years.
        let shifted = days + 719_468;
        let era = shifted.div_euclid(146_097);
        let day_of_era = shifted.rem_euclid(146_097);
        let year_of_era = (day_of_era - day_of_era / 1_460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
        let day_of_march_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
        let march_month = (5 * day_of_march_year + 2) / 153;
        let day = (day_of_march_year - (153 * march_month + 2) / 5 + 1) as u32;
        let month = if march_month < 10 { march_month + 3 } else { march_month - 9 } as u32;
        let year = year_of_era + era * 400 + i64::from(month <= 2);
        Civil {
            year,
            month,
            day,
            day_of_year: (days - days_from_civil(year, 1, 1)) as u32,
            weekday: (days + 4).rem_euclid(7) as u32,
            hour: clock / 3_600,
            minute: clock / 60 % 60,
            second: clock % 60,
        }
    }
}

/// Days from 1970-01-01 to a date.
#[expect(clippy::arithmetic_side_effects, reason = "years come from 64-bit seconds or four digits: far below 2^48")]
pub(super) fn days_from_civil(year: i64, month: u32, day: u32) -> i64 {
    let year = if month <= 2 { year - 1 } else { year };
    let era = year.div_euclid(400);
    let year_of_era = year.rem_euclid(400);
    let march_month = i64::from((month + 9) % 12);
    let day_of_march_year = (153 * march_month + 2) / 5 + i64::from(day) - 1;
    let day_of_era = year_of_era * 365 + year_of_era / 4 - year_of_era / 100 + day_of_march_year;
    era * 146_097 + day_of_era - 719_468
}

/// Number of days in a month.
pub(super) fn days_in_month(year: i64, month: u32) -> u32 {
    match month {
        2 if year.rem_euclid(4) == 0 && (year.rem_euclid(100) != 0 || year.rem_euclid(400) == 0) => 29,
        2 => 28,
        4 | 6 | 9 | 11 => 30,
        _ => 31,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn days_and_dates_agree() {
        for days in (-800_000..3_000_000).step_by(17) {
            let civil = Civil::from_seconds(days * DAY + 3_661);
            assert_eq!(days_from_civil(civil.year, civil.month, civil.day), days);
            assert!(civil.day <= days_in_month(civil.year, civil.month));
            assert_eq!((civil.hour, civil.minute, civil.second), (1, 1, 1));
        }
    }

    #[test]
    fn known_days() {
        let leap = Civil::from_seconds(1_709_250_306);
        assert_eq!((leap.year, leap.month, leap.day, leap.day_of_year, leap.weekday), (2024, 2, 29, 59, 4));
        let before = Civil::from_seconds(-2);
        assert_eq!((before.year, before.month, before.day, before.weekday, before.second), (1969, 12, 31, 3, 58));
        assert_eq!(Civil::from_seconds(i64::MAX).month, 12);
        assert_eq!(Civil::from_seconds(i64::MIN).month, 1);
    }
}
