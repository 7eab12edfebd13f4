//! Warnings about a file that its author may not intend: filters that never match, ties,
//! reservations that do not fit.
//!
//! Nothing is refused here. Every warning is certain, but not everything is found: a filter hidden
//! only by many others together is noticed as far as a bounded search gets.

mod rates;
mod shadow;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use linerate_core::units::{BitRate, ByteCount};

use crate::classes::ClassError;
use crate::packet::EXTENSIONS;
use crate::policy::{Adapter, Family, Filter, Place, PolicyFile, Range};
use crate::rules::{Bindings, RuleError, RuleSet};

/// A warning and the place of its cause.
#[derive(Debug, Clone, PartialEq)]
pub struct Warning {
    /// Place in the file.
    pub place: Place,
    /// Doubt about the policy.
    pub doubt: Doubt,
}

/// What a warning says.
#[derive(Debug, Clone, PartialEq)]
pub enum Doubt {
    /// No packet can meet all conditions of a filter.
    Impossible {
        /// The filter.
        filter: String,
    },
    /// Other filters before it match all packets of a filter.
    Hidden {
        /// The filter.
        filter: String,
        /// The filters before it.
        by: Vec<String>,
        /// The adapter, where the file has several.
        adapter: Option<String>,
    },
    /// The protocol a filter tests is an extension header in IPv6, not a protocol.
    ExtensionHeader {
        /// The filter.
        filter: String,
    },
    /// Two filters of equal priority and different policies match some of the same packets: their
    /// order in the file decides.
    Tie {
        /// The first in the file, which wins.
        first: String,
        /// The other.
        second: String,
        /// Their priority.
        priority: u32,
    },
    /// The classes are impossible.
    Classes(ClassError),
    /// More than the whole link is reserved, whatever its rate.
    MoreThanAll {
        /// The adapter.
        adapter: String,
        /// The sum of its policies' reservations in percent.
        percent: f64,
    },
    /// A meter drops every full-size frame, whatever the rate.
    SmallBurst {
        /// The policy.
        policy: String,
        /// The longest frame that is not red.
        longest: ByteCount,
    },
    /// Incoming packets are given policies with classes.
    IngressClasses {
        /// The adapter.
        adapter: String,
    },
    /// A share in percent differs between the adapters of a policy.
    Differs {
        /// The policy.
        policy: String,
        /// Its adapters and their rates.
        adapters: Vec<(String, BitRate)>,
    },
}

/// The warnings for a file, in its order. `speeds` are the rates that drivers report for adapters
/// without a `rate`.
///
/// # Errors
/// [`RuleError`], if the filters of an adapter make too many rules.
pub fn warnings(
    file: &PolicyFile,
    speeds: &BTreeMap<String, BitRate>,
) -> Result<Vec<Warning>, RuleError> {
    let mut warnings = rates::warnings(file, speeds);
    let mut seen = BTreeSet::new();
    for adapter in &file.adapters {
        let mut policies = adapter.policies.clone();
        policies.sort_unstable();
        policies.dedup();
        if seen.insert(policies) {
            of_filters(file, adapter, &mut warnings)?;
        }
    }
    let extensions = file.filters.iter().filter(|filter| is_extension(filter));
    warnings.extend(extensions.map(|filter| Warning {
        place: filter.place,
        doubt: Doubt::ExtensionHeader { filter: filter.name.clone() },
    }));
    warnings.sort_by_key(|warning| (warning.place.line, warning.place.column));
    warnings.dedup();
    Ok(warnings)
}

/// Whether a filter tests IPv6 packets for protocols that do not exist there.
fn is_extension(filter: &Filter) -> bool {
    let asked = &filter.conditions.protocol;
    let is_extension =
        |range: &Range<u8>| (range.first..=range.last).all(|number| EXTENSIONS.contains(&number));
    !asked.is_empty()
        && asked.iter().all(is_extension)
        && filter.conditions.families().contains(&Family::V6)
}

fn of_filters(
    file: &PolicyFile,
    adapter: &Adapter,
    warnings: &mut Vec<Warning>,
) -> Result<(), RuleError> {
    let bindings = Bindings::stand_in(file);
    let rules = RuleSet::new(file, adapter, &bindings)?;
    // Stand-in slots of filters are their indices in the file.
    let filter = |index: usize| &file.filters[rules.filters[index].1.0 as usize];
    let name = |index: usize| filter(index).name.clone();
    let filters = 0..rules.filters.len();
    let priorities: Vec<u32> = filters.map(|index| filter(index).priority).collect();
    let found = shadow::search(&rules, &priorities);
    let several = file.adapters.len() > 1;
    let fates = found.fates.iter().enumerate();
    warnings.extend(fates.filter_map(|(index, fate)| {
        let doubt = match fate {
            shadow::Fate::Asked => return None,
            shadow::Fate::Impossible => Doubt::Impossible { filter: name(index) },
            shadow::Fate::Hidden(by) => Doubt::Hidden {
                filter: name(index),
                by: by.iter().map(|index| name(*index)).collect(),
                adapter: several.then(|| adapter.name.clone()),
            },
        };
        let place = filter(index).place;
        Some(Warning { place, doubt })
    }));
    for (priority, (first, second)) in found.ties {
        let place = filter(second).place;
        let (first, second) = (name(first), name(second));
        let doubt = Doubt::Tie { first, second, priority };
        warnings.push(Warning { place, doubt });
    }
    Ok(())
}

impl Doubt {
    /// Whether `apply` refuses such a file.
    pub fn is_refused(&self) -> bool {
        matches!(self, Self::Classes(_) | Self::MoreThanAll { .. })
    }
}

impl fmt::Display for Warning {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Place { line, column } = self.place;
        write!(f, "{line}:{column}: {}", self.doubt)
    }
}

impl fmt::Display for Doubt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Impossible { filter } => {
                write!(f, "filter `{filter}` takes no packet: none has all that it asks for")
            }
            Self::Hidden { filter, by, adapter } => write_hidden(f, filter, by, adapter.as_deref()),
            Self::Tie { first, second, priority } => write!(
                f,
                "filters `{first}` and `{second}` have the same priority {priority} and some \
                 packets in common: \
                 `{first}` takes them, for it stands first in the file"
            ),
            Self::ExtensionHeader { filter } => write!(
                f,
                "filter `{filter}` takes no packet of IPv6: what it asks for is an extension \
                 header there, and the \
                 protocol is that of the header behind"
            ),
            // The policy's line precedes the warning.
            Self::Classes(ClassError::Policy { problem, .. }) => {
                write!(f, "it cannot be applied: {problem}")
            }
            Self::Classes(error) => write!(f, "it cannot be applied: {error}"),
            Self::MoreThanAll { adapter, percent } => write!(
                f,
                "it cannot be applied: the policies of adapter `{adapter}` reserve {percent} % of \
                 it"
            ),
            Self::SmallBurst { policy, longest } => write!(
                f,
                "policy `{policy}` drops every frame above {longest}, its largest burst, and a \
                 full frame of Ethernet \
                 has {FULL_FRAME} bytes"
            ),
            Self::IngressClasses { adapter } => write!(
                f,
                "adapter `{adapter}`: packets that come in have no classes; reserve, limit and \
                 priority are for those \
                 that leave"
            ),
            Self::Differs { policy, adapters } => {
                let each = |(adapter, rate): &(_, _)| format!("`{adapter}` with {rate}");
                let each = adapters.iter().map(each).collect::<Vec<_>>().join(", ");
                write!(
                    f,
                    "policy `{policy}` has shares in percent, which are other rates on each of {each}"
                )
            }
        }
    }
}

fn write_hidden(
    f: &mut fmt::Formatter<'_>,
    filter: &str,
    by: &[String],
    adapter: Option<&str>,
) -> fmt::Result {
    write!(f, "filter `{filter}` is never asked")?;
    if let Some(adapter) = adapter {
        write!(f, " on adapter `{adapter}`")?;
    }
    let named =
        by.iter().take(MAX_NAMES).map(|name| format!("`{name}`")).collect::<Vec<_>>().join(", ");
    let more = match by.len().saturating_sub(MAX_NAMES) {
        0 => String::new(),
        more => format!(" and {more} more"),
    };
    let (is, takes) = if by.len() == 1 { ("is", "takes") } else { ("are", "take") };
    write!(f, ": {named}{more}, which {is} asked before it, {takes} all its packets")
}

/// An Ethernet frame with 1,500 bytes of IP, as meters count it.
const FULL_FRAME: u64 = 1514;

/// Most filters named in one warning.
const MAX_NAMES: usize = 4;
