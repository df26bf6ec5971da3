//! Properties of the hash chain: edits, users, regenerated answers.

use loadline::context::identity::{LinkMap, Placement, place};
use loadline::context::{ChainKey, Link, Message, Role, ToolCall};
use proptest::prelude::*;

type Said = (bool, String);

fn messages(said: &[Said]) -> Vec<Message<'_>> {
    let role = |user: bool| if user { Role::User } else { Role::Assistant };
    said.iter().enumerate().map(|(index, (user, text))| Message::plain(role(*user), text.as_str(), index)).collect()
}

fn key() -> ChainKey {
    ChainKey::new([7; 32])
}

fn history() -> impl Strategy<Value = Vec<Said>> {
    prop::collection::vec((any::<bool>(), "[a-c]{1,3}"), 1..12)
}

/// A user who has had this conversation: request, answer, request, answer …
fn had(known: &mut LinkMap, user: &str, conversation: i64, said: &[Said], answer: &str) -> Vec<Link> {
    let links = key().links(user, &messages(said));
    let last = *links.last().expect("something was said");
    known.record(conversation, &links, 0, key().extend(last, &Message::plain(Role::Assistant, answer, 0)));
    links
}

fn placed(known: &LinkMap, user: &str, said: &[Said]) -> Placement {
    place(&key().links(user, &messages(said)), |link| known.get(link))
}

proptest! {
    #[test]
    fn the_next_turn_continues_its_conversation(said in history(), answer in "[x-z]{1,4}") {
        let mut known = LinkMap::default();
        had(&mut known, "ann", 1, &said, &answer);
        let mut next = said.clone();
        next.push((false, answer));
        next.push((true, "and then?".into()));
        prop_assert_eq!(placed(&known, "ann", &next), Placement::Continues { conversation: 1, shared: said.len() + 1 });
    }

    #[test]
    fn an_edit_never_continues_the_conversation_it_left(said in history(), at in any::<prop::sample::Index>(), answer in "[x-z]{1,4}") {
        let mut known = LinkMap::default();
        had(&mut known, "ann", 1, &said, &answer);
        let mut edited = said.clone();
        edited.push((false, answer));
        edited.push((true, "more".into()));
        let at = at.index(said.len());
        edited[at].1.push_str(" edited");
        let placement = placed(&known, "ann", &edited);
        prop_assert!(!matches!(placement, Placement::Continues { .. }), "{:?}", placement);
        if let Placement::Branch { shared, .. } = placement {
            prop_assert!(shared <= at, "a prefix beyond the edit was taken for known");
        }
    }

    #[test]
    fn two_users_never_share_a_conversation(said in history(), answer in "[x-z]{1,4}") {
        let mut known = LinkMap::default();
        had(&mut known, "ann", 1, &said, &answer);
        let mut next = said;
        next.push((false, answer));
        prop_assert_eq!(placed(&known, "bob", &next), Placement::New);
    }

    #[test]
    fn an_equal_opening_without_an_answer_of_ours_is_new(said in history(), answer in "[x-z]{1,4}") {
        let mut known = LinkMap::default();
        had(&mut known, "ann", 1, &said, &answer);
        prop_assert_eq!(placed(&known, "ann", &said), Placement::New);
    }

    #[test]
    fn a_regenerated_answer_is_a_branch(said in history(), first in "[x-z]{1,4}") {
        let mut known = LinkMap::default();
        had(&mut known, "ann", 1, &said, &first);
        let mut second = said;
        second.push((false, first));
        second.push((true, "go on".into()));
        had(&mut known, "ann", 1, &second, "this");
        // The same question once more.
        prop_assert_eq!(placed(&known, "ann", &second), Placement::Branch { conversation: 1, shared: second.len() });
    }

    #[test]
    fn another_key_gives_other_links(said in history()) {
        let other = ChainKey::new([8; 32]);
        prop_assert!(key().links("ann", &messages(&said)).iter().all(|link| !other.links("ann", &messages(&said)).contains(link)));
    }
}

#[test]
fn space_around_a_text_and_thinking_do_not_count_but_tool_calls_do() {
    let link = |message: &Message<'_>| key().links("ann", std::slice::from_ref(message))[0];
    let plain = Message::plain(Role::Assistant, "yes", 0);
    let spaced = Message::plain(Role::Assistant, " yes\n", 0);
    let thought = Message { thinking: "hm".into(), ..plain.clone() };
    let call =
        ToolCall { id: "1".into(), name: "look".into(), arguments: "{}".into(), canonical_arguments: "{}".into() };
    let called = Message { tool_calls: vec![call], ..plain.clone() };
    assert_eq!(link(&plain), link(&spaced));
    assert_eq!(link(&plain), link(&thought));
    assert_ne!(link(&plain), link(&called));
}

#[test]
fn system_messages_are_not_part_of_the_chain() {
    let system = Message::plain(Role::System, "rules", 0);
    let user = Message::plain(Role::User, "hi", 1);
    let with = key().links("ann", &[system, user.clone()]);
    let without = key().links("ann", &[user]);
    assert_eq!(with.last(), without.last());
}

#[test]
fn borders_between_fields_cannot_be_moved() {
    let call = |name: &str, arguments: &str| ToolCall {
        id: "".into(),
        name: name.to_owned().into(),
        arguments: arguments.to_owned().into(),
        canonical_arguments: arguments.to_owned(),
    };
    let with = |calls| Message { tool_calls: calls, ..Message::plain(Role::Assistant, "", 0) };
    let link = |message: Message<'_>| key().links("ann", &[message])[0];
    assert_ne!(link(with(vec![call("ab", "c")])), link(with(vec![call("a", "bc")])));
}
