//! Profiles: what users tell of themselves, part by part.

use futures_util::future::join_all;
use wideroom::model::{
    AppKey, AppKeyClaim, ChangeKind, Conversation, ConversationProfile, InputHash, Metadata,
    Profile, Role, Timestamp, UserId,
};
use wideroom::store::{
    ConversationProfileChange, ImportRow, Imported, NewConversation, ProfileChange, Store,
    StoreAdmin,
};

use super::ask::{make, only, participation};
use crate::support::words::{
    START, change, change_of, conversation_id, crowd, group, group_row, user, users,
};

fn name(text: &str) -> ProfileChange {
    ProfileChange {
        display_name: Some(Some(text.to_owned())),
        ..ProfileChange::default()
    }
}

fn avatar(text: &str) -> ProfileChange {
    ProfileChange {
        avatar_url: Some(Some(text.to_owned())),
        ..ProfileChange::default()
    }
}

fn profile(
    display_name: Option<&str>,
    avatar_url: Option<&str>,
    last_seen_at: Option<Timestamp>,
) -> Profile {
    Profile {
        display_name: display_name.map(str::to_owned),
        avatar_url: avatar_url.map(str::to_owned),
        metadata: None,
        last_seen_at,
    }
}

async fn read(store: &dyn Store, user: &UserId) -> Option<Profile> {
    only(store.profiles(std::slice::from_ref(user)).await.unwrap())
}

pub async fn omitted_profile_fields_stay_unchanged(store: &dyn StoreAdmin) {
    let [ann, ben] = users(["ann", "ben"]);
    store
        .change_profile(&ann, &ProfileChange::default())
        .await
        .unwrap();
    assert_eq!(read(store, &ann).await, None, "nothing was told");
    store.change_profile(&ann, &name("Ann")).await.unwrap();
    assert_eq!(
        read(store, &ann).await,
        Some(profile(Some("Ann"), None, None))
    );
    store
        .change_profile(&ann, &avatar("https://a.example/ann.png"))
        .await
        .unwrap();
    store.change_profile(&ann, &name("Änn")).await.unwrap();
    assert_eq!(
        read(store, &ann).await,
        Some(profile(
            Some("Änn"),
            Some("https://a.example/ann.png"),
            None
        ))
    );
    assert_eq!(read(store, &ben).await, None);
    let seen = profile(Some("Ben"), None, Some(START));
    store
        .import(&[ImportRow::User {
            user: ben.clone(),
            profile: seen,
            restriction: Default::default(),
        }])
        .await
        .unwrap();
    store.change_profile(&ben, &name("Benjamin")).await.unwrap();
    assert_eq!(
        read(store, &ben).await,
        Some(profile(Some("Benjamin"), None, Some(START))),
        "when they were seen is none of it"
    );
}

pub async fn a_profile_field_set_to_null_is_removed(store: &dyn Store) {
    let ann = user("ann");
    let both = ProfileChange {
        avatar_url: avatar("https://a.example/ann.png").avatar_url,
        ..name("Ann")
    };
    store.change_profile(&ann, &both).await.unwrap();
    store
        .change_profile(
            &ann,
            &ProfileChange {
                display_name: Some(None),
                ..ProfileChange::default()
            },
        )
        .await
        .unwrap();
    assert_eq!(
        read(store, &ann).await,
        Some(profile(None, Some("https://a.example/ann.png"), None))
    );
    store
        .change_profile(
            &ann,
            &ProfileChange {
                display_name: Some(None),
                avatar_url: Some(None),
                metadata: Some(None),
            },
        )
        .await
        .unwrap();
    assert_eq!(
        read(store, &ann).await.unwrap_or_default(),
        Profile::default()
    );
}

pub async fn when_a_user_was_seen_is_a_maximum(store: &dyn Store) {
    let ann = user("ann");
    for micros in [5, 9, 7] {
        store
            .mark_seen(&ann, START.plus_micros(micros))
            .await
            .unwrap();
    }
    assert_eq!(
        read(store, &ann).await,
        Some(profile(None, None, Some(START.plus_micros(9))))
    );
    store.change_profile(&ann, &name("Ann")).await.unwrap();
    store.mark_seen(&ann, START.plus_micros(12)).await.unwrap();
    assert_eq!(
        read(store, &ann).await,
        Some(profile(Some("Ann"), None, Some(START.plus_micros(12)))),
        "the rest stays"
    );
}

pub async fn parts_told_at_once_all_stay(store: &dyn Store) {
    for number in 0..20 {
        let user = user(&format!("user {number}"));
        let changes = [
            name("Ann"),
            avatar("https://a.example/ann.png"),
            name("Ann"),
            ProfileChange::default(),
        ];
        join_all(
            changes
                .iter()
                .map(async |to| store.change_profile(&user, to).await.unwrap()),
        )
        .await;
        assert_eq!(
            read(store, &user).await,
            Some(profile(
                Some("Ann"),
                Some("https://a.example/ann.png"),
                None
            ))
        );
    }
}

pub async fn a_profile_of_a_conversation_is_logged_and_shows_in_small_inboxes(
    store: &dyn StoreAdmin,
) {
    let people = crowd(Conversation::FAN_OUT_MAX + 1);
    let (small, large, missing) = (conversation_id(1), conversation_id(2), conversation_id(3));
    make(store, small, &people[..2]).await;
    make(store, large, &people).await;
    let metadata = |text: &str| Some(Some(Metadata::parse(text, 64).unwrap()));
    let steps = [
        ConversationProfileChange {
            description: Some(Some("About ж".to_owned())),
            avatar_url: Some(Some("https://a.example/a.png".to_owned())),
            ..ConversationProfileChange::default()
        },
        ConversationProfileChange {
            metadata: metadata("{\"order\":42}"),
            ..ConversationProfileChange::default()
        },
        ConversationProfileChange {
            description: Some(None),
            metadata: metadata("[]"),
            ..ConversationProfileChange::default()
        },
    ];
    for (on, is_large) in [(small, false), (large, true)] {
        let mut expected = ConversationProfile::default();
        for (to, micros) in steps.iter().zip(10..) {
            let update = change_of(
                change(micros),
                ChangeKind::ConversationUpdated,
                change(micros),
                &people[0],
            );
            // Once more, it settles a write of unknown outcome.
            for _ in 0..2 {
                let audience = store.change_conversation_profile(on, to, &update).await;
                let users = audience.unwrap().users;
                assert_eq!(users.is_none(), is_large);
                assert!(users.is_none_or(|users| *users == people[..2]));
            }
            expected = to.apply(expected);
            let found = store.conversation_profiles(&[missing, on]).await.unwrap();
            assert_eq!(found, [ConversationProfile::default(), expected.clone()]);
            let logged = store
                .changes(on, change(micros).order_key().before(), 9)
                .await;
            assert_eq!(logged.unwrap(), [update]);
            let after = change(micros).order_key().before();
            let shown = store
                .inbox_changes(&people[1], after, 9)
                .await
                .unwrap()
                .unwrap();
            assert!(is_large || shown.len() == 1, "{shown:?}");
        }
    }
    let nowhere = store
        .change_conversation_profile(
            missing,
            &steps[0],
            &change_of(
                change(99),
                ChangeKind::ConversationUpdated,
                change(99),
                &people[0],
            ),
        )
        .await;
    assert!(nowhere.is_err());
    // One that is made with a profile has it.
    let profile = steps[1].apply(steps[0].apply(ConversationProfile::default()));
    let mut made = NewConversation {
        profile: profile.clone(),
        ..group(missing, &people[..2])
    };
    made.conversation.history.roles.send = Role::Owner;
    store.create_conversation(&made).await.unwrap();
    let found = only(store.conversations(&[missing]).await.unwrap()).unwrap();
    let own = participation(store, missing, &people[0]).await.unwrap();
    for one in [found, own.conversation] {
        assert_eq!(one.roles(), made.conversation.roles());
    }
    assert_eq!(
        store.conversation_profiles(&[missing]).await.unwrap(),
        [profile]
    );
}

pub async fn an_app_key_is_claimed_once(store: &dyn Store) {
    let key = AppKey::parse("order:42 \u{442}").unwrap();
    assert_eq!(store.app_key_claim(&key).await.unwrap(), None);
    let claim = |number: u8| AppKeyClaim {
        conversation: conversation_id(number),
        input_hash: Some(InputHash([number; 32])),
    };
    let claims = join_all((1..9).map(|number| store.claim_app_key(&key, claim(number)))).await;
    let holder = *claims[0].as_ref().unwrap();
    assert!((1..9).any(|number| holder == claim(number)));
    for one in claims {
        assert_eq!(one.unwrap(), holder);
    }
    assert_eq!(store.app_key_claim(&key).await.unwrap(), Some(holder));
    let other = AppKey::parse("order:4").unwrap();
    assert_eq!(store.app_key_claim(&other).await.unwrap(), None);
    let claimed = store.claim_app_key(&other, claim(9)).await.unwrap();
    assert_eq!(claimed, claim(9));
    // A conversation that is made under a claim shows its key, and a change of its profile keeps that.
    let people = users(["ann", "ben"]);
    let made = NewConversation {
        profile: ConversationProfile {
            app_key: Some(other.clone()),
            ..ConversationProfile::default()
        },
        ..group(conversation_id(9), &people)
    };
    store.create_conversation(&made).await.unwrap();
    let to = ConversationProfileChange {
        description: Some(Some("About".to_owned())),
        ..ConversationProfileChange::default()
    };
    let update = change_of(
        change(10),
        ChangeKind::ConversationUpdated,
        change(10),
        &people[0],
    );
    let changed = store.change_conversation_profile(conversation_id(9), &to, &update);
    changed.await.unwrap();
    let found = only(
        store
            .conversation_profiles(&[conversation_id(9)])
            .await
            .unwrap(),
    );
    assert_eq!(
        (found.app_key, found.description),
        (Some(other), Some("About".to_owned()))
    );
}

pub async fn imported_app_keys_are_claimed_and_refused_where_they_are_taken(
    store: &dyn StoreAdmin,
) {
    let key = AppKey::parse("order:42").unwrap();
    let row = |number: u8, hash: Option<InputHash>| {
        let profile = ConversationProfile {
            app_key: Some(key.clone()),
            ..ConversationProfile::default()
        };
        let ImportRow::Conversation {
            conversation,
            last_activity,
            ..
        } = group_row(conversation_id(number), None)
        else {
            unreachable!("the row of a group is one of a conversation")
        };
        ImportRow::Conversation {
            conversation: Conversation {
                input_hash: hash,
                ..conversation
            },
            last_activity,
            profile,
        }
    };
    let rows = [row(1, None), row(1, None), row(2, None)];
    let outcomes = store.import(&rows).await.unwrap();
    assert_eq!(outcomes[..2], [Imported::Added, Imported::Unchanged]);
    let is_named =
        |outcome: &Imported| matches!(outcome, Imported::Refused(why) if why.contains("appKey"));
    assert!(is_named(&outcomes[2]), "in one piece: {outcomes:?}");
    let outcomes = store.import(&[row(3, None), row(1, None)]).await.unwrap();
    assert!(is_named(&outcomes[0]), "in a later piece: {outcomes:?}");
    assert_eq!(outcomes[1], Imported::Unchanged);
    let present = group_row(conversation_id(4), None);
    let outcomes = store.import(&[present, row(4, None)]).await.unwrap();
    assert_eq!(outcomes, [Imported::Added, Imported::Unchanged]);
    let claim = store.app_key_claim(&key).await.unwrap().unwrap();
    assert_eq!(claim.conversation, conversation_id(1));
    let found = store
        .conversations(&[conversation_id(2), conversation_id(3)])
        .await;
    assert_eq!(
        found.unwrap(),
        [None, None],
        "nothing of a refused one is kept"
    );
    let profile = only(
        store
            .conversation_profiles(&[conversation_id(1)])
            .await
            .unwrap(),
    );
    assert_eq!(profile.app_key, Some(key));
}
