//! Treatments of sockets, put into a test's plan.

use super::change::source_of;
use super::error::TreatmentError;
use super::list::Treatments;
use super::table::{Scope, Setting, find};
use crate::plan::{End, Test, TestOption};
use crate::value::Value;

impl Treatments {
    /// Sets the socket options of a test; what is changed of hosts is [`Treatments::host_changes`].
    ///
    /// # Errors
    /// The test has the option already, its traffic does not have what is treated, or it is outside
    /// its limits then. The test may have been changed in part.
    pub fn apply_to(&self, test: &mut Test) -> Result<(), TreatmentError> {
        for treatment in self.iter() {
            let entry = treatment.entry();
            if let Setting::Socket(option) = entry.setting {
                set(option, entry.name, treatment.value(), test)?;
            }
        }
        self.name_route_source(test)?;
        self.check_routes(test)?;
        test.check()?;
        Ok(())
    }

    /// The endpoint knows the address of the control connection, and changes the route to that one.
    fn check_routes(&self, test: &Test) -> Result<(), TreatmentError> {
        let route = self.iter().find(|treatment| {
            treatment.entry().scope == Scope::Route && treatment.is_at(End::Server)
        });
        match (test.options.source, route) {
            (Some(_), Some(route)) => Err(TreatmentError::Unfit {
                name: route.entry().name,
                why: "the endpoint's route is that to the address of the control connection, and \
                    the data connections \
                      come from another one (source, route_source)",
            }),
            _ => Ok(()),
        }
    }

    /// An endpoint takes data connections from the address that the test names: one that the route
    /// prefers is named, and bound to, too.
    fn name_route_source(&self, test: &mut Test) -> Result<(), TreatmentError> {
        let changes = self.host_changes(End::Client);
        let Some(address) = changes.iter().find_map(source_of) else {
            return Ok(());
        };
        match find("source")?.setting {
            Setting::Socket(source) => set(source, "route_source", &Value::Address(address), test),
            _ => Ok(()),
        }
    }
}

/// # Errors
/// The traffic does not have the option, or the test has it already.
fn set(
    option: &TestOption,
    name: &'static str,
    value: &Value,
    test: &mut Test,
) -> Result<(), TreatmentError> {
    if let Some(why) = option.why_unfit(test) {
        return Err(TreatmentError::Unfit { name, why });
    }
    if option.value_in(test) != option.default_in(test) {
        return Err(TreatmentError::Given { name });
    }
    option.put(test, value);
    Ok(())
}
