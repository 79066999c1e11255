//! Tokens that were good once: who changes one is nobody.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde_json::{Value, json};

use super::server::{Target, assert_sound};
use super::tape::{Tape, play};
use crate::support::client::Caller;

/// A token with its parts damaged, and sometimes one half of another's.
fn damaged(tape: &mut Tape, tokens: &[String]) -> String {
    let mut parts: Vec<Vec<u8>> = (0..3)
        .map(|part| {
            tokens[tape.number(tokens.len())]
                .split('.')
                .nth(part)
                .unwrap()
                .as_bytes()
                .to_vec()
        })
        .collect();
    for part in &mut parts {
        match tape.number(4) {
            0 | 1 => {}
            2 => {
                let json =
                    String::from_utf8_lossy(&URL_SAFE_NO_PAD.decode(&*part).unwrap_or_default())
                        .into_owned();
                *part = URL_SAFE_NO_PAD.encode(tape.damage(&json)).into_bytes();
            }
            _ => tape.damage_bytes(part),
        }
    }
    let token = parts
        .iter()
        .map(|part| String::from_utf8_lossy(part))
        .collect::<Vec<_>>()
        .join(".");
    // A header can hold only these characters.
    token.chars().filter(char::is_ascii_graphic).collect()
}

#[test]
fn a_damaged_token_is_nobodys() {
    let target = Target::start();
    let tokens = ["alice", "bob"].map(|name| target.token_of(name));
    play(
        |tape| damaged(tape, &tokens),
        |token| {
            let mut caller = target
                .wait(Caller::connect(target.address, &token))
                .unwrap();
            let reply = target
                .wait(caller.ask("{ viewer { username } }", &Value::Null))
                .expect("the connection stays");
            assert_sound(&reply.body);
            match reply.status {
                // Its bytes are those of a good one: what was changed does not count, as the last bits of base64.
                200 => {
                    assert!(
                        ["alice", "bob"]
                            .map(|name| json!(name))
                            .contains(&reply.body["data"]["viewer"]["username"]),
                        "{}",
                        reply.body
                    )
                }
                status => assert_eq!(
                    (status, reply.code()),
                    (401, "UNAUTHENTICATED"),
                    "{}",
                    reply.body
                ),
            }
        },
    );
    target.ends_well();
}
