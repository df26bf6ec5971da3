//! What ships for those who run Loadline: the dashboard and the alerts ask for numbers that exist, and the container,
//! Compose and systemd set what can be set.
//!
//! The table of metrics in docs/running.md is what everything here is held against.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use loadline::config::{Config, Flags};
use regex::Regex;
use serde_json::Value;
use yaml_rust2::{Yaml, YamlLoader};

/// What Prometheus itself adds to each sample.
const OTHER_LABELS: [&str; 3] = ["job", "instance", "le"];

/// Every metric that a text names, as it is written: of a histogram also `_bucket`, `_count` and `_sum`.
pub fn names_in(text: &str) -> BTreeSet<String> {
    pattern(r"\bloadline_[a-z_]*[a-z]\b").find_iter(text).map(|name| name.as_str().to_owned()).collect()
}

/// The metric that a sample belongs to: a histogram's samples have names of their own.
pub fn metric_of(name: &str, is_histogram: impl Fn(&str) -> bool) -> &str {
    let base = ["_bucket", "_count", "_sum"].into_iter().find_map(|suffix| name.strip_suffix(suffix));
    base.filter(|base| is_histogram(base)).unwrap_or(name)
}

/// A row of the table in docs/running.md.
struct Documented {
    histogram: bool,
    labels: BTreeSet<String>,
}

fn documented() -> BTreeMap<String, Documented> {
    let text = read("docs/running.md");
    let mut metrics = BTreeMap::new();
    for row in text.lines().filter(|line| line.starts_with("| `loadline_")) {
        let cells: Vec<&str> = row.split('|').map(str::trim).collect();
        let ["", names, kind, labels, _, ""] = cells[..] else { continue };
        assert!(["counter", "gauge", "histogram"].contains(&kind), "{row}");
        let labels: BTreeSet<String> =
            labels.split(", ").filter(|label| !label.is_empty()).map(str::to_owned).collect();
        for name in names_in(names) {
            let row = Documented { histogram: kind == "histogram", labels: labels.clone() };
            assert!(metrics.insert(name.clone(), row).is_none(), "{name} is there twice");
        }
    }
    metrics
}

pub fn documented_names() -> BTreeSet<String> {
    documented().into_keys().collect()
}

fn read(path: &str) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(path);
    std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

fn yaml(path: &str) -> Yaml {
    let mut documents = YamlLoader::load_from_str(&read(path)).unwrap_or_else(|error| panic!("{path}: {error}"));
    assert_eq!(documents.len(), 1, "{path}");
    documents.remove(0)
}

fn pattern(pattern: &str) -> Regex {
    Regex::new(pattern).expect("a pattern")
}

fn panels() -> Vec<Value> {
    let dashboard: Value = serde_json::from_str(&read("deploy/grafana-dashboard.json")).expect("JSON");
    dashboard["panels"].as_array().expect("panels").clone()
}

fn rules() -> Vec<Yaml> {
    let alerts = yaml("deploy/alerts.yml");
    let groups = alerts["groups"].as_vec().expect("groups");
    groups.iter().flat_map(|group| group["rules"].as_vec().expect("rules").clone()).collect()
}

/// All of PromQL that ships.
pub fn expressions() -> Vec<String> {
    let targets = panels().into_iter().flat_map(|panel| panel["targets"].as_array().cloned().unwrap_or_default());
    let shown = targets.map(|target| target["expr"].as_str().expect("an expression").to_owned());
    let watched = rules().into_iter().map(|rule| rule["expr"].as_str().expect("an expression").to_owned());
    shown.chain(watched).collect()
}

#[test]
fn what_the_dashboard_and_the_alerts_ask_for_is_documented() {
    let documented = documented();
    assert!(documented.len() > 40, "the table was not found");
    let is_histogram = |name: &str| documented.get(name).is_some_and(|metric| metric.histogram);
    for file in ["deploy/grafana-dashboard.json", "deploy/alerts.yml", "deploy/alerts_test.yml"] {
        let names = names_in(&read(file));
        assert!(names.len() > 10, "{file}");
        for name in names {
            let metric = metric_of(&name, is_histogram);
            let found = documented.get(metric);
            assert!(found.is_some(), "{file}: {name} is not in docs/running.md");
            assert!(
                metric != name || !is_histogram(&name),
                "{file}: a histogram has no sample of its own name, {name}"
            );
        }
    }
}

#[test]
fn the_dashboard_shows_every_metric() {
    let documented = documented();
    let is_histogram = |name: &str| documented.get(name).is_some_and(|metric| metric.histogram);
    let names = names_in(&read("deploy/grafana-dashboard.json"));
    let shown: BTreeSet<&str> = names.iter().map(|name| metric_of(name, is_histogram)).collect();
    for name in documented.keys() {
        assert!(shown.contains(name.as_str()), "{name} is nowhere on the dashboard");
    }
}

#[test]
fn expressions_use_documented_labels_only() {
    let documented = documented();
    let is_histogram = |name: &str| documented.get(name).is_some_and(|metric| metric.histogram);
    let selector = pattern(r"\b(loadline_[a-z_]+)\{([^}]*)\}");
    let (label, grouping) =
        (pattern(r#"([a-z_]+)\s*(?:=~|!~|!=|=)\s*""#), pattern(r"\b(?:by|on|group_left) \(([^)]*)\)"));
    for expression in expressions() {
        let mut of_metrics: BTreeSet<&str> = OTHER_LABELS.into();
        for name in names_in(&expression) {
            of_metrics.extend(documented[metric_of(&name, is_histogram)].labels.iter().map(String::as_str));
        }
        for found in selector.captures_iter(&expression) {
            let labels = &documented[metric_of(&found[1], is_histogram)].labels;
            for used in label.captures_iter(&found[2]) {
                let known = labels.contains(&used[1]) || OTHER_LABELS.contains(&&used[1]);
                assert!(known, "{} has no label {}: {expression}", &found[1], &used[1]);
            }
        }
        for found in grouping.captures_iter(&expression) {
            for used in found[1].split(", ") {
                assert!(of_metrics.contains(used), "nothing here has a label {used}: {expression}");
            }
        }
    }
}

#[test]
fn panels_have_ids_and_places_of_their_own() {
    let (mut ids, mut taken) = (BTreeSet::new(), BTreeSet::new());
    for panel in panels() {
        let title = panel["title"].as_str().expect("a title");
        assert!(ids.insert(panel["id"].as_u64().expect("an id")), "{title}: its id is taken");
        let place = |side: &str| panel["gridPos"][side].as_u64().unwrap_or_else(|| panic!("{title}: no {side}"));
        assert!(place("x") + place("w") <= 24, "{title} is too wide");
        for (x, y) in (place("x")..place("x") + place("w")).flat_map(|x| (0..place("h")).map(move |y| (x, y))) {
            assert!(taken.insert((x, place("y") + y)), "{title} lies on another panel");
        }
        if panel["type"] != "row" {
            assert_eq!(panel["datasource"]["uid"], "${datasource}", "{title}");
            assert!(panel["targets"].as_array().is_some_and(|targets| !targets.is_empty()), "{title} asks for nothing");
            assert!(panel["description"].as_str().is_some_and(|text| !text.is_empty()), "{title} is not explained");
        }
    }
}

#[test]
fn each_alert_says_what_to_do() {
    let mut names = BTreeSet::new();
    for rule in rules() {
        let name = rule["alert"].as_str().expect("a name").to_owned();
        let severity = rule["labels"]["severity"].as_str().unwrap_or_default();
        assert!(["warning", "critical"].contains(&severity), "{name}");
        for text in ["summary", "description", "action"] {
            assert!(rule["annotations"][text].as_str().is_some_and(|text| !text.is_empty()), "{name} has no {text}");
        }
        assert!(names.insert(name.clone()), "{name} is there twice");
    }
    let tested = pattern(r"\bLoadline[A-Za-z]+\b");
    let tested: BTreeSet<String> =
        tested.find_iter(&read("deploy/alerts_test.yml")).map(|name| name.as_str().to_owned()).collect();
    let unknown: Vec<_> = tested.difference(&names).filter(|name| *name != "Loadline").collect();
    assert!(unknown.is_empty(), "tests of alerts that are not there: {unknown:?}");
}

#[test]
fn prometheus_reads_the_alerts_and_calls_the_job_as_they_do() {
    let prometheus = yaml("deploy/prometheus.yml");
    let rule_file = prometheus["rule_files"][0].as_str().expect("a file of rules");
    assert!(!read(&format!("deploy/{rule_file}")).is_empty());
    let scrape = &prometheus["scrape_configs"][0];
    assert_eq!(scrape["job_name"].as_str(), Some("loadline"));
    assert_eq!(scrape["metrics_path"].as_str(), Some("/metrics"));
}

#[test]
fn the_container_does_not_run_as_root() {
    let dockerfile = read("Dockerfile");
    let last_stage = dockerfile.rsplit("\nFROM ").next().expect("a stage");
    let user = last_stage.lines().find_map(|line| line.strip_prefix("USER ")).expect("a user");
    let (user, group) = user.split_once(':').expect("user and group");
    assert!(user.parse::<u32>().is_ok_and(|user| user > 0) && group.parse::<u32>().is_ok_and(|group| group > 0));
}

/// The variables of the image, as a shell would read them.
fn image_variables() -> BTreeMap<String, String> {
    let variable = pattern(r"(?m)^(?:ENV)?\s+(LOADLINE_[A-Z_]+)=('[^']*'|\S+)");
    let found = variable
        .captures_iter(&read("Dockerfile"))
        .map(|found| (found[1].to_owned(), found[2].trim_matches('\'').to_owned()))
        .collect::<BTreeMap<_, _>>();
    assert_eq!(found.len(), 6, "{found:?}");
    found
}

#[test]
fn the_image_alone_and_under_compose_starts_with_what_is_set() {
    let mut variables = image_variables();
    let alone = Config::load(None, variables.clone(), Flags::default()).expect("the image's settings are valid");
    let compose = yaml("deploy/compose.yaml");
    let set = compose["services"]["loadline"]["environment"].as_hash().expect("variables");
    for (name, value) in set {
        // As Compose fills it in where nothing is set: `${NAME:-}` is nothing.
        let value = pattern(r"\$\{[A-Z_]+:-([^}]*)\}").replace_all(value.as_str().expect("a text"), "$1").into_owned();
        variables.insert(name.as_str().expect("a name").to_owned(), value);
    }
    let composed = Config::load(None, variables, Flags::default()).expect("Compose's settings are valid");
    for config in [alone, composed] {
        assert!(config.auth_required && config.listen.ip().is_unspecified());
        assert_eq!(config.listen.port(), 11435);
        assert_eq!(config.data_dir, Path::new("/data"));
        assert_eq!(config.allowed_hosts, ["loadline"]);
        assert_eq!(config.upstream_url, "http://ollama:11434");
    }
}

#[test]
fn compose_publishes_no_ollama_and_knows_no_password() {
    let compose = yaml("deploy/compose.yaml");
    let services = &compose["services"];
    assert!(services["ollama"]["ports"].is_badvalue());
    assert!(services["postgres"]["ports"].is_badvalue());
    assert_eq!(services["postgres"]["profiles"][0].as_str(), Some("postgres"));
    let password = services["postgres"]["environment"]["POSTGRES_PASSWORD"].as_str();
    assert_eq!(password, Some("${POSTGRES_PASSWORD:-}"));
    let published = services["loadline"]["ports"][0].as_str().expect("a port");
    assert!(published.starts_with("127.0.0.1:"), "{published}");
}

#[test]
fn the_unit_sets_what_can_be_set_and_answers_may_finish() {
    let unit = read("deploy/loadline.service");
    let variables = unit.lines().filter_map(|line| line.strip_prefix("Environment="));
    let variables = variables.map(|line| line.split_once('=').expect("a variable"));
    let variables: Vec<_> = variables.map(|(name, value)| (name.to_owned(), value.to_owned())).collect();
    assert!(!variables.is_empty());
    let config = Config::load(None, variables, Flags::default()).expect("the unit's settings are valid");
    assert_eq!(config.data_dir, Path::new("/var/lib/loadline"));
    assert!(config.listen.ip().is_loopback());

    let grace = config.shutdown_grace.as_secs();
    let number = |text: &str| text.trim_end_matches('s').parse::<u64>().expect("seconds");
    let unit_stops = unit.lines().find_map(|line| line.strip_prefix("TimeoutStopSec=")).expect("a time");
    let compose = yaml("deploy/compose.yaml");
    let compose_stops = compose["services"]["loadline"]["stop_grace_period"].as_str().expect("a time");
    assert!(number(unit_stops) > grace && number(compose_stops) > grace, "{unit_stops}, {compose_stops}");
}
