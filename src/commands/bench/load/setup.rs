//! What has to stand before anything can be measured: the upstream, Loadline, and the paths to them.

use anyhow::{Context, Result, bail};
use serde_json::{Value, json};

use super::Load;
use crate::bench::affinity::{Affinity, Choices, WITHOUT};
use crate::bench::child::{Child, Directory};
use crate::bench::client;
use crate::bench::figures::Figures;
use crate::bench::path::{Path, Target};
use crate::bench::process::Pid;
use crate::bench::report::{DIRECT, LOADLINE, Report};

/// Everything that a run needs, and that ends with it.
#[derive(Debug)]
pub(super) struct Stand {
    /// `direct` first, then Loadline, then the others.
    pub(super) paths: Vec<Path>,
    pub(super) upstream_version: Option<String>,
    pub(super) loadline_version: String,
    // In the order in which they end: Loadline before what it forwards to and before its directory goes.
    _loadlines: Vec<Child>,
    _data: Vec<Directory>,
    _sims: Vec<Child>,
    /// How many upstreams there are, and what our Loadline had chosen before anything was measured.
    upstreams: usize,
    chosen: Choices,
}

impl Stand {
    pub(super) async fn start(load: &Load) -> Result<Self> {
        let (mut sims, mut urls): (Vec<Child>, Vec<String>) = Default::default();
        match &load.upstream {
            Some(upstream) => urls.extend(upstream.split(',').map(|url| url.trim().to_owned())),
            None => {
                for _ in 0..load.upstreams {
                    let sim = start_sim(load).await?;
                    urls.push(sim.url.clone());
                    sims.push(sim);
                }
            }
        }
        let mut paths = Vec::new();
        add(&mut paths, DIRECT, &urls[0], sims.first().map(Child::id)).await?;
        let version = upstream_version(&paths[0].target).await;
        let (mut loadlines, mut data) = (Vec::new(), Vec::new());
        let several = urls.len() > 1 && load.through.is_none();
        if several {
            load_model(load, &urls).await?;
        }
        for (name, affinity) in [(LOADLINE, true), (WITHOUT, false)].into_iter().take(if several { 2 } else { 1 }) {
            let through = match &load.through {
                Some(url) => (url.clone(), None),
                None => {
                    let directory = Directory::new();
                    let loadline = start_loadline(load, &urls.join(","), &directory, affinity).await?;
                    let through = (loadline.url.clone(), Some(loadline.id()));
                    loadlines.push(loadline);
                    data.push(directory);
                    through
                }
            };
            add(&mut paths, name, &through.0, through.1).await?;
        }
        let through = &paths[1].target.url;
        let Some(loadline_version) = loadline_version(&paths[1].target).await else {
            bail!("there is no Loadline at {through}: it does not answer GET /loadline/health as one does");
        };
        for other in &load.against {
            let (name, url) = named(other);
            let target = Target::find(url).await?;
            let name = name.map_or_else(|| target.host().to_owned(), str::to_owned);
            add(&mut paths, &name, url, None).await?;
        }
        let chosen = choices(&paths[1].target).await;
        Ok(Self {
            paths,
            upstream_version: version,
            loadline_version,
            _loadlines: loadlines,
            _data: data,
            _sims: sims,
            upstreams: urls.len(),
            chosen,
        })
    }

    /// What it brought that conversations went back to where they were; none with one upstream.
    pub(super) async fn affinity(&self, report: &Report) -> Option<Affinity> {
        let choices = choices(&self.paths[1].target).await.since(self.chosen);
        Affinity::of(report, self.upstreams, choices)
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

/// Has each upstream load the model: one that would have to load it first is not chosen if there is another.
async fn load_model(load: &Load, urls: &[String]) -> Result<()> {
    let client = reqwest::Client::builder().no_proxy().build()?;
    for url in urls {
        let body = json!({ "model": load.model(), "options": { "num_ctx": load.window } }).to_string();
        let url = if url.contains("://") { url.clone() } else { format!("http://{url}") };
        let answer = client.post(format!("{}/api/generate", url.trim_end_matches('/'))).body(body).send().await;
        answer.and_then(reqwest::Response::error_for_status).with_context(|| format!("loading the model at {url}"))?;
    }
    Ok(())
}

async fn choices(target: &Target) -> Choices {
    client::get(target, "/metrics").await.map(|page| Choices::read(&page)).unwrap_or_default()
}

async fn start_loadline(load: &Load, upstream: &str, data: &Directory, affinity: bool) -> Result<Child> {
    let data = data.0.to_str().context("the temporary directory has a name that is no text")?;
    let arguments = ["serve", "--listen", "127.0.0.1:0", "--upstream", upstream, "--data-dir", data];
    let settings = [
        ("LOADLINE_STORE_URL", load.store.as_deref().unwrap_or_default()),
        ("LOADLINE_STORE_DURABILITY", load.durability.name()),
        ("LOADLINE_LOG_FILTER", "error"),
        ("LOADLINE_UPSTREAM_AFFINITY", if affinity { "true" } else { "false" }),
    ];
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
