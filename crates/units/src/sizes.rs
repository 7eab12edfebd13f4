//! A list or range of message sizes.

use std::fmt;
use std::str::FromStr;

use super::{ByteCount, TextError};

/// Message sizes of a sweep, in the order given: `1460`, `32,64,128`, `100..9100/500` (both ends
/// included where the step meets them), or ranges and single sizes joined by commas. At most 1,000.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Sizes(Vec<u64>);

/// Largest number of sizes: more is a typing error, and would run for hours.
const MAX_SIZES: usize = 1000;

impl Sizes {
    /// One size.
    pub fn one(bytes: u64) -> Self {
        Self(vec![bytes])
    }

    /// The sizes in bytes; never empty.
    pub fn as_slice(&self) -> &[u64] {
        &self.0
    }
}

impl FromStr for Sizes {
    type Err = TextError;

    fn from_str(text: &str) -> Result<Self, TextError> {
        let mut sizes = Vec::new();
        for part in text.split(',') {
            match part.split_once("..") {
                None => sizes.push(part.parse::<ByteCount>()?.0),
                Some((first, rest)) => {
                    let (last, step) = rest.split_once('/').ok_or_else(|| {
                        TextError::new(text, "a range is FIRST..LAST/STEP, such as 100..9100/500")
                    })?;
                    let [first, last, step] = [first, last, step].map(str::parse::<ByteCount>);
                    let (first, last, step) = (first?.0, last?.0, step?.0);
                    if step == 0 || first > last {
                        let why = "a range rises by a step of at least 1";
                        return Err(TextError::new(text, why));
                    }
                    let steps = (0..=(last - first) / step).take(MAX_SIZES + 1);
                    sizes.extend(steps.map(|i| first + i * step));
                }
            }
            if sizes.len() > MAX_SIZES {
                return Err(TextError::new(text, "it has more than 1000 sizes"));
            }
        }
        Ok(Self(sizes))
    }
}

impl fmt::Display for Sizes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let texts: Vec<String> = self.0.iter().map(u64::to_string).collect();
        f.write_str(&texts.join(","))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_xpperf_range_has_nineteen_sizes() {
        let sizes: Sizes = "100..9100/500".parse().unwrap();
        assert_eq!(sizes.as_slice().len(), 19);
        assert_eq!(sizes.as_slice()[18], 9100);
    }

    #[test]
    fn lists_and_ranges_join() {
        let sizes: Sizes = "32,64,1KiB..3KiB/1KiB".parse().unwrap();
        assert_eq!(sizes.as_slice(), [32, 64, 1024, 2048, 3072]);
    }

    #[test]
    fn absurd_ranges_are_refused() {
        for text in ["", "1..2", "9..1/1", "1..5/0", "1..1TB/1", "a,b", "1,,2"] {
            assert!(text.parse::<Sizes>().is_err(), "{text}");
        }
    }
}
