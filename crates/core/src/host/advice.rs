//! What each setting should be: a pure function of what is needed and of what is there.

use std::collections::BTreeMap;

use super::document::{SettingReport, SettingState};
use super::need::Need;
use super::setting::{DEVICE, Setting, device_key, find};
use super::table::settings;
use super::view::{DeviceView, HostView, Reading};

/// What a rule is asked.
#[derive(Debug)]
pub(super) struct Question<'a> {
    pub(super) need: &'a Need,
    pub(super) view: &'a HostView,
    /// The device, of a setting of one.
    pub(super) device: Option<&'a DeviceView>,
    /// The value that it has.
    pub(super) now: &'a str,
}

/// What a rule answers.
#[derive(Debug)]
pub(super) struct Advice {
    pub(super) state: SettingState,
    pub(super) right: Option<String>,
    pub(super) why: String,
    pub(super) inputs: Vec<(&'static str, f64)>,
}

/// Every setting of the table that this host has or lacks, judged: in the order of the table, those
/// of devices for each device. `keys`, where there are any, are all that is looked at; they may be
/// kernel settings that nothing is advised of.
pub fn advise(need: &Need, view: &HostView, keys: &[String]) -> Vec<SettingReport> {
    let wanted: Vec<String> = match keys {
        [] => all_keys(view),
        keys => keys
            .iter()
            .flat_map(|key| for_each_device(key, view))
            .collect(),
    };
    wanted
        .iter()
        .filter_map(|key| report(need, view, key))
        .collect()
}

fn all_keys(view: &HostView) -> Vec<String> {
    settings()
        .iter()
        .flat_map(|setting| for_each_device(setting.key, view))
        .collect()
}

fn for_each_device(key: &str, view: &HostView) -> Vec<String> {
    match key
        .strip_prefix(DEVICE)
        .and_then(|rest| rest.strip_prefix("*."))
    {
        Some(name) => {
            let devices = view.devices.iter();
            devices
                .map(|device| format!("{DEVICE}{}.{name}", device.name))
                .collect()
        }
        None => vec![key.to_owned()],
    }
}

fn report(need: &Need, view: &HostView, key: &str) -> Option<SettingReport> {
    let setting = find(key).ok()?;
    let mut report = blank(key, &setting);
    match view.readings.get(key) {
        Some(Reading::Value { text, obstacle }) => {
            let device = device_key(key).and_then(|own| view.device(own.device));
            let advice = (setting.rule)(&Question {
                need,
                view,
                device,
                now: text,
            });
            report.now = Some(text.clone());
            report.obstacle.clone_from(obstacle);
            report.state = advice.state;
            report.right = advice.right;
            report.why = advice.why;
            let inputs = advice.inputs.into_iter();
            report.inputs = inputs
                .map(|(name, value)| (name.to_owned(), value))
                .collect();
        }
        Some(Reading::Unsupported(why)) => {
            report.state = SettingState::Unsupported;
            report.why.clone_from(why);
        }
        Some(Reading::Unknown(why)) => report.why.clone_from(why),
        None => report.why = "it was not read".to_owned(),
    }
    Some(report)
}

fn blank(key: &str, setting: &Setting) -> SettingReport {
    let text = |text: &str| (!text.is_empty()).then(|| text.to_owned());
    SettingReport {
        key: key.to_owned(),
        place: setting.place,
        state: SettingState::Unknown,
        now: None,
        right: None,
        unit: text(setting.unit()),
        why: String::new(),
        formula: text(setting.formula),
        inputs: BTreeMap::new(),
        range: setting.value.to_string(),
        means: setting.means.to_owned(),
        limits: setting.limits.to_owned(),
        source: setting.source.to_owned(),
        obstacle: None,
        kept_from: None,
        persisted: false,
    }
}
