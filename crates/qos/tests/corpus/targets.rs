//! What must hold for any bytes. Each function is a fuzz target (see `fuzz/`), and is run over its
//! seeds and their mutations by `tests/corpus.rs`.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use linerate_core::toml_reader::FileError;
use linerate_qos::policy::{Names, NoNames, Place, PolicyFile};

/// A target.
pub(crate) type Target = fn(&[u8]);

/// Every target, by the name of its seeds' directory and of its fuzz target.
pub(crate) const TARGETS: [(&str, Target); 2] =
    [("policy_toml", policy_toml), ("policy_hpux", policy_hpux)];

/// Knows most names: what is behind them is read too.
pub(crate) struct Anybody;

impl Names for Anybody {
    fn addresses(&mut self, host: &str) -> Result<Vec<IpAddr>, String> {
        let number = u32::try_from(host.len()).unwrap_or(0);
        let v4 = IpAddr::V4(Ipv4Addr::from_bits(number));
        let v6 = IpAddr::V6(Ipv6Addr::from_bits(number.into()));
        Ok(match number % 4 {
            0 => Vec::new(),
            1 => vec![v4],
            2 => (0..number).map(|one| IpAddr::V6(u128::from(one).into())).collect(),
            _ => vec![v6, v4, v6],
        })
    }

    fn ports(&mut self, service: &str, protocols: &[&str]) -> Result<Vec<u16>, String> {
        match service.len() % 4 {
            3 => Err("nobody knows it".to_owned()),
            1 => Ok(protocols.iter().map(|protocol| protocol.len() as u16).collect()),
            _ => Ok(vec![80, 443, 80]),
        }
    }

    fn uid(&mut self, user: &str) -> Result<u32, String> {
        Ok(u32::try_from(user.len()).unwrap_or(0))
    }
}

/// A file is read, or refused with a place that is in it; what was read is written, and read as it
/// was.
pub(crate) fn policy_toml(bytes: &[u8]) {
    holds(bytes, PolicyFile::from_toml);
}

/// So for IPQoS's syntax: what is imported can be written and read.
pub(crate) fn policy_hpux(bytes: &[u8]) {
    holds(bytes, PolicyFile::from_hpux);
}

fn holds(bytes: &[u8], read: fn(&str, &mut dyn Names) -> Result<PolicyFile, FileError>) {
    let Ok(text) = std::str::from_utf8(bytes) else {
        return;
    };
    match read(text, &mut Anybody) {
        Ok(file) => {
            let written = file.to_toml();
            match PolicyFile::from_toml(&written, &mut NoNames) {
                Ok(again) => assert_eq!(placeless(again), placeless(file), "{written}"),
                Err(error) => panic!("{error}\n{written}"),
            }
        }
        Err(error) => {
            let FileError { line, column, .. } = error;
            let found = text.split('\n').nth(line - 1).expect("a line of the text");
            assert!((1..=found.chars().count() + 1).contains(&column.expect("a place")), "{error}");
            assert!(error.to_string().lines().count() <= 2, "{error}");
        }
    }
}

/// Writing gives everything a new place.
pub(crate) fn placeless(mut file: PolicyFile) -> PolicyFile {
    let filters = file.filters.iter_mut().map(|filter| &mut filter.place);
    let policies = file.policies.iter_mut().map(|policy| &mut policy.place);
    let adapters = file.adapters.iter_mut().map(|adapter| &mut adapter.place);
    for place in filters.chain(policies).chain(adapters) {
        *place = Place::default();
    }
    file
}
