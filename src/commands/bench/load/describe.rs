//! What a run was: the words and numbers that make it possible to do it again.

use super::Load;
use super::setup::Stand;
use crate::bench::report::{Machine, Run};
use crate::bench::rounds::Ran;
use crate::bench::script::Shape;

impl Load {
    pub(super) fn describe(&self, shape: &Shape, stand: &Stand, ran: &Ran) -> Run {
        let kernel = std::fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
        let (os, arch) = (std::env::consts::OS, std::env::consts::ARCH);
        Run {
            command: command_line(std::env::args().map(without_password)),
            clients: self.clients.into(),
            shape: shape.clone(),
            seconds: ran.measured.as_secs_f64(),
            cycles: ran.cycles,
            warm_up_s: self.warm_up,
            cut_short: ran.cut_short,
            durability: self.through.is_none().then(|| match self.store {
                Some(_) => "postgres".to_owned(),
                None => self.durability.name().to_owned(),
            }),
            loadline_version: stand.loadline_version.clone(),
            simulated: self.upstream.is_none(),
            upstream: stand.paths[0].target.url.clone(),
            upstream_version: stand.upstream_version.clone(),
            machine: Machine {
                cpus: std::thread::available_parallelism().map_or(1, usize::from),
                os: format!("{os} {} {arch}", kernel.trim()).replace("  ", " "),
            },
        }
    }
}

/// An address without the password in it.
fn without_password(argument: String) -> String {
    let Some((scheme, rest)) = argument.split_once("://") else { return argument };
    match rest.split_once('@') {
        Some((who, at)) if who.contains(':') => {
            format!("{scheme}://{}@{at}", who.split(':').next().unwrap_or_default())
        }
        _ => argument,
    }
}

/// The command as one could type it again.
fn command_line(arguments: impl Iterator<Item = String>) -> String {
    let plain = |text: &str| text.chars().all(|sign| sign.is_alphanumeric() || "-_./:=,@%+".contains(sign));
    let quoted = |text: String| if plain(&text) { text } else { format!("'{}'", text.replace('\'', r"'\''")) };
    // Where the program lies is nobody's business.
    let arguments = arguments.skip(1).map(quoted);
    std::iter::once("loadline".to_owned()).chain(arguments).collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_line_can_be_typed_again() {
        let arguments = ["/opt/loadline", "bench", "load", "--html", "my file's.html"].map(str::to_owned);
        assert_eq!(command_line(arguments.into_iter()), r"loadline bench load --html 'my file'\''s.html'");
        assert_eq!(without_password("--store=postgres://u:hush@h/d".to_owned()), "--store=postgres://u@h/d");
    }
}
