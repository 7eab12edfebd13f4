//! Text of figures and groups for sentences.

use super::document::Setting;

/// So many significant digits, without an exponent for what reports print.
pub(super) fn digits(value: f64, significant: usize) -> String {
    if value == 0.0 || !value.is_finite() {
        return "0".to_owned();
    }
    let exponent = value.abs().log10().floor() as i32;
    if !(-6..15).contains(&exponent) {
        return format!("{value:.*e}", significant.saturating_sub(1));
    }
    let decimals = (significant as i32 - 1 - exponent).max(0) as usize;
    format!("{value:.decimals$}")
}

/// With a sign, also where it is positive.
pub(super) fn signed(value: f64, decimals: usize) -> String {
    let text = format!("{value:+.decimals$}");
    if text.trim_start_matches(['+', '-', '0', '.']).is_empty() {
        // Nothing is left of it: neither sign is true.
        text.trim_start_matches(['+', '-']).to_owned()
    } else {
        text
    }
}

/// Three significant digits with a sign, also where it is positive.
pub(super) fn signed_digits(value: f64) -> String {
    let text = digits(value.abs(), 3);
    match value {
        0.0 => text,
        value if value < 0.0 => format!("-{text}"),
        _ => format!("+{text}"),
    }
}

/// `column value, column value`.
pub(super) fn settings(settings: &[Setting]) -> String {
    let each = settings.iter().map(|s| format!("{} {}", s.column, s.value));
    each.collect::<Vec<_>>().join(", ")
}

/// `1 run`, `3 runs`.
pub(super) fn runs(n: usize) -> String {
    match n {
        1 => "1 run".to_owned(),
        n => format!("{n} runs"),
    }
}

/// The first few of a list, and how many more there are.
pub(super) fn listed(items: &[String], most: usize) -> String {
    let shown = items[..items.len().min(most)].join(", ");
    match items.len().saturating_sub(most) {
        0 => shown,
        more => format!("{shown} and {more} more"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_have_the_digits_asked_for() {
        assert_eq!(digits(792.53, 5), "792.53");
        assert_eq!(digits(0.001_234, 3), "0.00123");
        assert_eq!(digits(123_456.0, 3), "123456");
        assert_eq!(digits(0.0, 3), "0");
        assert_eq!(signed(-6.93, 1), "-6.9");
        assert_eq!(signed(0.12, 1), "+0.1");
        assert_eq!(signed(-0.04, 1), "0.0");
        assert_eq!(signed_digits(-0.0123), "-0.0123");
        assert_eq!(signed_digits(0.0), "0");
    }
}
