//! A file of keys that changes under a running server.

use std::time::{Duration, Instant};

use wideroom::auth::{Auth, Error};

use super::files::{Folder, Pair, assert_alice, by_keys, by_secret, by_secret_file, claims, jwks};
use crate::support::world::PATIENCE;

const LOOK_EVERY: Duration = Duration::from_millis(20);

/// Waits until the token is good, or is not any more.
fn until(auth: &Auth, token: &str, is_good: bool) {
    let deadline = Instant::now() + PATIENCE;
    while auth.verify(token).is_ok() != is_good {
        assert!(Instant::now() < deadline, "the keys are not read again");
        std::thread::sleep(LOOK_EVERY);
    }
}

#[test]
fn a_new_key_is_found_when_a_token_names_it_and_an_old_one_is_forgotten() {
    let folder = Folder::new();
    let (old, new) = (Pair::ed(), Pair::ed());
    let auth = by_keys(&folder.write("keys.json", jwks(&[old.jwk("old")]))).unwrap();
    assert_eq!(auth.verify(&new.token(Some("new"))), Err(Error::Signature));
    folder.write("keys.json", jwks(&[old.jwk("old"), new.jwk("new")]));
    until(&auth, &new.token(Some("new")), true);
    assert_alice(auth.verify(&old.token(Some("old"))));
    folder.write("keys.json", jwks(&[new.jwk("new")]));
    until(&auth, &old.token(Some("old")), false);
    assert_alice(auth.verify(&new.token(Some("new"))));
}

#[test]
fn a_broken_file_changes_nothing_and_heals() {
    let folder = Folder::new();
    let (old, new) = (Pair::ec(), Pair::ec());
    let path = folder.write("keys.json", jwks(&[old.jwk("old")]));
    let auth = by_keys(&path).unwrap();
    for broken in ["{", "{\"keys\": []}", &new.private] {
        folder.write("keys.json", broken);
        assert_eq!(auth.verify(&new.token(Some("new"))), Err(Error::Signature));
        assert_alice(auth.verify(&old.token(Some("old"))));
    }
    std::fs::remove_file(&path).unwrap();
    assert_alice(auth.verify(&old.token(Some("old"))));
    folder.write("keys.json", jwks(&[new.jwk("new")]));
    until(&auth, &new.token(Some("new")), true);
    assert_eq!(auth.verify(&old.token(Some("old"))), Err(Error::Signature));
}

#[test]
fn a_secret_is_changed_in_place() {
    let folder = Folder::new();
    let (old, new) = ([b'o'; 40], [b'n'; 40]);
    let path = folder.write("secret", old);
    let auth = by_secret_file(&path).unwrap();
    assert_alice(auth.verify(&by_secret(&old, &claims())));
    std::fs::write(&path, new).unwrap();
    until(&auth, &by_secret(&new, &claims()), true);
    until(&auth, &by_secret(&old, &claims()), false);
}
