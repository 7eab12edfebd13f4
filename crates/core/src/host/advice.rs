//! The recommended value of each setting: a pure function of the need and of the host's state.

use std::collections::BTreeMap;

use super::document::{SettingReport, SettingState};
use super::need::Need;
use super::setting::settings;
use super::setting::{DEVICE, Setting, device_key, find};
use super::view::{DeviceView, HostView, Reading};

/// The input of a rule.
#[derive(Debug)]
pub(super) struct Question<'a> {
    pub(super) need: &'a Need,
    pub(super) view: &'a HostView,
    /// The device, if the setting belongs to one.
    pub(super) device: Option<&'a DeviceView>,
    /// The current value.
    pub(super) now: &'a str,
}

/// The answer of a rule.
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
    let wanted: Vec<&str> = match keys {
        [] => settings().iter().map(|setting| setting.key).collect(),
        keys => keys.iter().map(String::as_str).collect(),
    };
    let keys = wanted.iter().flat_map(|key| for_each_device(key, view));
    keys.filter_map(|key| report(need, view, &key)).collect()
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
