//! The recommended value of each setting: a pure function of the need and of the host's state.

use super::document::{SettingReport, SettingState};
use super::need::Need;
use super::setting::{DEVICE, device_key, find, settings};
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

/// The advice for every setting of the table, in its order; settings of devices once for each
/// device. If `keys` is not empty, only these are reported; they may be kernel settings without
/// advice.
pub fn advise(need: &Need, view: &HostView, keys: &[String]) -> Vec<SettingReport> {
    let wanted: Vec<&str> = match keys {
        [] => settings().iter().map(|setting| setting.key).collect(),
        keys => keys.iter().map(String::as_str).collect(),
    };
    let keys = wanted.iter().flat_map(|key| for_each_device(key, view));
    keys.filter_map(|key| report(need, view, &key)).collect()
}

fn for_each_device(key: &str, view: &HostView) -> Vec<String> {
    let rest = key.strip_prefix(DEVICE);
    let Some(name) = rest.and_then(|rest| rest.strip_prefix("*.")) else {
        return vec![key.to_owned()];
    };
    let key_of = |device: &DeviceView| format!("{DEVICE}{}.{name}", device.name);
    view.devices.iter().map(key_of).collect()
}

fn report(need: &Need, view: &HostView, key: &str) -> Option<SettingReport> {
    let setting = find(key).ok()?;
    let not_judged = |state: SettingState, why: &str| Advice {
        state,
        right: None,
        why: why.to_owned(),
        inputs: Vec::new(),
    };
    let (mut now, mut kept_by) = (None, None);
    let advice = match view.readings.get(key) {
        Some(Reading::Value { text, obstacle }) => {
            (now, kept_by) = (Some(text.clone()), obstacle.clone());
            (setting.rule)(&Question {
                need,
                view,
                device: device_key(key).and_then(|own| view.device(own.device)),
                now: text,
            })
        }
        Some(Reading::Unsupported(why)) => not_judged(SettingState::Unsupported, why),
        Some(Reading::Unknown(why)) => not_judged(SettingState::Unknown, why),
        None => not_judged(SettingState::Unknown, "it was not read"),
    };
    let inputs = advice.inputs.into_iter();
    let some = |text: &str| (!text.is_empty()).then(|| text.to_owned());
    Some(SettingReport {
        key: key.to_owned(),
        place: setting.place,
        state: advice.state,
        now,
        right: advice.right,
        unit: some(setting.unit()),
        why: advice.why,
        formula: some(setting.formula),
        inputs: inputs.map(|(name, value)| (name.to_owned(), value)).collect(),
        range: setting.value.to_string(),
        means: setting.means.to_owned(),
        limits: setting.limits.to_owned(),
        source: setting.source.to_owned(),
        obstacle: kept_by,
        kept_from: None,
        persisted: false,
    })
}
