//! Flag over environment over file over default, and what is said of a wrong one.

use super::Program;

/// The address that a server is asked to listen on shows in what `--demo` refuses.
fn listen_address(
    program: &Program,
    flag: Option<&str>,
    variable: Option<&str>,
    file: Option<&str>,
) -> String {
    let path = program.write(
        "wideroom.toml",
        &file
            .map(|address| format!("listen = \"{address}\"\n"))
            .unwrap_or_default(),
    );
    let mut arguments = vec!["serve", "--demo", "--config", &path];
    arguments.extend(
        flag.map(|address| ["--listen", address])
            .into_iter()
            .flatten(),
    );
    let mut command = program.command(&arguments);
    if let Some(address) = variable {
        command.env("WIDEROOM_LISTEN", address);
    }
    let output = command.output().unwrap();
    assert_eq!(output.status.code(), Some(1));
    let stderr = String::from_utf8(output.stderr).unwrap();
    let rest = stderr
        .strip_prefix("wideroom: --demo is only for this machine: ")
        .unwrap_or_else(|| panic!("{stderr}"));
    rest.strip_suffix(" is not a loopback address\n")
        .unwrap()
        .to_owned()
}

#[test]
fn flag_goes_over_environment_over_file() {
    let program = Program::new();
    let (flag, variable, file) = (Some("10.0.0.1:1"), Some("10.0.0.2:2"), Some("10.0.0.3:3"));
    assert_eq!(listen_address(&program, flag, variable, file), "10.0.0.1:1");
    assert_eq!(listen_address(&program, None, variable, file), "10.0.0.2:2");
    assert_eq!(listen_address(&program, None, None, file), "10.0.0.3:3");
    assert_eq!(
        listen_address(&program, None, Some(""), file),
        "10.0.0.3:3",
        "an empty variable is one that is not set"
    );
}

#[test]
fn no_command_is_serve() {
    let program = Program::new();
    let line = "--demo is only for this machine: 10.0.0.1:1 is not a loopback address";
    program
        .run(&["--demo", "--listen", "10.0.0.1:1"])
        .failed(1, line);
    program
        .run(&["serve", "--demo", "--listen", "10.0.0.1:1"])
        .failed(1, line);
}

#[test]
fn an_unknown_key_is_refused_with_the_nearest_known_one() {
    let program = Program::new();
    let path = program.write("wideroom.toml", "cache_size = \"1MiB\"\n");
    let line = format!("{path}: unknown key `cache_size`; did you mean `cache-size`?");
    program.run(&["--config", &path]).failed(1, &line);
    program
        .run(&["token", "--user", "alice", "--config", &path])
        .failed(1, &line);
    assert!(
        !program.data().exists(),
        "nothing is opened before the configuration is in order"
    );
}

#[test]
fn a_wrong_value_is_named_by_where_it_stands() {
    let program = Program::new();
    let must = "must be a time with its unit, as 500ms, 10s, 15m, 24h or 30d";
    program
        .run(&["--drain", "10"])
        .failed(2, &format!("--drain: {must}"));
    let ended = program
        .command(&[])
        .env("WIDEROOM_DRAIN", "10")
        .output()
        .unwrap();
    assert_eq!(
        String::from_utf8(ended.stderr).unwrap(),
        format!("wideroom: WIDEROOM_DRAIN: {must}\n")
    );
    let path = program.write("wideroom.toml", "drain = 10\n");
    program
        .run(&["--config", &path])
        .failed(1, &format!("{path}: drain: {must}"));
}

#[test]
fn a_bound_that_protects_nothing_is_refused() {
    let program = Program::new();
    let must = "must be at least 16MiB, which the store may write before it notices, or 0B";
    program
        .run(&["check-config", "--free-disk-min", "4MiB"])
        .failed(2, &format!("--free-disk-min: {must}"));
    for enough in ["0B", "16MiB"] {
        program
            .run(&["check-config", "--free-disk-min", enough])
            .succeeded();
    }
}

#[test]
fn a_file_that_is_not_there_is_named() {
    let program = Program::new();
    program
        .run(&["--config", "nowhere.toml"])
        .failed(1, "nowhere.toml: No such file or directory (os error 2)");
}

#[test]
fn a_cluster_that_is_not_there_is_one_line_that_hides_its_password() {
    let program = Program::new();
    // Nothing listens on port 1.
    let store = "cql://user:hunter2@127.0.0.1:1/chat";
    for arguments in [
        &["import", "-", "--store", store][..],
        &["migrate", "--store", store],
    ] {
        let ended = program.run(arguments);
        assert_eq!(ended.code, Some(1));
        let line = ended.stderr.lines().last().unwrap();
        assert!(
            line.starts_with("wideroom: cql://127.0.0.1:1/chat does not answer: "),
            "{line}"
        );
        assert!(!ended.stderr.contains("hunter2"), "{}", ended.stderr);
    }
    program.run(&["--store", "cql://user:hunter2@host"]).failed(
        2,
        "--store: must name a keyspace, as in cql://127.0.0.1/wideroom: 1 to 48 letters, digits and underscores, a letter first",
    );
    program.run(&["migrate"]).failed(
        1,
        "migrate needs a cluster: name it, as in --store cql://127.0.0.1/wideroom",
    );
    program
        .run(&["--store", "mysql://user:hunter2@host/chat"])
        .failed(2, "--store: must be `embedded` or begin with cql://");
}

#[test]
fn a_list_that_is_none_is_named() {
    let program = Program::new();
    let origins =
        "must be origins with commas between them, as https://chat.example.org, or * or none";
    program
        .run(&["--cors-origins", "https://good.example,chat.example.org"])
        .failed(
            2,
            &format!("--cors-origins: {origins}: chat.example.org is no origin"),
        );
    let networks = "must be networks or addresses with commas between them, as 10.0.0.0/8,192.168.1.7, or none";
    program
        .run(&["--trusted-proxies", "proxy.example"])
        .failed(2, &format!("--trusted-proxies: {networks}"));
    let path = program.write("wideroom.toml", "rates = \"sometimes\"\n");
    program
        .run(&["--config", &path])
        .failed(1, &format!("{path}: rates: must be on or off"));
    program
        .run(&["--send-rate", "0"])
        .failed(2, "--send-rate: must be a whole number from 1 on");
}

#[test]
fn check_config_says_what_is_in_force_and_from_where() {
    let program = Program::new();
    let path = program.write(
        "wideroom.toml",
        "drain = \"20s\"\nsend-rate = 5\nlog = \"warn\"\n",
    );
    let mut command = program.command(&[
        "check-config",
        "--config",
        &path,
        "--log",
        "debug",
        "--store",
        "cql://user:hunter2@host/chat",
    ]);
    let output = command.env("WIDEROOM_SEND_RATE", "7").output().unwrap();
    let (stdout, stderr) = (
        String::from_utf8(output.stdout).unwrap(),
        String::from_utf8(output.stderr).unwrap(),
    );
    assert_eq!(output.status.code(), Some(0), "{stderr}");
    let line = |name: &str| {
        stdout
            .lines()
            .find(|line| line.starts_with(&format!("{name} = ")))
            .unwrap_or_else(|| panic!("{name}: {stdout}"))
    };
    for (name, value, source) in [
        ("drain", "\"20s\"", path.as_str()),
        ("send-rate", "7", "environment"),
        ("log", "\"debug\"", "flag"),
        ("store", "\"cql://host:9042/chat\"", "flag"),
        ("listen", "\"127.0.0.1:8080\"", "default"),
    ] {
        let line = line(name);
        assert!(
            line.starts_with(&format!("{name} = {value} "))
                && line.ends_with(&format!(" # {source}")),
            "{line}"
        );
    }
    assert!(!stdout.contains("hunter2") && !stderr.contains("hunter2"));
    assert!(!program.data().exists(), "nothing is made");
    // The output is a valid configuration file.
    let again = program.write("again.toml", &stdout);
    assert!(
        program
            .run(&["check-config", "--config", &again])
            .succeeded()
            .contains("drain = \"20s\"")
    );
}

#[test]
fn check_config_finds_what_serve_would_refuse() {
    let program = Program::new();
    program
        .run(&["check-config", "--unread-cap", "1000"])
        .failed(1, "--unread-cap: 999 at most");
    program.run(&["check-config", "--drain", "10"]).failed(
        2,
        "--drain: must be a time with its unit, as 500ms, 10s, 15m, 24h or 30d",
    );
    let path = program.write("wideroom.toml", "lisen = \"x\"\n");
    program.run(&["check-config", "--config", &path]).failed(
        1,
        &format!("{path}: unknown key `lisen`; did you mean `listen`?"),
    );
    let short = program.write("secret", "too short\n");
    let ended = program.run(&["check-config", "--token-secret-file", &short]);
    assert!(
        ended.code == Some(1)
            && ended.stderr.contains(&short)
            && !ended.stderr.contains("too short\n"),
        "{}",
        ended.stderr
    );
    assert_eq!(
        program.run(&["check-config", "--log", "info,=,"]).code,
        Some(1)
    );
    assert_eq!(
        program
            .run(&["check-config", "--trusted-documents", "nowhere.json"])
            .code,
        Some(1)
    );
}

#[test]
fn the_default_configuration_is_what_is_in_force_without_one() {
    let program = Program::new();
    let file = program.run(&["default-config"]);
    let path = program.write("default.toml", file.succeeded());
    let with = program.run(&["check-config", "--config", &path]);
    assert_eq!(with.succeeded(), program.run(&["check-config"]).succeeded());
    // And with every key set.
    let is_key = |line: &&str| {
        line.strip_prefix('#')
            .is_some_and(|line| line.starts_with(|first: char| first.is_ascii_lowercase()))
    };
    let keys: String = file
        .stdout
        .lines()
        .filter(is_key)
        .map(|line| format!("{}\n", &line[1..]))
        .collect();
    let path = program.write("keys.toml", &keys);
    let values = |text: &str| {
        text.lines()
            .map(|line| line.split("  #").next().unwrap().trim_end().to_owned())
            .collect::<Vec<_>>()
    };
    let mut command = program.command(&["check-config", "--config", &path]);
    let output = command
        .env_remove("WIDEROOM_DATA")
        .env_remove("WIDEROOM_FREE_DISK_MIN")
        .env_remove("WIDEROOM_ADMIN_LISTEN")
        .env_remove("WIDEROOM_DRAIN_DELAY")
        .output()
        .unwrap();
    let all_set = String::from_utf8(output.stdout).unwrap();
    assert_eq!(
        values(&all_set),
        keys.lines().map(str::to_owned).collect::<Vec<_>>()
    );
    assert!(
        all_set.lines().all(|line| line.ends_with(&path)),
        "{all_set}"
    );
}
