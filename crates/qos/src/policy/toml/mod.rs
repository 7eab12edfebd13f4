//! Reads a policy file in TOML: the file as a whole, its policies and adapters. The format is at
//! [`PolicyFile::from_toml`]; `filter` reads the filters.

mod filter;

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};

use ::toml::de::DeValue;
use linerate_core::toml_reader::{self, At, Fault, FileError, Section, Value, wrong_type};
use linerate_core::units::ByteCount;

use super::check::{Lines, too_many, unknown};
use super::{Fragments, Names, Place};
use crate::policy::{Adapter, Meter, MeterKind, Policy, PolicyFile, check, values};

impl PolicyFile {
    /// Reads a policy file and resolves its names.
    ///
    /// ```
    /// use linerate_qos::policy::{NoNames, PolicyFile};
    ///
    /// let file = PolicyFile::from_toml(r#"
    /// [filter.voice]
    /// protocol = "udp"
    /// destination_port = "16384-32767"
    /// policy = "voice"
    ///
    /// [policy.voice]
    /// dscp = "EF"
    /// reserve = "2mbit"
    /// priority = 0
    ///
    /// [adapter.eth0]
    /// rate = "100mbit"
    /// policies = ["voice"]
    /// "#, &mut NoNames)?;
    /// assert_eq!(file.filters[0].name, "voice");
    /// # Ok::<(), linerate_core::toml_reader::FileError>(())
    /// ```
    ///
    /// `docs/qos.md` describes all keys and their values.
    ///
    /// # Errors
    ///
    /// The first error, with its line and column.
    pub fn from_toml(text: &str, names: &mut dyn Names) -> Result<Self, FileError> {
        let lines = Lines::new(text);
        read(text, &lines, names).map_err(|fault| fault.located(text))
    }
}

/// The names of one kind of table, and their indices.
type Index = BTreeMap<String, usize>;

fn read(text: &str, lines: &Lines<'_>, names: &mut dyn Names) -> Result<PolicyFile, Fault> {
    let table = toml_reader::parse_at_most(text, MAX_BYTES)?;
    let root = Section::new("the file", 0, table.get_ref(), KEYS)?;
    let filters = tables(&root, "filter", "[filter.NAME]", filter::KEYS, MAX_FILTERS)?;
    let policies = tables(&root, "policy", "[policy.NAME]", POLICY_KEYS, MAX_POLICIES)?;
    undotted(&root)?;
    let adapters = tables(&root, "adapter", "[adapter.NAME]", ADAPTER_KEYS, MAX_ADAPTERS)?;
    let ways = [("plain", Fragments::Plain), ("track", Fragments::Track)];
    let fragments = root.choice("fragments", "treatment of fragments", &ways)?;
    let mut file =
        PolicyFile { fragments: fragments.unwrap_or(Fragments::Plain), ..PolicyFile::default() };
    let mut index = Index::new();
    for (name, section) in &policies {
        let named = named(name, lines)?;
        index.insert(named.0.clone(), file.policies.len());
        file.policies.push(policy(section, named)?);
    }
    nest(&mut file, &policies, &index)?;
    let mut sets = filter::Sets::new();
    for (name, section) in root.named_sections("set", "[set.NAME]", "addresses")? {
        let (name, _) = named(&name, lines)?;
        sets.insert(name, filter::set(&section, names)?);
    }
    for (name, section) in &filters {
        let named = named(name, lines)?;
        file.filters.push(filter::read(section, named, &index, names, &sets)?);
        few_masks(&file, section)?;
        has_packets(&file, section)?;
    }
    for (name, section) in &adapters {
        let place = lines.place(name.offset);
        file.adapters.push(adapter(name, section, place, &index)?);
        has_parents(&file, section)?;
    }
    let offsets: Vec<usize> = policies.iter().map(|(name, _)| name.offset).collect();
    unused(&file, &offsets)?;
    Ok(file)
}

/// Checks and sets the parents of policies.
fn nest(
    file: &mut PolicyFile,
    policies: &[(At<&str>, Section<'_>)],
    index: &Index,
) -> Result<(), Fault> {
    for (policy, (_, section)) in file.policies.iter_mut().zip(policies) {
        let parent = section.string("parent")?;
        policy.parent = parent.map(|parent| policy_of(&parent, index)).transpose()?;
    }
    for (at, (_, section)) in policies.iter().enumerate() {
        nested(file, at, section)?;
    }
    Ok(())
}

/// The policy of that name.
fn policy_of(name: &At<&str>, policies: &Index) -> Result<usize, Fault> {
    policies.get(name.value).copied().ok_or_else(|| {
        let known = policies.keys().map(String::as_str);
        let otherwise = "define it as [policy.NAME]";
        let problem = unknown("policy", name.value, known, otherwise);
        Fault::new(name.offset, problem)
    })
}

/// Checks that the last filter's policy takes packets itself.
fn has_packets(file: &PolicyFile, section: &Section<'_>) -> Result<(), Fault> {
    let policy = file.filters.last().map(|filter| filter.policy);
    let Some(policy) = policy.filter(|policy| file.holds(*policy)) else {
        return Ok(());
    };
    let name = &file.policies[policy].name;
    let what = format!("policy `{name}` has others inside, and no packets of its own");
    section.contradiction("policy", what, "name one of those inside, or one more for the rest")
}

/// Checks that the last adapter also has the parents of its policies.
fn has_parents(file: &PolicyFile, section: &Section<'_>) -> Result<(), Fault> {
    let of_adapter = file.adapters.last().map_or(&[][..], |one| &one.policies);
    let policies = of_adapter.iter().map(|at| &file.policies[*at]);
    for policy in policies {
        if let Some(parent) = policy.parent.filter(|parent| !of_adapter.contains(parent)) {
            let parent = &file.policies[parent].name;
            let name = &policy.name;
            let what = format!("policy `{name}` is inside `{parent}`, which is not there");
            return section.contradiction("policies", what, "name it, too");
        }
    }
    Ok(())
}

/// Checks the number of masks, since the program has a place for each.
fn few_masks(file: &PolicyFile, last: &Section<'_>) -> Result<(), Fault> {
    let marks = (file.filters.iter()).flat_map(|filter| &filter.conditions.mark);
    let masks: BTreeSet<u32> = marks.map(|mark| mark.mask).collect();
    let (what, found, most) = ("masks of `mark`", masks.len(), MAX_MASKS);
    if found <= most {
        return Ok(());
    }
    too_many(last.offset_of("mark"), what, found, most)
}

/// The tables of one kind in the order of the file.
fn tables<'a>(
    root: &Section<'a>,
    key: &'static str,
    place: &'static str,
    keys: &str,
    most: usize,
) -> Result<Vec<(At<&'a str>, Section<'a>)>, Fault> {
    let tables = root.named_sections(key, place, keys)?;
    match (tables.get(most), tables.first()) {
        (Some((name, _)), _) => {
            let what = match key {
                "filter" => "filters",
                "policy" => "policies",
                _ => "adapters",
            };
            too_many(name.offset, what, tables.len(), most)
        }
        (None, None) if key == "adapter" => {
            let hint = "name the interface on which the policies work";
            Err(root.missing("[adapter.NAME]", hint))
        }
        _ => Ok(tables),
    }
}

/// Checks for undotted names: `[adapter.eth0.100]` is a table inside a table in TOML.
fn undotted(root: &Section<'_>) -> Result<(), Fault> {
    for (name, value) in root.entries("adapter")? {
        let DeValue::Table(table) = value.get_ref() else {
            continue;
        };
        let is_table = |value: &Value<'_>| matches!(value.get_ref(), DeValue::Table(_));
        if let Some((inner, _)) = table.iter().find(|(_, value)| is_table(value)) {
            let dotted = format!("{}.{}", name.value, inner.get_ref());
            let hint = "a name with a dot stands in quotes, such as [adapter.\"eth0.100\"]";
            let at = At::new(inner.span().start, &dotted[..]);
            return Fault::malformed(at, "adapter", hint);
        }
    }
    Ok(())
}

/// Checks the name of a filter or policy, and returns it with its place.
fn named(name: &At<&str>, lines: &Lines<'_>) -> Result<(String, Place), Fault> {
    match values::name(name.value) {
        Ok(text) => Ok((text, lines.place(name.offset))),
        Err(problem) => Err(Fault::new(name.offset, problem)),
    }
}

/// The values of a key, a list or a single one, each passed to `each` as text.
fn list<T>(
    section: &Section<'_>,
    key: &'static str,
    mut each: impl FnMut(&str) -> Result<Vec<T>, String>,
) -> Result<Vec<T>, Fault> {
    let Some(value) = section.value(key) else {
        return Ok(Vec::new());
    };
    let values = match value.get_ref() {
        DeValue::Array(values) if values.is_empty() => {
            let what = format!("`{key}` is an empty list");
            let hint = "leave the key out where every packet matches";
            return Fault::contradiction(value.span().start, what, hint);
        }
        DeValue::Array(values) => values.iter().collect(),
        _ => vec![value],
    };
    let mut all = Vec::new();
    for value in values {
        let item = item(key, value, "a text in quotes, a whole number or a list")?;
        let read = each(&item.value).map_err(|problem| Fault::new(item.offset, problem))?;
        all.extend(read);
        if all.len() > MAX_ENTRIES {
            let what = "entries of one key";
            return too_many(item.offset, what, all.len(), MAX_ENTRIES);
        }
    }
    Ok(all)
}

/// A string, or an integer as text.
fn item<'a>(key: &str, value: &'a Value<'a>, hint: &str) -> Result<At<Cow<'a, str>>, Fault> {
    let offset = value.span().start;
    let value = match value.get_ref() {
        DeValue::String(text) => Cow::Borrowed(text.as_ref()),
        DeValue::Integer(integer) => {
            let number = i64::from_str_radix(integer.as_str(), integer.radix());
            Cow::Owned(number.map_or_else(|_| integer.to_string(), |number| number.to_string()))
        }
        _ => return Err(wrong_type(key, value, hint)),
    };
    Ok(At { offset, value })
}

/// One value, parsed with `read`.
fn one<T>(
    section: &Section<'_>,
    key: &'static str,
    read: impl FnOnce(&str) -> Result<T, String>,
) -> Result<Option<T>, Fault> {
    let Some(value) = section.value(key) else {
        return Ok(None);
    };
    let item = item(key, value, "a text in quotes or a whole number")?;
    let read = read(&item.value).map(Some);
    read.map_err(|problem| Fault::new(item.offset, problem))
}

/// Anything unused is taken as a mistake.
pub(super) fn unused(file: &PolicyFile, offsets: &[usize]) -> Result<(), Fault> {
    let mut filtered = vec![false; file.policies.len()];
    for filter in &file.filters {
        filtered[filter.policy] = true;
    }
    let mut adapted = vec![false; file.policies.len()];
    for policy in file.adapters.iter().flat_map(|adapter| &adapter.policies) {
        adapted[*policy] = true;
    }
    for (at, policy) in file.policies.iter().enumerate() {
        let (what, hint) = match (filtered[at] || file.holds(at), adapted[at]) {
            (true, true) => continue,
            (false, _) => ("filter", NO_FILTER),
            (true, false) => ("adapter", "name it in the `policies` of one, or leave it out"),
        };
        let problem = format!("policy `{}` has no {what}; {hint}", policy.name);
        return Err(Fault::new(offsets[at], problem));
    }
    Ok(())
}

const NO_FILTER: &str = "give one with its name as `policy`, or leave the policy out";
const KEYS: &str = "filter policy adapter set fragments";

/// Enough for 8,192 filters of 500 bytes.
pub(super) const MAX_BYTES: usize = 4 << 20;
pub(super) const MAX_FILTERS: usize = 8192;
pub(super) const MAX_POLICIES: usize = 256;
pub(super) const MAX_ADAPTERS: usize = 64;
/// Most masks, including that of all bits for a mark without a mask.
const MAX_MASKS: usize = 4;
/// Most values of a list: more than anyone writes, and enough for an exported address list.
const MAX_ENTRIES: usize = 1024;

// `[policy.NAME]` and `[adapter.IFNAME]`.

fn policy(section: &Section<'_>, (name, place): (String, Place)) -> Result<Policy, Fault> {
    let policy = Policy {
        name,
        place,
        dscp: one(section, "dscp", values::dscp)?,
        vlan_priority: section.number("vlan_priority", 0..=7)?,
        parent: None,
        reserve: one(section, "reserve", values::share)?,
        limit: one(section, "limit", values::share)?,
        priority: section.number("priority", 0..=7)?,
        meter: meter(section)?,
        drop: section.boolean("drop")?.unwrap_or(false),
    };
    check::policy(&policy).map_err(|conflict| conflict.at(section))?;
    Ok(policy)
}

/// Checks whether a policy can be inside its parents.
fn nested(file: &PolicyFile, at: usize, section: &Section<'_>) -> Result<(), Fault> {
    let policy = &file.policies[at];
    let name = &policy.name;
    let refuse = |key, what: String, hint| section.contradiction(key, what, hint);
    let around: Vec<usize> = file.around(at).take(MAX_AROUND + 1).collect();
    if around.contains(&at) {
        let what = format!("policy `{name}` is inside itself");
        return refuse("parent", what, "leave `parent` out of one of them");
    }
    // A parent inside itself is reported at its own place.
    let is_circle = (1..around.len()).any(|n| around[..n].contains(&around[n]));
    if around.len() > MAX_AROUND && !is_circle {
        let what = format!("policy `{name}` is inside more than {MAX_AROUND} others");
        return refuse("parent", what, "HTB has no more levels of classes");
    }
    if policy.drop && policy.parent.is_some() {
        let hint = "what is dropped waits in no class";
        return refuse("drop", "`drop` with `parent`".to_owned(), hint);
    }
    if !file.holds(at) {
        return Ok(());
    }
    let of_packets = [
        ("dscp", policy.dscp.is_some()),
        ("vlan_priority", policy.vlan_priority.is_some()),
        ("priority", policy.priority.is_some()),
        ("meter", policy.meter.is_some()),
        ("drop", policy.drop),
    ];
    if let Some((key, _)) = of_packets.into_iter().find(|(_, is_there)| *is_there) {
        let what = format!("`{key}` of policy `{name}`, which has others inside");
        return refuse(key, what, "give it to those inside: they have the packets");
    }
    if policy.reserve.is_none() && policy.limit.is_none() {
        let what = format!("policy `{name}` has others inside, and neither `reserve` nor `limit`");
        return refuse("reserve", what, "give it one, or leave it out");
    }
    Ok(())
}

fn meter(policy: &Section<'_>) -> Result<Option<Meter>, Fault> {
    let Some(section) = policy.section("meter", "`meter`", METER_KEYS)? else {
        return Ok(None);
    };
    let mut colours = [None; 3];
    for (dscp, name) in colours.iter_mut().zip(Meter::COLOURS) {
        *dscp = one(&section, name, values::dscp)?;
    }
    let meter = Meter {
        kind: kind(&section)?,
        colour_aware: (section.choice("colour", "way to see colours", &SEES_COLOUR)?)
            .unwrap_or(false),
        colours,
        drop_red: section.boolean("drop_red")?.unwrap_or(false),
    };
    check::meter(&meter).map_err(|conflict| conflict.at(&section))?;
    Ok(Some(meter))
}

fn kind(section: &Section<'_>) -> Result<MeterKind, Fault> {
    let word = section.required("kind", "\"srtcm\" (RFC 2697) or \"trtcm\" (RFC 2698)")?;
    let is_single = word.choice("kind of meter", &[("srtcm", true), ("trtcm", false)])?;
    let foreign: &[_] = match is_single {
        true => &["peak", "peak_burst"],
        false => &["excess_burst"],
    };
    if let Some(key) = foreign.iter().find(|key| section.value(key).is_some()) {
        let what = format!("`{key}` with the kind {}", word.value);
        let hint = "srtcm has committed_burst and excess_burst, trtcm has peak and peak_burst";
        return section.contradiction(key, what, hint);
    }
    let hint = "a rate such as \"10mbit\"";
    let committed = needed(section, "committed", hint, values::rate)?;
    let hint = "a size such as \"64KiB\"";
    let burst = |key, least| needed(section, key, hint, |text| values::burst(text, least));
    if is_single {
        return Ok(MeterKind::SingleRate {
            committed,
            committed_burst: burst("committed_burst", 0)?,
            excess_burst: one(section, "excess_burst", |text| values::burst(text, 0))?
                .unwrap_or(ByteCount(0)),
        });
    }
    Ok(MeterKind::TwoRate {
        committed,
        committed_burst: burst("committed_burst", 1)?,
        peak: needed(section, "peak", "a rate such as \"20mbit\"", values::rate)?,
        peak_burst: burst("peak_burst", 1)?,
    })
}

fn needed<T>(
    section: &Section<'_>,
    key: &'static str,
    hint: &'static str,
    read: impl FnOnce(&str) -> Result<T, String>,
) -> Result<T, Fault> {
    one(section, key, read)?.ok_or_else(|| section.missing(key, hint))
}

fn adapter(
    name: &At<&str>,
    section: &Section<'_>,
    place: Place,
    policies: &Index,
) -> Result<Adapter, Fault> {
    if name.value != "*" {
        values::interface(name.value).map_err(|problem| Fault::new(name.offset, problem))?;
    }
    Ok(Adapter {
        name: name.value.to_owned(),
        place,
        rate: one(section, "rate", values::rate)?,
        policies: policies_of(section, policies)?,
        ingress: section.boolean("ingress")?.unwrap_or(false),
    })
}

fn policies_of(section: &Section<'_>, policies: &Index) -> Result<Vec<usize>, Fault> {
    let Some(names) = section.strings("policies")? else {
        return Err(section.missing("policies", "a list of names of policies"));
    };
    if names.is_empty() {
        let what = "`policies` is an empty list";
        return section.contradiction("policies", what, "name one at least");
    }
    let mut indices = Vec::with_capacity(names.len());
    for name in names {
        let index = policy_of(&name, policies)?;
        if indices.contains(&index) {
            let what = format!("policy `{}` is given twice", name.value);
            let hint = "an adapter has each policy once";
            return Fault::contradiction(name.offset, what, hint);
        }
        indices.push(index);
    }
    Ok(indices)
}

impl check::Conflict {
    /// The fault at the key's value.
    fn at(self, section: &Section<'_>) -> Fault {
        let problem = format!("{}: {}", self.what, self.hint);
        Fault::new(section.offset_of(self.key), problem)
    }
}

/// Whether a meter considers the colour of arriving packets.
const SEES_COLOUR: [(&str, bool); 2] = [("aware", true), ("blind", false)];
const POLICY_KEYS: &str = "dscp vlan_priority parent reserve limit priority meter drop";
/// HTB has eight levels: the link's class, these, and the one with the packets.
const MAX_AROUND: usize = 4;
const METER_KEYS: &str = "\
    kind committed committed_burst excess_burst peak peak_burst colour green yellow red drop_red";
const ADAPTER_KEYS: &str = "rate policies ingress";
