use super::super::script::{Routes, Shape, Stage, Streams};
use super::*;
use crate::sim::{self, Fault, Sim, SimConfig};

async fn client(sim: &Sim, routes: Routes, streams: Streams) -> Client {
    let shape = Shape {
        seed: 1,
        model: "sim".to_owned(),
        routes,
        streams,
        turns: 10,
        message_bytes: 80,
        history_bytes: 0,
        fresh: false,
        answer_tokens: 6,
        window_tokens: 4096,
    };
    let target = Arc::new(Target::find(&sim.url()).await.expect("an address"));
    Client::new(target, Script::new(Arc::new(shape), Stage::Measured, 0, 0))
}

#[tokio::test]
async fn an_answer_is_timed_from_its_first_byte_to_its_last_on_every_route() {
    let sim = sim::start(SimConfig::default()).await.expect("a free port");
    for routes in [Routes::Native, Routes::OpenAi] {
        for streams in [Streams::Yes, Streams::No] {
            let (mut client, mut gathered) = (client(&sim, routes, streams).await, Gathered::default());
            assert!(client.take_turn(&mut gathered).await, "{:?}", gathered.failure);
            assert!(client.take_turn(&mut gathered).await, "{:?}", gathered.failure);
            let [first, second] = gathered.samples[..] else { panic!("two answers") };
            assert!(first.first_byte <= first.total && first.answer_bytes > 0);
            assert_eq!((first.turn, second.turn), (1, 2));
            assert!(second.request_bytes > first.request_bytes, "the answer is part of the history");
            // Six pieces and what ends them, twice; how many arrive at once is up to the network.
            assert_eq!(gathered.gaps.is_empty(), streams == Streams::No);
        }
    }
}

#[tokio::test]
async fn what_goes_wrong_is_counted_by_its_kind_not_timed_and_gone_with_the_next_turn() {
    let sim = sim::start(SimConfig::default()).await.expect("a free port");
    let faults = [
        (Fault::Status { code: 503, body: r#"{"error":"busy"}"#.to_owned() }, "status 503", "busy"),
        (Fault::CloseBeforeHeaders, "connection", ""),
        (Fault::EndAfterChunks(2), "incomplete", "ended with"),
        (Fault::ResetAfterChunks(2), "incomplete", ""),
        (Fault::ErrorLineAfterChunks(2), "error frame", "error"),
        (Fault::Garbage, "incomplete", "ended with"),
    ];
    let mut client = client(&sim, Routes::Native, Streams::Yes).await;
    for (fault, kind, said) in faults {
        let mut gathered = Gathered::default();
        assert!(client.take_turn(&mut gathered).await, "{:?}", gathered.failure);
        sim.faults().push(fault.clone());
        assert!(!client.take_turn(&mut gathered).await, "{fault:?}");
        let failure = gathered.failure.as_ref().expect("a failure");
        assert!(failure.kind == kind && failure.said.contains(said), "{fault:?}: {failure:?}");
        assert_eq!((gathered.errors.get(kind), gathered.samples.len()), (Some(&1), 1));
        assert!(client.take_turn(&mut gathered).await, "{:?}", gathered.failure);
        assert_eq!(gathered.samples[1].turn, 1, "a new conversation");
    }
}
