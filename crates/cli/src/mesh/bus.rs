//! The bus of `--bus`, in a build with NATS.

use std::sync::Arc;

use linerate_mesh::bus::Bus;

use crate::args::{BusOptions, MeshPermissionsArgs};
use crate::failure::Failure;

#[cfg(feature = "nats")]
pub(super) use with::{connect, permissions};
#[cfg(not(feature = "nats"))]
pub(super) use without::{connect, permissions};

#[cfg(not(feature = "nats"))]
mod without {
    use anyhow::anyhow;

    use super::{Arc, Bus, BusOptions, Failure, MeshPermissionsArgs};

    pub(in super::super) fn connect(
        _: &str,
        _: &BusOptions,
        _: Option<&str>,
    ) -> Result<Arc<dyn Bus>, Failure> {
        Err(lacking("--bus"))
    }

    pub(in super::super) fn permissions(_: &MeshPermissionsArgs) -> Result<(), Failure> {
        Err(lacking("mesh permissions"))
    }

    fn lacking(what: &str) -> Failure {
        Failure::unsupported(anyhow!(
            "{what}: this program was built without NATS; build it with: \
             cargo build --release --features nats"
        ))
    }
}

#[cfg(feature = "nats")]
mod with {
    use std::fmt::Write as _;
    use std::fs::{self, DirBuilder, OpenOptions};
    use std::io::Write as _;
    use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
    use std::path::Path;

    use anyhow::{Context, anyhow};
    use linerate_mesh::message::COORDINATOR;
    use linerate_web::nats::{self, NatsBus, NatsOptions};

    use super::{Arc, Bus, BusOptions, Failure, MeshPermissionsArgs};
    use crate::{files, output};

    /// Largest file of credentials or certificates, in bytes.
    const MAX_CREDENTIALS: u64 = 64 << 10;

    /// Connects the agent of a site, or without one the coordinator.
    pub(in super::super) fn connect(
        url: &str,
        options: &BusOptions,
        site: Option<&str>,
    ) -> Result<Arc<dyn Bus>, Failure> {
        let read = |option, path: Option<&Path>| {
            let text = path.map(|path| files::read_text(option, path, MAX_CREDENTIALS));
            text.transpose().map_err(Failure::usage)
        };
        read("--ca", options.ca.as_deref())?;
        let options = NatsOptions {
            servers: url.to_owned(),
            credentials: read("--credentials", options.credentials.as_deref())?,
            ca: options.ca.clone(),
            site: site.map(str::to_owned),
        };
        let bus = NatsBus::connect(&options, Arc::new(output::note));
        Ok(Arc::new(bus.with_context(|| format!("--bus {url}")).map_err(Failure::failed)?))
    }

    /// Prints the accounts of all sites and of the coordinator.
    pub(in super::super) fn permissions(args: &MeshPermissionsArgs) -> Result<(), Failure> {
        let mesh = super::super::read(&args.file)?;
        let place = || files::named("--keys", &args.keys);
        let is_other = args.keys.exists() && !args.keys.is_dir();
        if is_other {
            return Err(Failure::usage(anyhow!("{}: it is not a directory", place())));
        }
        let made = DirBuilder::new().recursive(true).mode(0o700).create(&args.keys);
        made.with_context(place).map_err(Failure::usage)?;
        let user = |site: Option<&str>| {
            let key = key(&args.keys, site.unwrap_or(COORDINATOR)).with_context(place);
            let [publish, subscribe] = nats::permissions(site).map(|list| quoted(&list));
            anyhow::Ok(format!(
                "      # {}\n      {{ nkey: {}, permissions: {{\n        publish: {{ allow: \
                 {publish} }}\n        subscribe: {{ allow: {subscribe} }} }} }}\n",
                site.unwrap_or("the coordinator"),
                key?,
            ))
        };
        let coordinator = user(None).map_err(Failure::usage)?;
        let users = mesh.sites.iter().map(|site| user(Some(&site.name)));
        let sites: String = users.collect::<anyhow::Result<_>>().map_err(Failure::usage)?;
        let (mut exports, mut imports) = (String::new(), String::new());
        for (subject, answers_often) in nats::SERVICES {
            let response = if answers_often { ", response: stream" } else { "" };
            let _ = writeln!(exports, "      {{ service: \"{subject}\"{response} }}");
            let _ = writeln!(
                imports,
                "      {{ service: {{ account: LINERATE, subject: \"{subject}\" }} }}"
            );
        }
        output::print(&format!(
            "# Users of a nats-server: include it in the server's file, beside\n\
             # jetstream {{ store_dir: \"/var/lib/nats\" }}\n\
             # Sites may be far away or busy: the server waits so many seconds for their names.\n\
             authorization {{ timeout: 20 }}\n\
             accounts {{\n  LINERATE: {{\n    jetstream: enabled\n    users: [\n{coordinator}    \
             ]\n    exports: [\n{exports}    ]\n  }}\n\
             \x20 # Apart from the coordinator: a site reaches these services, and nothing else.\n\
             \x20 LINERATE_SITES: {{\n    users: [\n{sites}    ]\n    imports: [\n{imports}    \
             ]\n  }}\n}}\n"
        ))
    }

    fn quoted(list: &[String]) -> String {
        let quoted: Vec<String> = list.iter().map(|subject| format!("\"{subject}\"")).collect();
        format!("[{}]", quoted.join(", "))
    }

    /// The public key of `NAME.nk`, a file that is made if it is missing.
    fn key(directory: &Path, name: &str) -> anyhow::Result<String> {
        let path = directory.join(format!("{name}.nk"));
        let named = || path.display().to_string();
        if path.exists() {
            let seed = fs::read_to_string(&path).with_context(named)?;
            return nats::public_key(&seed)
                .ok_or_else(|| anyhow!("it has no seed of a user's NKey"))
                .with_context(named);
        }
        let [seed, public] = nats::new_key()?;
        let mut file = OpenOptions::new();
        let mut file =
            file.write(true).create_new(true).mode(0o600).open(&path).with_context(named)?;
        writeln!(file, "{seed}").with_context(named)?;
        Ok(public)
    }
}
