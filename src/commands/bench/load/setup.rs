//! What has to stand before anything can be measured: the upstream, Loadline, and the paths to them.

use anyhow::{Context, Result, bail};
use serde_json::Value;

use super::Load;
use crate::bench::child::{Child, Directory};
use crate::bench::client;
use crate::bench::figures::Figures;
use crate::bench::path::{Path, Target};
use crate::bench::process::Pid;
use crate::bench::report::{DIRECT, LOADLINE};

/// Everything that a run needs, and that ends with it.
#[derive(Debug)]
pub(super) struct Stand {
    /// `direct` first, then Loadline, then the others.
    pub(super) paths: Vec<Path>,
    pub(super) upstream_version: Option<String>,
    pub(super) loadline_version: String,
    // In the order in which they end: Loadline before what it forwards to and before its directory goes.
    _loadline: Option<Child>,
    _data: Option<Directory>,
    _sim: Option<Child>,
}

impl Stand {
    pub(super) async fn start(load: &Load) -> Result<Self> {
        let sim = match load.upstream {
            Some(_) => None,
            None => Some(start_sim(load).await?),
        };
        let upstream = load.upstream.clone().or_else(|| Some(sim.as_ref()?.url.clone())).unwrap_or_default();
        let mut paths = Vec::new();
        add(&mut paths, DIRECT, &upstream, sim.as_ref().map(Child::id)).await?;
        let version = upstream_version(&paths[0].target).await;
        let (loadline, data) = match load.through {
            Some(_) => (None, None),
            None => {
                let data = Directory::new();
                (Some(start_loadline(load, &paths[0].target.url, &data).await?), Some(data))
            }
        };
        let through = load.through.clone().or_else(|| Some(loadline.as_ref()?.url.clone())).unwrap_or_default();
        add(&mut paths, LOADLINE, &through, loadline.as_ref().map(Child::id)).await?;
        let Some(loadline_version) = loadline_version(&paths[1].target).await else {
            bail!("there is no Loadline at {through}: it does not answer GET /loadline/health as one does");
        };
        for other in &load.against {
            let (name, url) = named(other);
            let target = Target::find(url).await?;
            let name = name.map_or_else(|| target.host().to_owned(), str::to_owned);
            add(&mut paths, &name, url, None).await?;
        }
        Ok(Self { paths, upstream_version: version, loadline_version, _loadline: loadline, _data: data, _sim: sim })
    }
}

async fn add(paths: &mut Vec<Path>, name: &str, url: &str, known: Option<Pid>) -> Result<()> {
    if paths.iter().any(|path| path.name == name) {
        bail!("two paths are called `{name}`: give another name, as in --against other={url}");
    }
    let target = Target::find(url).await.with_context(|| name.to_owned())?;
    paths.push(Path::new(name, paths.len(), target, known, Figures::new()?));
    Ok(())
}

/// `nginx=http://…` has a name, `http://…/?a=b` has none.
fn named(against: &str) -> (Option<&str>, &str) {
    match against.split_once('=') {
        Some((name, url)) if !name.is_empty() && !name.contains(['/', ':']) => (Some(name), url),
        _ => (None, against),
    }
}

async fn start_sim(load: &Load) -> Result<Child> {
    let [window, prefill, decode] =
        [u64::from(load.window), load.prefill_us, load.decode_us].map(|number| number.to_string());
    // One more than is asked for: then every answer is cut at what was asked.
    let answer = (load.answer + 1).to_string();
    let mut arguments = vec!["sim", "--listen", "127.0.0.1:0", "--name", load.model(), "--window", &window];
    arguments.extend(["--prefill-us", &prefill, "--decode-us", &decode, "--answer-tokens", &answer]);
    if load.instant {
        arguments.push("--instant");
    }
    Ok(Child::start(&arguments, &[]).await?)
}

async fn start_loadline(load: &Load, upstream: &str, data: &Directory) -> Result<Child> {
    let data = data.0.to_str().context("the temporary directory has a name that is no text")?;
    let arguments = ["serve", "--listen", "127.0.0.1:0", "--upstream", upstream, "--data-dir", data];
    let settings = [("LOADLINE_STORE_DURABILITY", load.durability.name()), ("LOADLINE_LOG_FILTER", "error")];
    Ok(Child::start(&arguments, &settings).await?)
}

/// As Loadline tells it, and only it.
async fn loadline_version(target: &Target) -> Option<String> {
    let said = client::get(target, "/loadline/health").await.ok()?;
    let said: Value = serde_json::from_str(&said).ok()?;
    said["counts_compared"].as_u64().and(said["version"].as_str()).map(str::to_owned)
}

/// As Ollama tells it; others may not.
async fn upstream_version(target: &Target) -> Option<String> {
    let said = client::get(target, "/api/version").await.ok()?;
    let said: Value = serde_json::from_str(&said).ok()?;
    Some(said["version"].as_str()?.to_owned())
}

#[cfg(test)]
mod tests {
    use super::named;

    #[test]
    fn a_name_is_what_stands_before_the_equals_sign_if_it_can_be_one() {
        assert_eq!(named("nginx=http://127.0.0.1:80"), (Some("nginx"), "http://127.0.0.1:80"));
        assert_eq!(named("http://127.0.0.1:80"), (None, "http://127.0.0.1:80"));
        assert_eq!(named("http://127.0.0.1:80/a=b"), (None, "http://127.0.0.1:80/a=b"));
    }
}
