//! Ages as tables show them: at most two units, the finer the shorter the time.
//!
//! Follows `HumanDuration` in apimachinery's `util/duration`.

/// Seconds as `5d3h`: at most two units, the finer the shorter.
#[must_use]
pub fn human_duration(seconds: i64) -> String {
    if seconds < -1 {
        return "<invalid>".to_owned();
    }
    if seconds < 0 {
        return "0s".to_owned();
    }
    if seconds < 60 * 2 {
        return format!("{seconds}s");
    }
    let minutes = seconds / 60;
    if minutes < 10 {
        let rest = seconds % 60;
        return if rest == 0 { format!("{minutes}m") } else { format!("{minutes}m{rest}s") };
    }
    if minutes < 60 * 3 {
        return format!("{minutes}m");
    }
    let hours = seconds / 3600;
    if hours < 8 {
        let rest = minutes % 60;
        return if rest == 0 { format!("{hours}h") } else { format!("{hours}h{rest}m") };
    }
    if hours < 48 {
        return format!("{hours}h");
    }
    let (days, rest) = (hours / 24, hours % 24);
    if hours < 24 * 8 {
        return if rest == 0 { format!("{days}d") } else { format!("{days}d{rest}h") };
    }
    if hours < 24 * 365 * 2 {
        return format!("{days}d");
    }
    let years = hours / 24 / 365;
    if hours < 24 * 365 * 8 {
        let rest = days % 365;
        return if rest == 0 { format!("{years}y") } else { format!("{years}y{rest}d") };
    }
    format!("{years}y")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn units_grow_with_the_time() {
        let cases = [
            (-2, "<invalid>"),
            (-1, "0s"),
            (119, "119s"),
            (120, "2m"),
            (599, "9m59s"),
            (3600, "60m"),
            (4 * 3600 + 60, "4h1m"),
            (47 * 3600, "47h"),
            (49 * 3600, "2d1h"),
            (400 * 86_400, "400d"),
            (800 * 86_400, "2y70d"),
            (9 * 365 * 86_400, "9y"),
        ];
        for (seconds, text) in cases {
            assert_eq!(human_duration(seconds), text);
        }
    }
}
