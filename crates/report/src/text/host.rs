//! A host's settings: those that are not right first, with the reason.

use linerate_core::host::{
    ChangeOutcome, HostDocument, SettingChange, SettingReport, SettingState,
};
use linerate_core::remedy::host_set;
use linerate_core::units::{BitRate, ByteCount};

use super::Style;
use super::number::count;
use super::page::{Emphasis, Page};
use super::table::{Align, Table};
use crate::document::Document;

impl Document for HostDocument {
    /// What is not right and why, the command that sets it, and how many others there are; with `all`,
    /// these too. What was set or undone, or would be, where the document is of that.
    fn text(&self, style: Style) -> String {
        let mut page = Page::new(style);
        if !self.settings.is_empty() {
            head(&mut page, self);
        }
        if self.changes.is_empty() && !self.dry_run {
            judged(&mut page, self, style.details)
        } else {
            changes(&mut page, self)
        }
        if let Some(file) = &self.file {
            page.gap();
            page.line(Emphasis::None, &format!("{file} was changed"));
        }
        for note in &self.notes {
            page.paragraph(Emphasis::Warning, "  !", 4, note);
        }
        page.finish()
    }
}

fn head(page: &mut Page, document: &HostDocument) {
    let about = &document.host;
    let mut facts = vec![
        format!("Linux {}", about.kernel),
        match about.cpus {
            1 => "1 CPU".to_owned(),
            cpus => format!("{cpus} CPUs"),
        },
    ];
    facts.extend(
        about
            .memory_bytes
            .map(|bytes| format!("{} of memory", ByteCount(bytes))),
    );
    facts.extend(about.devices.iter().cloned());
    page.facts("host", &facts);
    let need = &document.need;
    let mut wanted = Vec::new();
    wanted.extend(need.profile.map(|profile| format!("profile {profile}")));
    wanted.extend(need.path.map(|path| {
        let rate = BitRate(path.rate_bps as u64);
        format!("{rate} over {:.3} ms", path.rtt_us / 1e3)
    }));
    wanted.extend(
        need.connections
            .map(|number| format!("{} connections", count(number))),
    );
    page.facts("needed", &wanted);
}

fn judged(page: &mut Page, document: &HostDocument, all: bool) {
    let of = |state| {
        document
            .settings
            .iter()
            .filter(move |setting| setting.state == state)
    };
    let wrong: Vec<&SettingReport> = of(SettingState::Change).collect();
    for setting in &wrong {
        page.gap();
        page.line(
            Emphasis::Strong,
            &format!("{}: {}", setting.key, setting.means),
        );
        detail(page, setting);
    }
    let changes: Vec<(&str, &str)> = wrong
        .iter()
        .filter(|setting| setting.is_to_be_changed())
        .filter_map(|setting| Some((setting.key.as_str(), setting.right.as_deref()?)))
        .collect();
    if !changes.is_empty() {
        page.gap();
        page.command(&host_set(changes));
    }
    if wrong.is_empty() && !document.settings.is_empty() {
        page.gap();
        page.line(Emphasis::Strong, "nothing is to be changed");
    }
    kept(page, document);
    page.gap();
    if all {
        others(page, document)
    } else {
        summary(page, document)
    }
}

fn detail(page: &mut Page, setting: &SettingReport) {
    let unit = setting
        .unit
        .as_ref()
        .map(|unit| format!(" {unit}"))
        .unwrap_or_default();
    let now = setting.now.as_deref().unwrap_or("-");
    let right = setting.right.as_deref().unwrap_or(now);
    page.paragraph(Emphasis::None, "  now", MARGIN, &format!("{now}{unit}"));
    page.paragraph(Emphasis::None, "  right", MARGIN, &format!("{right}{unit}"));
    page.paragraph(Emphasis::None, "  why", MARGIN, &setting.why);
    if let Some(formula) = &setting.formula {
        let inputs = setting
            .inputs
            .iter()
            .map(|(name, value)| format!("{name} = {}", plain(*value)));
        let inputs: Vec<String> = inputs.collect();
        let words = if inputs.is_empty() {
            formula.clone()
        } else {
            format!("{formula}; {}", inputs.join(", "))
        };
        page.paragraph(Emphasis::None, "  formula", MARGIN, &words);
    }
    page.paragraph(Emphasis::None, "  limits", MARGIN, &setting.limits);
    page.paragraph(Emphasis::None, "  source", MARGIN, &setting.source);
    if let Some(obstacle) = &setting.obstacle {
        page.paragraph(Emphasis::Warning, "  but", MARGIN, obstacle);
    }
}

/// Digits, without an exponent.
fn plain(value: f64) -> String {
    if value.fract() == 0.0 {
        format!("{value:.0}")
    } else {
        format!("{value:.1}")
    }
}

fn kept(page: &mut Page, document: &HostDocument) {
    let mut table = Table::new(&[
        ("set by linerate host", Align::Left),
        ("before", Align::Left),
        ("now", Align::Left),
        ("", Align::Left),
    ]);
    let mut is_any = false;
    for setting in &document.settings {
        if let Some(was) = &setting.kept_from {
            is_any = true;
            let after = if setting.persisted {
                "over a reboot"
            } else {
                "until a reboot"
            };
            table.row([
                Some(setting.key.clone()),
                Some(was.clone()),
                setting.now.clone(),
                Some(after.to_owned()),
            ]);
        }
    }
    if is_any {
        page.gap();
        page.table(&table);
    }
}

fn others(page: &mut Page, document: &HostDocument) {
    let mut table = Table::new(&[
        ("setting", Align::Left),
        ("now", Align::Left),
        ("", Align::Left),
        ("why", Align::Left),
    ]);
    for setting in document
        .settings
        .iter()
        .filter(|setting| setting.state != SettingState::Change)
    {
        let why = match &setting.obstacle {
            Some(obstacle) => format!("{}; cannot be changed: {obstacle}", setting.why),
            None => setting.why.clone(),
        };
        table.row([
            Some(setting.key.clone()),
            setting.now.clone(),
            Some(word(setting.state).to_owned()),
            Some(why),
        ]);
    }
    page.table(&table);
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
        let number = document
            .settings
            .iter()
            .filter(|setting| setting.state == state)
            .count();
        (number > 0).then(|| format!("{number} {}", word(state)))
    });
    let words: Vec<String> = words.collect();
    if !words.is_empty() {
        page.paragraph(
            Emphasis::None,
            "",
            0,
            &format!("{}; --all shows them", words.join(", ")),
        );
    }
}

fn word(state: SettingState) -> &'static str {
    match state {
        SettingState::Change => "not right",
        SettingState::Fine => "fine",
        SettingState::Open => "open",
        SettingState::Shown => "not judged",
        SettingState::Unknown => "not readable",
        SettingState::Unsupported => "not here",
    }
}

fn changes(page: &mut Page, document: &HostDocument) {
    page.gap();
    for change in &document.changes {
        let outcome = match change.outcome {
            ChangeOutcome::Planned => "would be set",
            ChangeOutcome::Set => "set",
            ChangeOutcome::Already => "was so already",
            ChangeOutcome::Restored => "put back",
            ChangeOutcome::LeftAlone => "left alone",
            ChangeOutcome::Gone => "gone",
            ChangeOutcome::Failed => "not put back",
        };
        let emphasis = match change.outcome {
            ChangeOutcome::LeftAlone | ChangeOutcome::Failed => Emphasis::Warning,
            _ => Emphasis::Strong,
        };
        page.line(emphasis, &format!("{}: {outcome}", change.key));
        difference(page, change);
        if let Some(why) = &change.why {
            page.paragraph(Emphasis::None, "", 4, why);
        }
    }
    if document.dry_run {
        page.gap();
        let words = if document.changes.is_empty() {
            "nothing is to be changed"
        } else {
            "nothing was changed: --apply does it"
        };
        page.line(Emphasis::Strong, words);
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
        page.line(Emphasis::None, &format!("  {sign} {value}"));
    }
}

/// Columns of the labels.
const MARGIN: usize = 13;
