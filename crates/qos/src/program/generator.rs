//! Writes the program as a whole.

use std::collections::{BTreeMap, BTreeSet};

use crate::packet::LinkType;
use crate::policy::{Family, Fragments};
use crate::rules::{Field, Rule, RuleSet};

use super::assembler::{Assembler, Condition, Helper, Label, Operation, Register, Size};
use super::frame::{StackSlot, context};
use super::tables::Tables;
use super::{Lifetime, MapKind, MapSpec, Program, Target};
use Condition::{Above, Equal};
use Operation::Add;
use Register::{R0, R1, R2, R6, R7, R8, R10};
use Size::Word;

/// What rules can look at in a packet.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Layer {
    /// `R7` is at an IPv4 header.
    V4,
    /// `R7` is at an IPv6 header.
    V6,
    /// No IP header: another protocol, or a truncated or invalid header.
    None,
}

/// What the rules of a family test.
#[derive(Debug, Clone, Default)]
pub(super) struct Needs {
    fields: BTreeSet<Field>,
    /// Whether fragments are tracked.
    pub(super) track: bool,
}

impl Needs {
    fn new(rules: &[Rule], track: bool) -> Self {
        let fields = rules.iter().flat_map(|rule| &rule.conditions);
        Self { fields: fields.map(|(field, _)| *field).collect(), track }
    }

    pub(super) fn has(&self, field: Field) -> bool {
        self.fields.contains(&field)
    }

    pub(super) fn fields(&self) -> impl Iterator<Item = Field> {
        self.fields.iter().copied()
    }

    pub(super) fn ports(&self) -> bool {
        self.has(Field::SourcePort) || self.has(Field::DestinationPort)
    }

    pub(super) fn icmp(&self) -> bool {
        self.has(Field::IcmpType) || self.has(Field::IcmpCode)
    }

    /// Whether the transport header or its position matters.
    pub(super) fn transport(&self) -> bool {
        self.ports() || self.icmp() || self.has(Field::TcpFlags) || self.has(Field::Length)
    }
}

/// A program under construction.
///
/// `R6` is the context all the time; `R7` points to the network layer from when it was found until
/// the packet is changed; `R8` is the end of the data while headers are looked for.
pub(super) struct Generator<'a> {
    pub(super) code: Assembler,
    pub(super) rules: &'a RuleSet,
    pub(super) target: &'a Target,
    /// Whether the program reports in `cb` what it did.
    pub(super) observed: bool,
    /// Tables of the rules, for families with many.
    pub(super) tables: Tables,
    maps: Vec<MapSpec>,
    /// Start of each action's code, for those that are jumped to.
    actions: BTreeMap<(Layer, usize), Label>,
    /// Start of the code that applies the rule in `R9`, where that is written.
    taken: BTreeMap<(Family, Layer), Label>,
    /// No rule matches.
    pub(super) unmatched: Label,
    /// The packet continues.
    pub(super) done: Label,
}

impl<'a> Generator<'a> {
    pub(super) fn new(
        rules: &'a RuleSet,
        target: &'a Target,
        tables: Tables,
        observed: bool,
    ) -> Self {
        let mut code = Assembler::default();
        let (unmatched, done) = (code.label(), code.label());
        Self {
            code,
            rules,
            target,
            observed,
            tables,
            maps: Vec::new(),
            actions: BTreeMap::new(),
            taken: BTreeMap::new(),
            unmatched,
            done,
        }
    }

    pub(super) fn program(mut self) -> Program {
        self.code.copy(R6, R1);
        let has_rules = |family| !self.rules.family(family).is_empty();
        if Family::ALL.into_iter().any(has_rules) {
            self.link_layer();
            self.code_of_actions();
        }
        self.end();
        if !self.tables.content.is_empty() {
            self.map(TABLES);
        }
        let assembled = self.code.finish();
        for spec in &mut self.maps {
            if spec.name == TABLES {
                spec.value_bytes = self.tables.content.len() as u32;
                spec.content = std::mem::take(&mut self.tables.content);
            }
        }
        Program {
            instructions: assembled.instructions,
            maps: self.maps,
            references: assembled.references,
        }
    }

    fn end(&mut self) {
        let (unmatched, done) = (self.unmatched, self.done);
        self.code.bind(unmatched);
        if let Some(class) = self.rules.default_class {
            self.set_priority(class);
        }
        self.code.bind(done);
        self.observe_tag();
        let verdict = self.target.verdict as i64 as u64;
        self.code.set(R0, verdict);
        self.code.exit();
    }

    pub(super) fn set_priority(&mut self, class: u32) {
        self.code.set(R0, class.into());
        self.code.store(Word, R6, context::PRIORITY, R0);
    }

    pub(super) fn needs(&self, family: Family) -> Needs {
        let rules = self.rules.family(family);
        let track = self.rules.fragments == Fragments::Track && family != Family::Other;
        Needs::new(rules, track && !rules.is_empty())
    }

    /// Whether rules of any family test a field.
    pub(super) fn asks_for(&self, field: Field) -> bool {
        Family::ALL.into_iter().any(|family| self.needs(family).has(field))
    }

    /// Whether the outermost VLAN tag matters.
    pub(super) fn looks_at_tag(&self) -> bool {
        let asked = self.asks_for(Field::Vlan);
        self.target.link == LinkType::Ethernet && (asked || self.changes_tag())
    }

    pub(super) fn changes_tag(&self) -> bool {
        let mut actions = self.rules.actions.iter();
        actions.any(|action| action.vlan_priority.is_some())
    }

    /// Tests the rules of a family and jumps to the action of the first match or to `unmatched`.
    pub(super) fn ask(&mut self, family: Family, layer: Layer) {
        let needs = self.needs(family);
        if needs.has(Field::Uid) {
            self.code.copy(R1, R6);
            self.code.call(Helper::SocketUid);
            self.put(StackSlot::Uid, R0);
        }
        if self.tables.has(family) {
            self.ask_tables(family, layer)
        } else {
            self.ask_chain(family, layer)
        }
    }

    /// Start of an action's code.
    pub(super) fn action(&mut self, layer: Layer, action: usize) -> Label {
        let code = &mut self.code;
        *(self.actions.entry((layer, action))).or_insert_with(|| code.label())
    }

    /// Start of the code that applies a rule from tables, and whether it still has to be written.
    pub(super) fn taken(&mut self, family: Family, layer: Layer) -> (Label, bool) {
        if let Some(label) = self.taken.get(&(family, layer)) {
            return (*label, false);
        }
        let label = self.code.label();
        self.taken.insert((family, layer), label);
        (label, true)
    }

    /// The actions that are jumped to.
    pub(super) fn asked_actions(&self) -> Vec<((Layer, usize), Label)> {
        self.actions.clone().into_iter().collect()
    }

    /// The number of a map, which becomes one of the program's.
    pub(super) fn map(&mut self, name: &'static str) -> usize {
        if let Some(known) = self.maps.iter().position(|spec| spec.name == name) {
            return known;
        }
        let spec = match name {
            COUNTERS => spec(name, MapKind::PerCpuArray, 4, 56, self.target.slots),
            METERS => spec(name, MapKind::Array, 4, 32, self.target.slots),
            FRAGMENTS => MapSpec {
                lifetime: Lifetime::Program,
                ..spec(name, MapKind::LruHash, 40, 4, FRAGMENTED_PACKETS)
            },
            _ => MapSpec { lifetime: Lifetime::Program, ..spec(name, MapKind::Array, 4, 0, 1) },
        };
        self.maps.push(spec);
        self.maps.len() - 1
    }

    pub(super) fn put(&mut self, slot: StackSlot, value: Register) {
        self.code.store(Word, R10, slot.offset(), value);
    }

    pub(super) fn put_constant(&mut self, slot: StackSlot, value: u32) {
        let (base, offset) = (R10, slot.offset());
        self.code.store_constant(Word, base, offset, value as i32);
    }

    pub(super) fn take(&mut self, to: Register, slot: StackSlot) {
        self.code.load(Word, to, R10, slot.offset());
    }

    pub(super) fn context(&mut self, to: Register, offset: i16) {
        self.code.load(Word, to, R6, offset);
    }

    /// Looks up the key at `key` of the frame in a map: `R0` points to the value. Jumps to
    /// `otherwise` if there is none.
    pub(super) fn find(&mut self, map: &'static str, key: i16, otherwise: Label) {
        let map = self.map(map);
        self.code.map(R1, map);
        self.address(R2, R10, key);
        self.code.call(Helper::MapLookup);
        self.code.branch_with(Equal, R0, 0, otherwise);
    }

    pub(super) fn address(&mut self, to: Register, base: Register, offset: i16) {
        self.code.copy(to, base);
        self.code.operate_with(Add, to, offset.into());
    }

    /// Jumps to `otherwise` if fewer than `bytes` of the packet are accessible from `R7` on; `R8`
    /// is their end.
    pub(super) fn within(&mut self, bytes: i16, otherwise: Label) {
        self.address(R0, R7, bytes);
        self.code.branch(Above, R0, R8, otherwise);
    }

    /// For tests: the rule that matched, counted from 1.
    pub(super) fn observe_rule(&mut self, rule: usize) {
        if self.observed {
            self.code.set(R0, rule as u64 + 1);
            self.code.store(Word, R6, context::CB[0], R0);
        }
    }

    /// For tests: the tag kept beside the bytes, which nothing else shows.
    fn observe_tag(&mut self) {
        if !self.observed {
            return;
        }
        for (from, to) in [
            (context::VLAN_PRESENT, context::CB[2]),
            (context::VLAN_TCI, context::CB[3]),
            (context::VLAN_PROTOCOL, context::CB[4]),
        ] {
            self.context(R0, from);
            self.code.store(Word, R6, to, R0);
        }
    }
}

fn spec(name: &'static str, kind: MapKind, key: u32, value: u32, entries: u32) -> MapSpec {
    MapSpec {
        name,
        kind,
        key_bytes: key,
        value_bytes: value,
        entries: entries.max(1),
        lifetime: Lifetime::Adapter,
        content: Vec::new(),
    }
}

/// [`CounterReport`](crate::interpret::CounterReport) by slot: seven `u64`.
pub(super) const COUNTERS: &str = "counters";
/// Meters by their policy's slot.
pub(super) const METERS: &str = "meters";
/// The rules that fragmented packets matched.
pub(super) const FRAGMENTS: &str = "fragments";
/// All tables, in one value.
pub(super) const TABLES: &str = "tables";

/// Number of fragmented packets remembered.
const FRAGMENTED_PACKETS: u32 = 4096;
