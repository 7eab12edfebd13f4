//! The compiled program in the kernel does what the interpreter says, packet by packet
//! (`BPF_PROG_TEST_RUN`): the same rule, the same bytes, the same tag, class and counters. The
//! programs are those of an adapter; they also leave in `cb` which rule it was.
//!
//! Needs bpf(2); where that is refused, the tests say `SKIPPED`.

#[path = "../../../qos/tests/common/mod.rs"]
mod common;
mod kernel;
mod listing;
mod meters;

use linerate_qos::interpret::{Decision, State, interpret, rewritten};
use linerate_qos::packet::{Fields, LinkType, Metadata};
use linerate_qos::policy::{Family, PolicyFile};
use linerate_qos::rules::{Bindings, RuleSet, Slot};

use common::{Dice, Recipe, Wishes};
use kernel::{Kernel, Seen, allowed};

/// A rule set, its program in the kernel, and what should become of packets.
struct Trial {
    rules: RuleSet,
    link: LinkType,
    kernel: Kernel,
    state: State,
    /// What each slot should count.
    counts: Vec<[u64; 7]>,
    now_ns: u64,
    /// How many packets a rule took.
    matched: usize,
}

impl Trial {
    fn new(rules: RuleSet, slots: usize, link: LinkType) -> Self {
        let kernel = Kernel::load(&rules, link, slots as u32);
        Self {
            rules,
            link,
            kernel,
            state: State::default(),
            counts: vec![[0; 7]; slots],
            now_ns: 1,
            matched: 0,
        }
    }

    /// Whether the kernel took the packet for a test at all.
    fn check(&mut self, frame: &[u8], metadata: &Metadata, what: &dyn Fn() -> String) -> bool {
        let now_ns = self.now_ns;
        let Some(seen) = self.kernel.run(frame, metadata, now_ns) else {
            return false;
        };
        let fields = Fields::new(frame, self.link, metadata);
        let decision = interpret(&self.rules, &fields, metadata, now_ns, &mut self.state);
        let should = expected(frame, self.link, metadata, &decision);
        assert!(
            seen == should,
            "seen   {seen:?}\nshould {should:?}\nfields {fields:?}\n{metadata:?}\nframe \
             {frame:02x?}\nrule {:?}\n{}",
            (decision.rule).map(|rule| &self.rules.family(fields.family())[rule]),
            what()
        );
        self.count(&decision, &fields, metadata);
        true
    }

    fn count(&mut self, decision: &Decision, fields: &Fields, metadata: &Metadata) {
        let Some(rule) = decision.rule else { return };
        self.matched += 1;
        let rule = &self.rules.family(fields.family())[rule];
        let counts = decision.counts(metadata);
        let numbers = [
            counts.packets,
            counts.bytes,
            counts.dropped_packets,
            counts.dropped_bytes,
            counts.green,
            counts.yellow,
            counts.red,
        ];
        let (_, filter) = self.rules.filters[rule.filter];
        for Slot(slot) in [filter, self.rules.actions[rule.action].slot] {
            for (sum, number) in self.counts[slot as usize].iter_mut().zip(numbers) {
                *sum += number;
            }
        }
    }

    /// Holds the counters in the kernel against what they should be.
    fn check_counters(&self) {
        for (slot, counts) in self.counts.iter().enumerate() {
            assert_eq!(&self.kernel.counters(slot as u32), counts, "slot {slot}");
        }
    }
}

fn expected(frame: &[u8], link: LinkType, metadata: &Metadata, decision: &Decision) -> Seen {
    let rule = decision.rule.map(|rule| rule as u32);
    let Some(packet) = rewritten(frame, link, metadata, decision) else {
        return Seen { rule, dropped: true, ..Seen::default() };
    };
    Seen {
        rule,
        dropped: false,
        frame: packet.bytes,
        tci: packet.vlan_tci,
        priority: decision.priority.unwrap_or(kernel::PRIORITY_BEFORE),
    }
}

/// What a test run knows beside the bytes: its socket is root's, and in the root control group.
fn in_test_run(mut metadata: Metadata) -> Metadata {
    metadata.uid = Some(0);
    metadata.cgroups = Default::default();
    metadata.cgroups[0] = 1;
    metadata
}

/// Frames of links without Ethernet, as a test run can make them: what stands where the EtherType
/// would be, in the source address, must be that of the packet.
fn as_raw(recipe: &Recipe) -> Option<Vec<u8>> {
    let mut frame = recipe.frame();
    recipe.ip.as_ref()?;
    let ethertype = recipe.family_ethertype().to_be_bytes();
    frame.get_mut(12..14)?.copy_from_slice(&ethertype);
    Some(frame)
}

fn bindings(file: &PolicyFile, dice: &mut Dice) -> Bindings {
    let mut bindings = Bindings::stand_in(file);
    let class = |number: usize| number.is_multiple_of(2).then_some(0x1_0010 + number as u32);
    bindings.classes =
        if dice.one_in(3) { Vec::new() } else { (0..file.policies.len()).map(class).collect() };
    bindings.default_class = dice.one_in(2).then_some(0x1_0001);
    bindings
}

/// Some rule sets of about that many filters, some packets for each; how many packets were
/// compared.
fn compare(seed: u64, sets: usize, filters: (usize, usize), packets: usize) -> usize {
    let mut dice = Dice::new(seed);
    let (mut compared, mut matched) = (0, 0);
    for _ in 0..sets {
        let wishes = Wishes {
            filters: dice.within(filters.0 as u128, filters.1 as u128) as usize,
            owners: true,
            tags_beside: false,
            meters: true,
            track: true,
        };
        let mut file = common::file(&mut dice, &wishes);
        let link = if dice.one_in(6) { LinkType::RawIp } else { LinkType::Ethernet };
        if link == LinkType::RawIp {
            for policy in &mut file.policies {
                policy.vlan_priority = None;
            }
        }
        let bindings = bindings(&file, &mut dice);
        let rules = RuleSet::new(&file, &file.adapters[0], &bindings).unwrap();
        let slots = file.filters.len() + file.policies.len();
        let mut trial = Trial::new(rules, slots, link);
        for _ in 0..packets {
            let mut recipe = common::packet(&mut dice, &file, &wishes);
            recipe.link = link;
            let frame = match link {
                LinkType::RawIp => {
                    recipe.tags.clear();
                    as_raw(&recipe)
                }
                LinkType::Ethernet => Some(recipe.frame()),
            };
            let Some(frame) = frame else { continue };
            let metadata = in_test_run(recipe.metadata());
            trial.now_ns += dice.below(3_000_000);
            compared += usize::from(trial.check(&frame, &metadata, &|| format!("{recipe:?}")));
        }
        trial.check_counters();
        matched += trial.matched;
    }
    // Else nothing but misses would have been compared.
    assert!(matched > compared / 20, "{matched} of {compared}");
    compared
}

#[test]
fn few_rules_do_in_the_kernel_what_the_interpreter_says() {
    if !allowed() {
        return;
    }
    let compared = compare(1, 260, (1, 8), 500);
    assert!(compared >= 110_000, "{compared}");
}

#[test]
fn many_rules_do_in_the_kernel_what_the_interpreter_says() {
    if !allowed() {
        return;
    }
    let compared = compare(2, 120, (10, 90), 800) + compare(3, 6, (300, 900), 3000);
    assert!(compared >= 90_000, "{compared}");
}

#[test]
fn five_thousand_rules_are_taken_by_the_verifier() {
    if !allowed() {
        return;
    }
    let compared = compare(4, 1, (5000, 5000), 300);
    assert!(compared >= 200, "{compared}");
}

#[test]
fn a_frame_that_is_cut_anywhere_is_no_accident() {
    if !allowed() {
        return;
    }
    let mut dice = Dice::new(5);
    let wishes =
        Wishes { filters: 12, owners: false, tags_beside: false, meters: false, track: true };
    let mut compared = 0;
    for _ in 0..12 {
        let file = common::file(&mut dice, &wishes);
        let rules = RuleSet::new(&file, &file.adapters[0], &bindings(&file, &mut dice)).unwrap();
        let slots = file.filters.len() + file.policies.len();
        let mut trial = Trial::new(rules, slots, LinkType::Ethernet);
        for _ in 0..12 {
            let mut recipe = common::packet(&mut dice, &file, &wishes);
            (recipe.link, recipe.cut) = (LinkType::Ethernet, None);
            let whole = recipe.frame();
            for end in 14..=whole.len() {
                let mut metadata = in_test_run(recipe.metadata());
                metadata.wire_length = metadata.wire_length.max(end as u32);
                let checked = trial.check(&whole[..end], &metadata, &|| format!("{recipe:?}"));
                compared += usize::from(checked);
            }
        }
        trial.check_counters();
    }
    assert!(compared > 5_000, "{compared}");
}

#[test]
fn a_policy_without_rules_passes_all_packets_with_the_default_class() {
    if !allowed() {
        return;
    }
    let rules = RuleSet {
        filters: Vec::new(),
        actions: Vec::new(),
        v4: Vec::new(),
        v6: Vec::new(),
        other: Vec::new(),
        fragments: Default::default(),
        default_class: Some(0x1_0000),
    };
    let mut trial = Trial::new(rules, 1, LinkType::Ethernet);
    let frame = [[0xff; 12].as_slice(), &[0x88, 0xb5], &[0; 50]].concat();
    let fields = Fields::new(&frame, LinkType::Ethernet, &Metadata::default());
    assert_eq!(fields.family(), Family::Other);
    let metadata = in_test_run(Metadata { wire_length: 64, ..Metadata::default() });
    assert!(trial.check(&frame, &metadata, &String::new));
}
