//! Flag over environment over file over default, and what is said of a wrong one.

use super::Program;

/// The address that a server is asked to listen on shows in what `--demo` refuses.
fn listen_address(program: &Program, flag: Option<&str>, variable: Option<&str>, file: Option<&str>) -> String {
    let path = program.write("wideroom.toml", &file.map(|address| format!("listen = \"{address}\"\n")).unwrap_or_default());
    let mut arguments = vec!["serve", "--demo", "--config", &path];
    arguments.extend(flag.map(|address| ["--listen", address]).into_iter().flatten());
    let mut command = program.command(&arguments);
    if let Some(address) = variable {
        command.env("WIDEROOM_LISTEN", address);
    }
    let output = command.output().unwrap();
    assert_eq!(output.status.code(), Some(1));
    let stderr = String::from_utf8(output.stderr).unwrap();
    let rest = stderr.strip_prefix("wideroom: --demo is only for this machine: ").unwrap_or_else(|| panic!("{stderr}"));
    rest.strip_suffix(" is not a loopback address\n").unwrap().to_owned()
}

#[test]
fn flag_goes_over_environment_over_file() {
    let program = Program::new();
    let (flag, variable, file) = (Some("10.0.0.1:1"), Some("10.0.0.2:2"), Some("10.0.0.3:3"));
    assert_eq!(listen_address(&program, flag, variable, file), "10.0.0.1:1");
    assert_eq!(listen_address(&program, None, variable, file), "10.0.0.2:2");
    assert_eq!(listen_address(&program, None, None, file), "10.0.0.3:3");
    assert_eq!(listen_address(&program, None, Some(""), file), "10.0.0.3:3", "an empty variable is one that is not set");
}

#[test]
fn no_command_is_serve() {
    let program = Program::new();
    let line = "--demo is only for this machine: 10.0.0.1:1 is not a loopback address";
    program.run(&["--demo", "--listen", "10.0.0.1:1"]).failed(1, line);
    program.run(&["serve", "--demo", "--listen", "10.0.0.1:1"]).failed(1, line);
}

#[test]
fn an_unknown_key_is_refused_with_the_nearest_known_one() {
    let program = Program::new();
    let path = program.write("wideroom.toml", "cache_size = \"1MiB\"\n");
    let line = format!("{path}: unknown key `cache_size`; did you mean `cache-size`?");
    program.run(&["--config", &path]).failed(1, &line);
    program.run(&["token", "--user", "alice", "--config", &path]).failed(1, &line);
    assert!(!program.data().exists(), "nothing is opened before the configuration is in order");
}

#[test]
fn a_wrong_value_is_named_by_where_it_stands() {
    let program = Program::new();
    let must = "must be a time with its unit, as 500ms, 10s, 15m, 24h or 30d";
    program.run(&["--drain", "10"]).failed(2, &format!("--drain: {must}"));
    let ended = program.command(&[]).env("WIDEROOM_DRAIN", "10").output().unwrap();
    assert_eq!(String::from_utf8(ended.stderr).unwrap(), format!("wideroom: WIDEROOM_DRAIN: {must}\n"));
    let path = program.write("wideroom.toml", "drain = 10\n");
    program.run(&["--config", &path]).failed(1, &format!("{path}: drain: {must}"));
}

#[test]
fn a_file_that_is_not_there_is_named() {
    let program = Program::new();
    program.run(&["--config", "nowhere.toml"]).failed(1, "nowhere.toml: No such file or directory (os error 2)");
}

#[test]
fn a_cluster_that_is_not_there_is_one_line_that_hides_its_password() {
    let program = Program::new();
    // Nothing listens on port 1.
    let store = "cql://user:hunter2@127.0.0.1:1/chat";
    for arguments in [&["--store", store][..], &["import", "-", "--store", store], &["migrate", "--store", store]] {
        let ended = program.run(arguments);
        assert_eq!(ended.code, Some(1));
        let line = ended.stderr.lines().last().unwrap();
        assert!(line.starts_with("wideroom: cql://127.0.0.1:1/chat is not to be reached: "), "{line}");
        assert!(!ended.stderr.contains("hunter2"), "{}", ended.stderr);
    }
    program.run(&["--store", "cql://user:hunter2@host"]).failed(
        2,
        "--store: must name a keyspace, as in cql://127.0.0.1/wideroom: 1 to 48 letters, digits and underscores, a letter first",
    );
    program.run(&["migrate"]).failed(1, "only a cluster has tables to make: say which, as in --store cql://127.0.0.1/wideroom");
    program.run(&["--store", "mysql://user:hunter2@host/chat"]).failed(2, "--store: must be `embedded` or begin with cql://");
}

#[test]
fn a_list_that_is_none_is_named_and_not_repeated() {
    let program = Program::new();
    let origins = "must be origins with commas between them, as https://chat.example.org, or * or none";
    program.run(&["--cors-origins", "chat.example.org"]).failed(2, &format!("--cors-origins: {origins}"));
    let networks = "must be networks or addresses with commas between them, as 10.0.0.0/8,192.168.1.7, or none";
    program.run(&["--trusted-proxies", "proxy.example"]).failed(2, &format!("--trusted-proxies: {networks}"));
    let path = program.write("wideroom.toml", "rates = \"sometimes\"\n");
    program.run(&["--config", &path]).failed(1, &format!("{path}: rates: must be on or off"));
    program.run(&["--send-rate", "0"]).failed(2, "--send-rate: must be a whole number from 1 on");
}
