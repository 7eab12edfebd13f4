//! Reads configuration files of HP-UX IPQoS A.01.00. `docs/qos.md` describes how they are imported.

mod blocks;
mod filter;

use std::collections::{BTreeMap, BTreeSet};

use linerate_core::toml_reader::{At, Fault, FileError};
use linerate_core::units::BitRate;

use super::check::{Lines, too_many, unknown};
use super::toml::{MAX_ADAPTERS, MAX_BYTES, MAX_FILTERS, MAX_POLICIES, unused};
use super::{Adapter, Conditions, Filter, Names, Place, Policy, PolicyFile, Share, check, values};
use blocks::{HpuxBlock, HpuxBlockKind};
use filter::{decimal, located};

type Result<T> = std::result::Result<T, Fault>;

impl PolicyFile {
    /// Reads a configuration file of HP-UX IPQoS A.01.00 and resolves its names.
    ///
    /// A filter used by policies of several adapters is repeated for each of them, as NAME, NAME-2,
    /// …. Adapters keep their names (`lan0`), which are not Linux names.
    ///
    /// # Errors
    ///
    /// The first error, or the first thing without a counterpart here, with its line and column.
    pub fn from_hpux(text: &str, names: &mut dyn Names) -> std::result::Result<Self, FileError> {
        let lines = Lines::new(text);
        read(text, &lines, names).map_err(|fault| fault.located(text))
    }
}

fn read(text: &str, lines: &Lines<'_>, names: &mut dyn Names) -> Result<PolicyFile> {
    if text.len() > MAX_BYTES {
        return Err(Fault::too_long(text.len(), MAX_BYTES));
    }
    let mut reader = HpuxReader {
        lines,
        drafts: Vec::new(),
        draft_index: BTreeMap::new(),
        policy_index: BTreeMap::new(),
        uses: Vec::new(),
        offsets: Vec::new(),
        file: PolicyFile::default(),
    };
    for block in blocks::blocks(text)? {
        match block.kind {
            HpuxBlockKind::Filter => reader.filter(&block, names)?,
            HpuxBlockKind::Policy => reader.policy(&block)?,
            HpuxBlockKind::Adapter => reader.adapter(&block)?,
        }
    }
    reader.finish()
}

/// A filter not yet used by a policy.
struct HpuxDraft<'a> {
    name: At<&'a str>,
    priority: u32,
    conditions: Conditions,
}

struct HpuxReader<'a, 'b> {
    lines: &'b Lines<'a>,
    drafts: Vec<HpuxDraft<'a>>,
    draft_index: BTreeMap<&'a str, usize>,
    policy_index: BTreeMap<&'a str, usize>,
    /// The filters of each policy, by index.
    uses: Vec<Vec<usize>>,
    /// Position of each policy in the text.
    offsets: Vec<usize>,
    file: PolicyFile,
}

impl<'a> HpuxReader<'a, '_> {
    fn filter(&mut self, block: &HpuxBlock<'a>, names: &mut dyn Names) -> Result<()> {
        check_name(block.name)?;
        let priority = match block.value("pri")? {
            Some(at) => located(at, values::PRIORITY.single::<u32>(&decimal(at.value)))?.first,
            None => UNSAID_PRIORITY,
        };
        let draft =
            HpuxDraft { name: block.name, priority, conditions: filter::conditions(block, names)? };
        most("filters", self.drafts.len(), MAX_FILTERS, block.name)?;
        let before = self.draft_index.insert(block.name.value, self.drafts.len());
        self.drafts.push(draft);
        once("filters", before, block)
    }

    fn policy(&mut self, block: &HpuxBlock<'a>) -> Result<()> {
        let name = check_name(block.name)?;
        let place = self.lines.place(block.name.offset);
        let policy = policy(block, name, place)?;
        let hint = "a filter is defined before it is used, as `filter NAME`";
        let uses = indices(&block.uses()?, ("filter", hint), &self.draft_index)?;
        let number = self.file.policies.len();
        most("policies", number, MAX_POLICIES, block.name)?;
        let before = self.policy_index.insert(block.name.value, number);
        self.file.policies.push(policy);
        self.uses.push(uses);
        self.offsets.push(block.name.offset);
        once("policies", before, block)
    }

    fn adapter(&mut self, block: &HpuxBlock<'a>) -> Result<()> {
        let name = located(block.name, values::interface(block.name.value))?.0;
        let hint = "a policy is defined before it is used, as `policy NAME`";
        let names = block.uses()?;
        let policies = indices(&names, ("policy", hint), &self.policy_index)?;
        if policies.is_empty() {
            let what = format!("adapter `{name}` has no policy");
            let hint = "name policies behind `uses`";
            return Fault::contradiction(block.name.offset, what, hint);
        }
        let mut taken = BTreeMap::new();
        for (policy, at) in policies.iter().zip(&names) {
            for filter in &self.uses[*policy] {
                let Some(other) = taken.insert(*filter, at.value) else {
                    continue;
                };
                let filter = self.drafts[*filter].name.value;
                let policy = at.value;
                let what = format!("filter `{filter}` is of the policies `{other}` and `{policy}`");
                let hint = "on one adapter a filter has one policy";
                return Fault::contradiction(at.offset, what, hint);
            }
        }
        let adapters = &self.file.adapters;
        most("adapters", adapters.len(), MAX_ADAPTERS, block.name)?;
        let before = adapters.iter().position(|adapter| adapter.name == name);
        self.file.adapters.push(Adapter {
            name,
            place: self.lines.place(block.name.offset),
            rate: None,
            policies,
            ingress: false,
        });
        once("adapters", before, block)
    }

    /// Assigns the filters to their policies.
    fn finish(mut self) -> Result<PolicyFile> {
        if self.file.adapters.is_empty() {
            let what = "there is no adapter";
            return Fault::contradiction(0, what, "write `adapter NAME` with `uses`");
        }
        let mut users: Vec<Vec<usize>> = vec![Vec::new(); self.drafts.len()];
        for (policy, filters) in self.uses.iter().enumerate() {
            for filter in filters {
                users[*filter].push(policy);
            }
        }
        let mut names: BTreeSet<String> =
            self.drafts.iter().map(|draft| draft.name.value.to_owned()).collect();
        for (draft, policies) in self.drafts.iter().zip(users) {
            if policies.is_empty() {
                let what = format!("filter `{}` has no policy", draft.name.value);
                let hint = "name it behind a policy's `uses`, or leave it out";
                return Fault::contradiction(draft.name.offset, what, hint);
            }
            for (number, policy) in policies.into_iter().enumerate() {
                let what = "filters with their copies";
                most(what, self.file.filters.len(), MAX_FILTERS, draft.name)?;
                self.file.filters.push(Filter {
                    name: copy_name(draft.name.value, number, &mut names),
                    place: self.lines.place(draft.name.offset),
                    priority: draft.priority,
                    policy,
                    conditions: draft.conditions.clone(),
                });
            }
        }
        unused(&self.file, &self.offsets)?;
        Ok(self.file)
    }
}

/// A name for a copy of a filter; names in IPQoS contain no hyphen.
fn copy_name(name: &str, number: usize, taken: &mut BTreeSet<String>) -> String {
    if number == 0 {
        return name.to_owned();
    }
    let copies = (number + 1..).map(|number| {
        let suffix = format!("-{number}");
        let kept = name.len().min(32 - suffix.len());
        format!("{}{suffix}", &name[..kept])
    });
    let free = copies.into_iter().find(|copy| taken.insert(copy.clone()));
    free.expect("numbers do not end")
}

fn policy(block: &HpuxBlock<'_>, name: String, place: Place) -> Result<Policy> {
    let reserve = share(block, "res")?;
    let limit = share(block, "max")?;
    let dscp = block.value("dscp")?.map(|at| located(at, values::dscp(&decimal(at.value))));
    let vlan_priority = block.value("vpr")?.map(|at| {
        let number = located(at, values::VLAN_PRIORITY.single(&decimal(at.value)))?;
        Ok::<u8, Fault>(number.first)
    });
    let (dscp, vlan_priority) = (dscp.transpose()?, vlan_priority.transpose()?);
    if block.has("max") && !block.has("res") {
        let what = "`max` without `res`: IPQoS reserved 0 then, and dropped every packet";
        let hint = "give `res` too, or leave `max` out";
        return Fault::contradiction(block.offset("max"), what, hint);
    }
    let marks = ["dscp", "vpr", "max"].into_iter().find(|word| block.has(word));
    let drop = reserve.is_none() && (block.has("res") || marks.is_none());
    if let Some(word) = marks.filter(|_| drop) {
        let what = format!("`{word}` with `res 0`: IPQoS dropped every packet then");
        let hint = "give a reservation, or leave the rest out";
        return Fault::contradiction(block.offset("res"), what, hint);
    }
    if let (None, Some(at)) = (&limit, block.value("max")?) {
        let at = At::new(block.offset("max"), at.value);
        return Fault::malformed(at, "share", "it is above 0, in bit/s, k, m or %");
    }
    let policy = Policy {
        parent: None,
        name,
        place,
        dscp,
        vlan_priority,
        reserve,
        limit,
        priority: None,
        meter: None,
        drop,
    };
    check::policy(&policy).map_err(|conflict| conflict.in_hpux(block))?;
    Ok(policy)
}

/// Parses `20%`, `30m`, `64k` or `5000`; 0 means none.
fn share(block: &HpuxBlock<'_>, word: &str) -> Result<Option<Share>> {
    let Some(at) = block.value(word)? else {
        return Ok(None);
    };
    let digits = at.value.trim_end_matches(['%', 'k', 'K', 'm', 'M']);
    let number = decimal(digits).parse::<f64>().ok();
    let mut bytes = digits.bytes();
    let is_plain = bytes.all(|byte| byte.is_ascii_digit() || byte == b'.');
    let (Some(number), true) = (number, is_plain) else {
        let hint = "write 20%, 30m, 64k or a number of bit/s";
        return Fault::malformed(at, "share", hint);
    };
    let scale = match &at.value[digits.len()..] {
        "%" if number == 0.0 => return Ok(None),
        "%" => return located(at, values::percent(at.value, number)).map(Some),
        "k" | "K" => 1e3,
        "m" | "M" => 1e6,
        "" => 1.0,
        _ => {
            return Fault::malformed(at, "share", "it has one unit");
        }
    };
    // Beyond 2⁵³ it is out of range anyway.
    let rate = BitRate((number * scale).round() as u64);
    if rate.0 == 0 {
        return Ok(None);
    }
    let rate = located(at, values::in_range(at.value, rate));
    rate.map(|rate| Some(Share::Rate(rate)))
}

/// The indices of the names used, each only once.
fn indices(
    names: &[At<&str>],
    (what, hint): (&'static str, &'static str),
    index: &BTreeMap<&str, usize>,
) -> Result<Vec<usize>> {
    let mut indices = Vec::with_capacity(names.len());
    let mut taken = BTreeSet::new();
    for at in names {
        let Some(found) = index.get(at.value) else {
            let known = index.keys().copied();
            let problem = unknown(what, at.value, known, hint);
            return Err(Fault::new(at.offset, problem));
        };
        if !taken.insert(*found) {
            let what = format!("{what} `{}` is given twice", at.value);
            return Fault::contradiction(at.offset, what, "each is used once");
        }
        indices.push(*found);
    }
    Ok(indices)
}

fn check_name(at: At<&str>) -> Result<String> {
    let begins = at.value.starts_with(|c: char| c.is_ascii_alphabetic());
    match values::name(at.value) {
        Ok(name) if begins && !name.contains('-') => Ok(name),
        _ => {
            let hint = "it has 1 to 32 letters, digits and `_`, the first a letter";
            Fault::malformed(at, "name", hint)
        }
    }
}

fn once(what: &'static str, before: Option<usize>, block: &HpuxBlock<'_>) -> Result<()> {
    if before.is_none() {
        return Ok(());
    }
    let (offset, name) = (block.name.offset, block.name.value);
    Fault::repeated(offset, what, name)
}

fn most(what: &'static str, found: usize, most: usize, name: At<&str>) -> Result<()> {
    if found < most {
        return Ok(());
    }
    too_many(name.offset, what, found + 1, most)
}

/// Priority of a filter without one. The guide does not specify it; `ipqosadmin -showconfig` prints
/// 0 for such a filter, which is before everything that can be given.
const UNSAID_PRIORITY: u32 = 1;
