//! The pages of settings and treatments of a host.

use linerate_core::host::{
    ChangeOutcome, HostDocument, Place, SettingChange, SettingReport, SettingState,
};
use linerate_core::remedy::host_set;
use linerate_core::treatment::{Entry, Scope, acts_words, refused, sysctls, table};
use linerate_core::units::ByteCount;

use super::Style;
use super::number::{NBSP, count, if_known, joined, named, plural, some_joined};
use crate::document::Document;
use crate::page::{Emphasis, Page, table};

impl Document for HostDocument {
    /// The settings that are not right with reasons, the command that sets them, and the number of
    /// other settings; with details, these too. In a document about changes: what was set or
    /// undone, or would be.
    fn page(&self, page: &mut Page) {
        let is_wrong = |it: &&SettingReport| it.state == SettingState::Change;
        let wrong: Vec<_> = self.settings.iter().filter(is_wrong).collect();
        let is_judged = self.changes.is_empty() && !self.dry_run;
        if is_judged {
            answer(page, self, &wrong);
        }
        if !self.settings.is_empty() {
            head(page, self);
        }
        match is_judged {
            true => judged(page, self, &wrong),
            false => changes(page, self),
        }
        if let Some(file) = &self.file {
            page.gap();
            page.plain(&format!("{file} was changed"));
        }
        self.notes.iter().for_each(|note| page.doubt(note));
    }
}

fn answer(page: &mut Page, document: &HostDocument, wrong: &[&SettingReport]) {
    let is_settable = |it: &&&SettingReport| it.is_to_be_changed() && it.right.is_some();
    let settable = wrong.iter().filter(is_settable).count();
    let sets = match settable {
        _ if settable == wrong.len() => String::new(),
        0 => "; no command sets it: see below".to_owned(),
        settable => format!("; the command sets {settable} of them"),
    };
    match wrong.len() {
        0 if document.settings.is_empty() => {}
        0 => page.title("nothing needs to be changed"),
        1 => page.title(&format!("1 setting is not right{sets}")),
        number => page.title(&format!("{number} settings are not right{sets}")),
    }
}

fn head(page: &mut Page, document: &HostDocument) {
    let about = &document.host;
    let memory = about.memory_bytes.map(ByteCount);
    let facts = [
        Some(format!("Linux {}", about.kernel)),
        Some(plural(about.cpus.into(), "CPU")),
        memory.map(|memory| format!("{memory} of memory")),
    ];
    let devices = about.devices.iter().cloned().map(Some);
    page.facts("host", facts.into_iter().chain(devices));
    let need = &document.need;
    let connections = need.connections.map(count);
    let wanted = [
        named("profile", need.profile, |profile| profile.to_string()),
        need.path.map(|path| path.to_string()),
        connections.map(|number| format!("{number} connections")),
    ];
    page.facts("needed", wanted);
}

fn judged(page: &mut Page, document: &HostDocument, wrong: &[&SettingReport]) {
    let all = page.has_details();
    let to_change = wrong.iter().filter(|setting| setting.is_to_be_changed());
    let changes: Vec<(&str, &str)> =
        to_change.filter_map(|it| Some((it.key.as_str(), it.right.as_deref()?))).collect();
    page.gap();
    if !changes.is_empty() {
        page.command(&host_set(changes));
    }
    for setting in wrong {
        if all {
            page.gap();
            page.title(&format!("{}: {}", setting.key, setting.means));
            detail(page, setting);
        } else {
            brief(page, setting, wrong.len() <= FEW);
        }
    }
    kept(page, document);
    page.gap();
    match all {
        true => others(page, document),
        false => summary(page, document),
    }
}

/// Terminal width from which the settings and their reasons fit into one table.
const WIDE: usize = 110;

/// Up to this many settings are shown with their reasons.
const FEW: usize = 5;

/// Writes the change and, if there is room, the reason.
fn brief(page: &mut Page, setting: &SettingReport, has_room: bool) {
    let now = setting.now.as_deref().unwrap_or("-");
    let right = setting.right.as_deref().unwrap_or(now);
    page.plain(&format!("  {}  {now} → {right}", setting.key));
    // The reason for a setting that no command sets says what does.
    if has_room || setting.place == Place::Process {
        page.reason(&setting.why);
    }
    if let Some(obstacle) = &setting.obstacle {
        page.paragraph(Emphasis::Warning, "", 4, &format!("but {obstacle}"));
    }
}

fn detail(page: &mut Page, setting: &SettingReport) {
    let unit = if_known(setting.unit.as_ref(), |unit| format!(" {unit}"));
    let now = setting.now.as_deref().unwrap_or("-");
    let right = setting.right.as_deref().unwrap_or(now);
    page.entry("now", &format!("{now}{unit}"));
    page.entry("right", &format!("{right}{unit}"));
    page.entry("why", &setting.why);
    if let Some(formula) = &setting.formula {
        let input = |(name, value): (&String, &f64)| format!("{name} = {}", plain(*value));
        let inputs = some_joined(setting.inputs.iter().map(input), ", ");
        page.entry("formula", &joined([Some(formula.clone()), inputs], "; "));
    }
    page.entry("limits", &setting.limits);
    page.entry("source", &setting.source);
    if let Some(obstacle) = &setting.obstacle {
        page.marked(Emphasis::Warning, "but", obstacle);
    }
}

/// Digits without an exponent.
fn plain(value: f64) -> String {
    let decimals = if value.fract() == 0.0 { 0 } else { 1 };
    format!("{value:.decimals$}")
}

fn kept(page: &mut Page, document: &HostDocument) {
    let settings = document.settings.iter();
    let kept = settings.filter_map(|setting| Some((setting, setting.kept_from.as_ref()?)));
    page.gap();
    page.table(&table! { kept, (setting, was) =>
        left "set by linerate host" => setting.key.clone();
        left "before" => was.as_str();
        left "now" => setting.now.clone();
        left "" => if setting.persisted { "over a reboot" } else { "until a reboot" };
    });
}

fn others(page: &mut Page, document: &HostDocument) {
    let settings = document.settings.iter();
    let others = settings.filter(|setting| setting.state != SettingState::Change);
    let why = |setting: &&SettingReport| match &setting.obstacle {
        Some(obstacle) => format!("{}; cannot be changed: {obstacle}", setting.why),
        None => setting.why.clone(),
    };
    if page.columns() < WIDE {
        for setting in others {
            let now = setting.now.as_deref().unwrap_or("-");
            page.plain(&format!("  {}  {now}", setting.key));
            let (state, why) = (word(setting.state), why(&setting));
            let state = Some(format!("{state}:")).filter(|_| !why.starts_with(state));
            page.reason(&joined([state, Some(why)], " "));
        }
        return;
    }
    page.table(&table! { others, setting =>
        left "setting" => setting.key.clone();
        left "now" => setting.now.clone();
        left "" => word(setting.state);
        left "why" => why(setting);
    });
}

fn summary(page: &mut Page, document: &HostDocument) {
    let states = [
        SettingState::Fine,
        SettingState::Open,
        SettingState::Shown,
        SettingState::Unknown,
        SettingState::Unsupported,
    ];
    let words = states.into_iter().filter_map(|state| {
        let settings = document.settings.iter();
        let number = settings.filter(|setting| setting.state == state).count();
        let words = match state {
            SettingState::Open if number > 1 => DEPEND,
            _ => word(state),
        };
        (number > 0).then(|| format!("{number}{NBSP}{words}"))
    });
    if let Some(words) = some_joined(words, ", ") {
        page.words(&format!("{words}; --all shows all, with formulas and sources"));
    }
}

const DEPEND: &str = "depend on what is needed (--rate and --rtt, --for, --connections)";

fn word(state: SettingState) -> &'static str {
    match state {
        SettingState::Change => "not right",
        SettingState::Fine => "fine",
        SettingState::Open => "depends",
        SettingState::Shown => "not judged",
        SettingState::Unknown => "not readable",
        SettingState::Unsupported => "not here",
    }
}

fn changes(page: &mut Page, document: &HostDocument) {
    page.gap();
    if document.dry_run {
        let planned = plural(document.changes.len() as u64, "setting");
        page.title(&match document.changes.is_empty() {
            true => "nothing needs to be changed".to_owned(),
            false => format!("{planned} would be set; nothing was changed: --apply does it"),
        });
    }
    for change in &document.changes {
        let (emphasis, outcome) = match change.outcome {
            ChangeOutcome::Planned => (Emphasis::Strong, "would be set"),
            ChangeOutcome::Set => (Emphasis::Strong, "set"),
            ChangeOutcome::Already => (Emphasis::Strong, "already had that value"),
            ChangeOutcome::Restored => (Emphasis::Strong, "put back"),
            ChangeOutcome::LeftAlone => (Emphasis::Warning, "left alone"),
            ChangeOutcome::Gone => (Emphasis::Strong, "gone"),
            ChangeOutcome::Failed => (Emphasis::Warning, "not put back"),
        };
        page.line(emphasis, &format!("{}: {outcome}", change.key));
        difference(page, change);
        change.why.iter().for_each(|why| page.reason(why));
    }
}

fn difference(page: &mut Page, change: &SettingChange) {
    let lines = match change.outcome {
        ChangeOutcome::Planned | ChangeOutcome::Set => vec![("-", &change.was), ("+", &change.set)],
        ChangeOutcome::Restored if change.was != change.set => {
            vec![("-", &change.set), ("+", &change.was)]
        }
        _ => change.now.iter().map(|now| (" ", now)).collect(),
    };
    for (sign, value) in lines {
        page.plain(&format!("  {sign} {value}"));
    }
}

/// Every treatment with its scope and range, what it needs, how it is applied, read back and
/// undone; the kernel settings that may be treated; and what is refused.
pub fn treatments(style: Style) -> String {
    let mut page = Page::new(style);
    for scope in [Scope::Socket, Scope::Device, Scope::Route, Scope::Host] {
        page.gap();
        page.title(&format!("treatments of a {}", scope.name()));
        page.indented(scope.ends());
        let own = table().iter().filter(|entry| entry.scope == scope);
        own.for_each(|entry| treatment(&mut page, entry));
    }
    page.gap();
    page.title("keys of sysctl:");
    for sysctl in sysctls() {
        page.plain(&format!("  {}={}", sysctl.key, sysctl.value));
        property(&mut page, "", sysctl.means);
        if sysctl.acts.is_some() {
            property(&mut page, "acts", acts_words(sysctl.acts));
        }
        let also = sysctl.changes_also.iter();
        also.for_each(|also| property(&mut page, "changes also", also));
    }
    page.gap();
    page.title("refused");
    for (name, why) in refused() {
        page.plain(&format!("  {name}"));
        property(&mut page, "", why);
    }
    page.finish()
}

fn treatment(page: &mut Page, entry: &Entry) {
    page.gap();
    let name = format!("  {} ", entry.name);
    page.paragraph(Emphasis::None, &name, HANG, entry.means);
    property(page, "acts", acts_words(entry.acts));
    property(page, "values", &entry.range());
    property(page, "needs", entry.needs);
    property(page, "applied", entry.applied);
    property(page, "read back", entry.read_back);
    property(page, "undone", entry.undone);
    let also = entry.changes_also.iter();
    also.for_each(|also| property(page, "changes also", also));
}

fn property(page: &mut Page, name: &str, text: &str) {
    page.paragraph(Emphasis::None, &format!("    {name}"), HANG, text);
}

/// Width of the names and labels.
const HANG: usize = 20;
