//! Tests of the table of settings, of their sources, and of the validation.

use super::*;

#[test]
fn every_default_reads_back_as_itself() {
    for setting in settings() {
        let mut config = Config::default();
        config
            .set(
                setting,
                &(setting.get)(&Config::default()),
                &SettingSource::Flag,
            )
            .unwrap();
        assert_eq!(config, Config::default(), "{}", setting.name);
    }
}

#[test]
fn settings_have_one_name_each_in_all_places() {
    let mut names: Vec<_> = settings().map(|setting| setting.name).collect();
    names.sort_unstable();
    names.dedup();
    assert_eq!(names.len(), settings().count());
    for setting in settings() {
        assert_eq!(
            setting.environment,
            format!("WIDEROOM_{}", setting.name.to_uppercase().replace('-', "_"))
        );
    }
}

#[test]
fn a_bad_value_is_named_by_where_it_was_given_and_not_repeated() {
    let store = SETTINGS
        .iter()
        .find(|setting| setting.name == "store")
        .unwrap();
    let error = |source| {
        Config::default()
            .set(store, "mysql://user:hunter2@host", &source)
            .unwrap_err()
            .to_string()
    };
    assert_eq!(
        error(SettingSource::Flag),
        "--store: must be `embedded` or begin with cql://"
    );
    assert_eq!(
        error(SettingSource::Environment),
        "WIDEROOM_STORE: must be `embedded` or begin with cql://"
    );
    assert_eq!(
        error(SettingSource::File("w.toml".into())),
        "w.toml: store: must be `embedded` or begin with cql://"
    );
}

#[test]
fn a_cluster_is_answered_and_its_password_forgotten() {
    let mut config = Config::default();
    let store = SETTINGS
        .iter()
        .find(|setting| setting.name == "store")
        .unwrap();
    config
        .set(store, "cql://user:hunter2@host/chat", &SettingSource::Flag)
        .unwrap();
    assert!(!format!("{config:?}{}", (store.get)(&config)).contains("hunter2"));
    assert!(config.validate(Scope::Data).is_ok());
}

#[test]
fn bounds_that_do_not_fit_together_are_refused() {
    let mut config = Config::default();
    config.chat.body_bytes_max = 64 * 1024;
    assert!(matches!(
        config.validate(Scope::Serve),
        Err(Error::MessageBody)
    ));
    let mut config = Config::default();
    config.chat.body_bytes_max = Body::BYTES_MAX + 1;
    assert!(matches!(
        config.validate(Scope::Serve),
        Err(Error::MessageBodyMax)
    ));
    config.chat.body_bytes_max = Body::BYTES_MAX;
    config.server.variables_bytes = 2 * Body::BYTES_MAX;
    assert!(matches!(
        config.validate(Scope::Serve),
        Err(Error::LongMessageBody)
    ));
    config.server.variables_bytes = 3 * Body::BYTES_MAX;
    assert!(config.validate(Scope::Serve).is_ok());
    config.server.answer_bytes = 200 * Body::BYTES_MAX - 1;
    assert!(matches!(
        config.validate(Scope::Serve),
        Err(Error::LongMessageBody)
    ));
    let mut config = Config::default();
    config.chat.unread_cap = 1_000;
    assert!(matches!(
        config.validate(Scope::Serve),
        Err(Error::UnreadCap)
    ));
}

#[test]
fn the_demo_has_the_key_of_its_folder() {
    for name in ["token-keys-file", "token-secret-file"] {
        let mut config = Config {
            demo: true,
            ..Config::default()
        };
        let setting = settings().find(|setting| setting.name == name).unwrap();
        config
            .set(setting, "keys.json", &SettingSource::Flag)
            .unwrap();
        assert!(matches!(
            config.validate(Scope::Serve),
            Err(Error::DemoKeys)
        ));
        assert!(config.validate(Scope::Data).is_ok());
    }
}

#[test]
fn rates_are_switched_off_all_together() {
    let mut config = Config::default();
    let rates = settings().find(|setting| setting.name == "rates").unwrap();
    config.set(rates, "off", &SettingSource::Flag).unwrap();
    assert!(!config.chat.rates.is_on && !config.server.rates.is_on);
    assert_eq!((rates.get)(&config), "off");
}

#[test]
fn pages_are_served_by_themselves_on_a_loopback_address_only() {
    let pages = settings().find(|setting| setting.name == "pages").unwrap();
    for (choice, listen, is_served) in [
        ("auto", "127.0.0.1:80", true),
        ("auto", "[::1]:80", true),
        ("auto", "0.0.0.0:80", false),
        ("auto", "192.168.1.4:80", false),
        ("on", "0.0.0.0:80", true),
        ("true", "0.0.0.0:80", true),
        ("off", "127.0.0.1:80", false),
    ] {
        let mut config = Config {
            listen: listen.parse().unwrap(),
            ..Config::default()
        };
        config.set(pages, choice, &SettingSource::Flag).unwrap();
        assert_eq!(config.has_pages(), is_served, "{choice} {listen}");
    }
    let refused = Config::default()
        .set(pages, "some", &SettingSource::Flag)
        .unwrap_err()
        .to_string();
    assert_eq!(refused, "--pages: must be on, off or auto");
}

#[test]
fn audiences_of_the_server_are_no_audience_of_users() {
    let audience = settings()
        .find(|setting| setting.name == "token-audience")
        .unwrap();
    for name in [auth::BACKUP_AUDIENCE, auth::DEMO_AUDIENCE] {
        let refused = Config::default()
            .set(audience, name, &SettingSource::Flag)
            .unwrap_err()
            .to_string();
        assert_eq!(
            refused,
            "--token-audience: must be another name: the server reserves this one for its own tokens"
        );
    }
}

#[test]
fn the_demo_stays_on_this_machine() {
    let config = |listen: &str| Config {
        demo: true,
        listen: listen.parse().unwrap(),
        ..Config::default()
    };
    assert!(config("127.0.0.9:80").validate(Scope::Serve).is_ok());
    assert!(config("[::1]:80").validate(Scope::Serve).is_ok());
    for public in ["0.0.0.0:80", "[::]:80", "192.168.1.4:80"] {
        assert!(matches!(
            config(public).validate(Scope::Serve),
            Err(Error::DemoIsPublic(_))
        ));
    }
}
